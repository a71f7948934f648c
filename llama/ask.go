package llama

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

const (
	// askTime is how long a program may take to say what it is: drivers of
	// several GPUs take seconds to wake up.
	askTime = 30 * time.Second
	// askOutput is how much of its answer is read, in bytes.
	askOutput = 1 << 20
)

// stuckTime is how long a program that was killed may take to be gone. One that
// waits for a device that is broken cannot be killed.
const stuckTime = 2 * time.Second

// stuckError: the program was killed and is not gone.
type stuckError struct {
	gone <-chan struct{} // Closed when it is.
}

func (stuckError) Error() string {
	return "it hangs and cannot be ended: a device or its driver may be broken"
}

// lateError: the program did not answer a question in its time.
type lateError struct {
	question string
	limit    time.Duration
}

func (e lateError) Error() string {
	return fmt.Sprintf("it did not answer %s within %v", e.question, e.limit)
}

// ask runs a program with arguments that make it answer and exit, and returns
// what it wrote. It never waits longer than limit and stuckTime, whatever the
// program does.
func ask(ctx context.Context, limit time.Duration, program string, args ...string) (string, error) {
	// It has nothing to keep: a folder made for it would be left behind if
	// relay were killed meanwhile.
	home := os.DevNull
	if runtime.GOOS == "windows" {
		home = os.TempDir() // the user's own there; not all programs do without
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := &bounded{max: askOutput}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = engineEnv(os.Environ(), home, home)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second // for children that keep the pipe open
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	if err := cmd.Start(); err != nil {
		return "", err
	}
	over := make(chan struct{})
	var err error
	go func() { // It ends with the program, which nobody can hurry where it is stuck.
		defer close(over)
		err = cmd.Wait()
	}()
	select {
	case <-over:
	case <-ctx.Done():
		stuck := time.NewTimer(stuckTime + cmd.WaitDelay)
		defer stuck.Stop()
		select {
		case <-over:
		case <-stuck.C:
			return "", fmt.Errorf("%w: %w", lateError{args[0], limit}, stuckError{over})
		}
	}
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", lateError{args[0], limit}
	case err != nil:
		return out.String(), err
	}
	return out.String(), nil
}

// bounded keeps the first max bytes written to it and drops the rest.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(data []byte) (int, error) {
	if room := b.max - b.Len(); room > 0 {
		b.Buffer.Write(data[:min(room, len(data))])
	}
	return len(data), nil
}
