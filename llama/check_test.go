//go:build unix

package llama

import (
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

// Placed on a GPU means computing on it.
func TestStartOnGPU(t *testing.T) {
	const cpu, gpu, silent = "computes on the CPU", "computes on a GPU", "says nothing"
	hook := func(on, known bool) func(int) (bool, bool) {
		return func(pid int) (bool, bool) { return on && pid > 0, known }
	}
	for _, c := range []struct {
		name   string
		layers int
		hook   func(int) (bool, bool)
		ok     bool
	}{
		{gpu, 7, nil, true},
		{gpu, 7, hook(false, true), true}, // the report is proof enough
		{cpu, 7, nil, false},
		{cpu, -1, hook(false, false), false},
		{cpu, 7, hook(false, true), false},
		{cpu, 7, hook(true, true), true},
		{cpu, 0, nil, true}, // no layer was to go there
		{silent, 7, nil, true},
		{silent, 7, hook(false, false), true},
		{silent, 7, hook(false, true), false},
	} {
		s := fakeSpec(t, c.name)
		s.Devices, s.GPULayers, s.OnGPU = []string{"CUDA0"}, c.layers, c.hook
		p, err := fakeServer(t).Start(t.Context(), s)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			if !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "placed on CUDA0, but computes on the CPU") {
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
