//go:build linux

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mounts is where `ip netns` keeps namespaces.
const mounts = "/run/netns"

// Needs says what this machine lacks for a lab, and how to get it.
func Needs() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces are made by root only: run it as root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: install iproute2 and nftables", tool)
		}
	}
	return nil
}

// ip runs commands of `ip` inside a namespace.
func ip(namespace string, commands ...string) error {
	return tool(strings.Join(commands, "\n")+"\n", "ip", "-n", namespace, "-batch", "-")
}

// nft runs a script of `nft` inside a namespace, all of it or nothing.
func nft(namespace, script string) error {
	return tool(script+"\n", "ip", "netns", "exec", namespace, "nft", "-f", "-")
}

func tool(stdin, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lab: %s %s: %w: %s\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(out), stdin)
	}
	return nil
}

func addNamespace(name string) error { return tool("", "ip", "netns", "add", name) }

// removeNamespace kills what runs in a namespace and removes it.
func removeNamespace(name string) error {
	if _, err := os.Stat(filepath.Join(mounts, name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for began := time.Now(); ; {
		out, err := exec.Command("ip", "netns", "pids", name).Output()
		if err != nil {
			return fmt.Errorf("lab: what runs in %s: %w", name, err)
		}
		pids := strings.Fields(string(out))
		if len(pids) == 0 || time.Since(began) > 5*time.Second { // A zombie is its parent's to bury.
			break
		}
		for _, text := range pids {
			if pid, err := strconv.Atoi(text); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // It may have ended by itself.
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return tool("", "ip", "netns", "del", name)
}

// Sweep removes the namespaces of processes that are dead, and what still runs
// in them.
func Sweep() error {
	entries, err := os.ReadDir(mounts)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), prefix)
		text, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(text)
		if !ours || err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		errs = append(errs, removeNamespace(e.Name()))
	}
	return errors.Join(errs...)
}

// inside calls f in a namespace. What f opens belongs to that namespace; it must
// not start goroutines that open more.
func inside(namespace string, f func() error) error {
	runtime.LockOSThread()
	away := false
	defer func() {
		if !away { // Else the thread stays locked, and nothing else runs on it.
			runtime.UnlockOSThread()
		}
	}()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	there, err := unix.Open(filepath.Join(mounts, namespace), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("lab: open namespace %s: %w", namespace, err)
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("lab: enter namespace %s: %w", namespace, err)
	}
	err = f()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		away = true
		return errors.Join(err, fmt.Errorf("lab: leave namespace %s: %w", namespace, back))
	}
	return err
}
