package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An engine with a GPU opens the devices of GPUs and no others. They are plain
// files in a /dev of the test's own.
func TestSandboxDevices(t *testing.T) {
	if s := ProbeSandbox(); !s.Full() || os.Geteuid() != 0 {
		t.Skipf("only for root in a sandbox: %s", s.Text)
	}
	devices := []string{"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvmap", "/dev/nvhost-ctrl-gpu",
		"/dev/nvgpu/igpu0/ctrl", "/dev/dri/renderD128", "/dev/kfd", "/dev/dxg", "/dev/kgsl-3d0"}
	const disk = "/dev/nvme0n1"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := forbidden{Box: t.TempDir(), Devices: devices, Secret: disk, Relay: os.Getpid()}
	f.Model = filepath.Join(f.Box, "m.gguf")
	// Its own goroutine: the thread has another /dev and ends with it.
	var got [2]map[string]string
	over := make(chan error)
	go func() {
		defer close(over)
		runtime.LockOSThread()
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/dev", "tmpfs", 0, ""))
		for _, path := range append(devices, disk, "/dev/null", "/dev/urandom") {
			err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600))
		}
		if err != nil {
			over <- err
			return
		}
		for i := range got {
			got[i] = inShim(t, f, policy{Mode: SandboxRequire, Program: self, Write: []string{f.Box}, GPU: i == 1})
		}
	}()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	for i, results := range got {
		if result := results["read a secret"]; !strings.Contains(result, "permi") {
			t.Errorf("gpu=%v: a disk: %s", i == 1, result)
		}
		for _, path := range devices {
			if result := results["gpu: open "+path]; (result == "done") != (i == 1) || i == 0 && !strings.Contains(result, "permi") {
				t.Errorf("gpu=%v: %s: %q", i == 1, path, result)
			}
		}
	}
}

// NVIDIA's tool is run where the device is not there, once, and whatever it does.
func TestWakeNVIDIA(t *testing.T) {
	bin, dev := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	wake := func() string {
		var log strings.Builder
		wakeNVIDIA(dev, &log)
		return log.String()
	}
	if log := wake(); log != "" {
		t.Errorf("without the tool: %s", log)
	}
	tool := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "nvidia-modprobe"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	asked := filepath.Join(dev, "asked")
	tool(fmt.Sprintf("echo \"$@\" >> %s", asked))
	if log := wake(); !strings.HasSuffix(log, ": done\n") {
		t.Errorf("it worked: %s", log)
	}
	if got, err := os.ReadFile(asked); err != nil || string(got) != "-u -c=0\n" {
		t.Errorf("the tool was asked %q %v", got, err)
	}
	tool("echo no such module; exit 1")
	if log := wake(); !strings.HasSuffix(log, ": exit status 1: no such module\n") {
		t.Errorf("it failed: %s", log)
	}
	if err := os.WriteFile(filepath.Join(dev, "nvidia-uvm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if log := wake(); log != "" {
		t.Errorf("with the device: %s", log)
	}
}

// The shim runs the tool before the sandbox is entered, for GPUs alone, and
// starts the engine whatever comes of it.
func TestSandboxWakesNVIDIA(t *testing.T) {
	if s := ProbeSandbox(); !s.Full() {
		t.Skipf("this kernel cannot: %s", s.Text)
	}
	if _, err := os.Stat("/dev/nvidia-uvm"); err == nil {
		t.Skip("the device is there: on a machine without it this is tried")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	asked := filepath.Join(bin, "asked")
	if err := os.WriteFile(filepath.Join(bin, "nvidia-modprobe"), []byte("#!/bin/sh\n: > "+asked+"; exit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	for _, gpu := range []bool{false, true} {
		got := inShim(t, forbidden{Filtered: true, Relay: os.Getpid()}, policy{Mode: SandboxAuto, Program: self, GPU: gpu})
		if len(got) == 0 {
			t.Errorf("gpu=%v: it was not started", gpu)
		}
		if _, err := os.Stat(asked); (err == nil) != gpu {
			t.Errorf("gpu=%v: the tool was asked: %v", gpu, err == nil)
		}
	}
}
