//go:build unix

package llama

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// An engine that gave a first token and no other is found out, healthy as it
// says it is.
func TestCheckFindsTheSilent(t *testing.T) {
	p := start(t, fakeServer(t), fakeSpec(t, "hangs later"))
	if err := p.healthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Check(ctx); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "healthy") {
		t.Errorf("got %v", err)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Check(given); !errors.Is(err, context.Canceled) || errors.Is(err, ErrEngine) {
		t.Errorf("given up: %v", err)
	}
}

// A process that is stopped where it stands does not hold Check up.
func TestCheckFindsTheFrozen(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Check(ctx); !errors.Is(err, ErrEngine) {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	u, err := p.Usage()
	if err != nil || u.RSS < 8<<20 || u.RSS > 512<<20 || u.Private == 0 || u.Private > u.RSS {
		t.Errorf("%+v %v", u, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u, err := p.Usage(); !errors.Is(err, ErrEngine) {
		t.Errorf("of a process that is gone: %+v %v", u, err)
	}
}

// Placed on a GPU means computing on it, and on several on each.
func TestStartOnGPU(t *testing.T) {
	const cpu, gpu, one, amx, strange, silent = "computes on the CPU", "computes on a GPU", "computes on one of two", "computes in matrix units", "computes somewhere", "says nothing"
	const onCPU = "placed on CUDA0, but computes on the CPU"
	for _, c := range []struct {
		name   string
		layers int
		split  []int // for two
		refuse string
	}{
		{gpu, 7, nil, ""},
		{cpu, 7, nil, onCPU},
		{cpu, -1, nil, onCPU},
		{cpu, 0, nil, ""}, // no layer was to go there
		{amx, 7, nil, onCPU},
		{strange, 7, nil, ""},
		{silent, 7, nil, ""},
		{one, 7, []int{3, 4}, "placed on CUDA0, CUDA1, but puts nothing on CUDA1"},
		{one, 7, []int{7, 0}, ""},
		{one, 7, []int{0, 7}, "puts nothing on CUDA1"},
		{cpu, 7, []int{3, 4}, "placed on CUDA0, CUDA1, but computes on the CPU"},
	} {
		s := fakeSpec(t, c.name)
		s.Devices, s.GPULayers, s.Split = []string{"CUDA0"}, c.layers, c.split
		if c.split != nil {
			s.Devices = append(s.Devices, "CUDA1")
		}
		p, err := fakeServer(t).Start(t.Context(), s)
		if (err == nil) != (c.refuse == "") {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			if !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		used := p.Report().Used()
		if c.name == gpu && (used["CUDA0"] != 120<<20 || used[HostID] != 15<<20 || len(used) != 2) {
			t.Errorf("used %v", used)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Whoever starts an engine knows its process before it is ready, also of one that
// never is.
func TestStarted(t *testing.T) {
	for name, want := range map[string]int{"": 1, "dies": 1, "loads for ever": 1} {
		s := fakeSpec(t, cmp.Or(name, "well"))
		s.ReadyIn = 2 * time.Second
		var pids []int
		s.Started = func(pid int) {
			pids = append(pids, pid)
			if name != "dies" && syscall.Kill(pid, 0) != nil {
				t.Errorf("%q: there is no process %d", name, pid)
			}
		}
		p, err := fakeServer(t).Start(t.Context(), s)
		if len(pids) != want || (err == nil) != (name == "") || err == nil && pids[0] != p.PID() {
			t.Errorf("%q: %v, %v", name, pids, err)
		}
		if err == nil {
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	s := fakeSpec(t, "never")
	s.Started = func(int) { t.Error("there is no engine") }
	if _, err := (Engine{Server: "/nonexistent"}).Start(t.Context(), s); err == nil {
		t.Error("it started")
	}
}
