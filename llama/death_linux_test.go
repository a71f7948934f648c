package llama

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A witness sees a process end, whoever's child it is.
type witness struct {
	t  testing.TB
	fd int
}

func watch(t testing.TB, pid int) witness {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return witness{t, fd}
}

// gone waits until the process has ended and says how long that took.
func (w witness) gone(limit time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for {
		left := limit - time.Since(began)
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, max(0, int(left.Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			w.t.Fatalf("it lives on after %v (%v)", limit, err)
		}
		return time.Since(began)
	}
}

// hold starts a relay of its own that holds an engine.
func hold(t *testing.T, s Spec) (*exec.Cmd, held) {
	t.Helper()
	spec, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return holdBy(t, "hold-engine", spec)
}

// holdBy is hold for any of the helpers.
func holdBy(t *testing.T, helper string, spec []byte) (*exec.Cmd, held) {
	t.Helper()
	e := engine(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, helper, string(spec))
	cmd.Env = append(os.Environ(), "RELAY_LLAMA_BIN="+e.Server)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	var h held
	if err != nil || json.Unmarshal([]byte(line), &h) != nil {
		t.Fatalf("no engine: %s %v", line, err)
	}
	return cmd, h
}

// Whatever is killed, nothing is left.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		name                string
		sandbox             SandboxMode
		relay, shim, frozen bool
	}{
		{name: "relay", sandbox: SandboxAuto, relay: true},
		{name: "relay, without a sandbox", sandbox: SandboxOff, relay: true},
		{name: "shim", sandbox: SandboxAuto, shim: true},
		{name: "relay and shim", sandbox: SandboxAuto, relay: true, shim: true},
		{name: "relay, the engine stopped", sandbox: SandboxAuto, relay: true, frozen: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := demoSpec(t)
			s.Sandbox = c.sandbox
			cmd, h := hold(t, s)
			engine, shim := watch(t, h.Engine), watch(t, h.Shim)
			if c.frozen {
				if err := unix.Kill(h.Engine, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if c.relay {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if c.shim {
				if err := unix.Kill(h.Shim, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("the engine is gone after %v", engine.gone(3*time.Second))
			shim.gone(3 * time.Second)
			if c.relay && !c.shim {
				if left, err := filepath.Glob(filepath.Join(s.RunDir, "box", "*.sock")); err != nil || left != nil {
					t.Errorf("left behind: %v %v", left, err)
				}
			}
		})
	}
}

// The engine is killed, or its shim: relay notices and says so.
func TestNoticed(t *testing.T) {
	for _, c := range []struct {
		name string
		pid  func(*Process) int
		text string
	}{
		{"engine", (*Process).PID, "signal: killed"},
		{"shim", func(p *Process) int { return p.cmd.Process.Pid }, "its shim ended: signal: killed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, engine(t), demoSpec(t))
			w := watch(t, p.PID())
			if err := unix.Kill(c.pid(p), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("nobody noticed")
			}
			w.gone(time.Second)
			if err := p.Err(); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
			if _, _, err := p.ask(t.Context(), "GET", "/health", nil); err == nil {
				t.Error("somebody answers")
			}
		})
	}
}

// A shim that hangs does not hold up Stop.
func TestStopFrozenShim(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	w := watch(t, p.PID())
	if err := unix.Kill(p.cmd.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = p.Stop(ctx)
	w.gone(time.Second)
	<-p.Done()
}
