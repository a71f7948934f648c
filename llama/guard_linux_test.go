package llama

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forgetGuard has the next ProbeGuard try, until the test is over.
func forgetGuard(t *testing.T) {
	t.Helper()
	guardProbe.turn <- struct{}{}
	defer func() { <-guardProbe.turn }()
	guard, known := guardProbe.guard, guardProbe.known
	guardProbe.known = false
	t.Cleanup(func() { guardProbe.guard, guardProbe.known = guard, known })
}

// A shim that is slow to start is waited for as long as the try may take.
func TestProbeGuardSlow(t *testing.T) {
	needGuard(t)
	forgetGuard(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	slow := []string{"/bin/sh", "-c", "sleep 5.2; exec " + self + " engine-shim"} // longer than answerTime
	if g := ProbeGuard(t.Context(), slow); !g.OK {
		t.Errorf("%+v", g)
	}
}

// What failed this once is tried again.
func TestProbeGuardAgain(t *testing.T) {
	needGuard(t)
	for name, fail := range map[string]func() Guard{
		"late": func() Guard {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			return ProbeGuard(ctx, []string{"/bin/sleep", "60"})
		},
		"a shim that is killed": func() Guard {
			return ProbeGuard(t.Context(), []string{"/bin/sh", "-c", "kill -9 $$"})
		},
		"no more files": func() Guard {
			var had unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
				t.Fatal(err)
			}
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: had.Max}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
					t.Fatal(err)
				}
			}()
			return ProbeGuard(t.Context(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			forgetGuard(t)
			if g := fail(); g.OK {
				t.Errorf("it failed, and is %+v", g)
			}
			if g := ProbeGuard(t.Context(), nil); !g.OK {
				t.Errorf("then %+v", g)
			}
		})
	}
}

// Who waits for another's try waits no longer than it wants.
func TestProbeGuardWaits(t *testing.T) {
	guardProbe.turn <- struct{}{} // the other's
	defer func() { <-guardProbe.turn }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	answer := make(chan Guard, 1)
	go func() { answer <- ProbeGuard(ctx, nil) }()
	select {
	case g := <-answer:
		if g.OK {
			t.Errorf("%+v", g)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still waits")
	}
}

func TestNotStarted(t *testing.T) {
	for errno, refused := range map[unix.Errno]bool{
		unix.EPERM: true, unix.EINVAL: true, unix.ENOSPC: true, unix.EUSERS: true, unix.EMFILE: false, unix.EAGAIN: false, unix.ENOMEM: false,
	} {
		err := notStarted(&os.PathError{Op: "fork/exec", Path: "/relay", Err: errno})
		if errors.Is(err, errRefused) != refused || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := notStarted(exec.ErrNotFound); errors.Is(err, errRefused) {
		t.Error(err)
	}
}

// Root without the right to switch on devices, as in many containers, makes a
// network the way that others do.
func TestGuardWithoutNetAdmin(t *testing.T) {
	needGuard(t)
	if os.Geteuid() != 0 {
		t.Skip("only for root")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with it, as what it gives up is gone for good
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var have [2]unix.CapUserData
		err := errors.Join(unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0), unix.Capget(&header, &have[0]))
		for _, c := range []*uint32{&have[0].Effective, &have[0].Permitted, &have[0].Inheritable} {
			*c &^= 1 << unix.CAP_NET_ADMIN
		}
		if err = errors.Join(err, unix.Capset(&header, &have[0])); err == nil {
			err = tryGuard(t.Context(), nil)
		}
		result <- err
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
