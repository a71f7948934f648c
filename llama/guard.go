package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Guard says how the ports between an engine and its RPC servers are kept from
// other programs of this machine. Whoever reaches an RPC server can run code in it,
// and the coordinator's ports lead to those of other machines.
type Guard struct {
	// OK: nothing but relay and the engine itself can reach the ports.
	OK bool `json:"ok"`
	// Text is one sentence for people.
	Text string `json:"text"`
}

// guardProbe is what ProbeGuard found out, once for this process.
var guardProbe = struct {
	turn  chan struct{} // held by the one who looks or tries
	known bool
	guard Guard
}{turn: make(chan struct{}, 1)}

// errRefused: this system does not let a program have a network of its own, which
// does not change while relay runs.
var errRefused = errors.New("this system does not let a program have a network of its own")

// probeTime is how long the try of a guard may take.
const probeTime = 10 * time.Second

// ProbeGuard says whether ports can be guarded here. Only a try tells, because some
// systems let a program make a network of its own and then take the rights in it
// away: the first call starts a shim in one, which ends at once; later calls
// answer what that found. shim is as of Spec.Shim. Where ctx is over first, or the
// try failed for want of time, memory or files, the answer is no, and the next call
// tries again.
func ProbeGuard(ctx context.Context, shim []string) Guard {
	select {
	case guardProbe.turn <- struct{}{}:
		defer func() { <-guardProbe.turn }()
	case <-ctx.Done():
		return Guard{Text: unguardedText(errors.New("whether they can be guarded was not found out in time"))}
	}
	if guardProbe.known {
		return guardProbe.guard
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err := tryGuard(ctx, shim)
	g := Guard{OK: true, Text: guardedText}
	if err != nil {
		g = Guard{Text: unguardedText(err)}
	}
	guardProbe.guard, guardProbe.known = g, err == nil || errors.Is(err, errRefused)
	return g
}

const guardedText = "the ports between engines lie in a network of their own, which relay alone reaches"

// unguardedText is what it means that ports cannot be guarded.
func unguardedText(err error) string {
	return fmt.Sprintf("local users are trusted: engines listen on ports of this machine, because %v", err)
}

// guardFor decides how the ports of an engine are guarded. The error is ErrSandbox
// where all of the sandbox is required and cannot be had.
func guardFor(ctx context.Context, mode SandboxMode, shim []string, off bool) (Guard, error) {
	switch {
	case off:
		return Guard{Text: unguardedText(errors.New("so it was asked"))}, nil
	case mode == SandboxOff:
		return Guard{Text: unguardedText(errors.New("the sandbox is off"))}, nil
	}
	g := ProbeGuard(ctx, shim)
	if !g.OK && mode == SandboxRequire {
		return g, fmt.Errorf("%w: %s; start without --sandbox require to go without", ErrSandbox, g.Text)
	}
	return g, nil
}

// shimCommand is the command that becomes the shim: as given, or this very program.
func shimCommand(given []string) (*exec.Cmd, error) {
	if len(given) > 0 {
		return exec.Command(given[0], given[1:]...), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%w: relay's own program cannot be found: %w", ErrEngine, err)
	}
	cmd := exec.Command(self, "engine-shim")
	if runtime.GOOS == "linux" {
		// This very program, also when another version lies in its place by now.
		cmd.Path = "/proc/self/exe"
	}
	return cmd, nil
}
