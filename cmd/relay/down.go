package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"relay/store"
)

const (
	// downAnswer is how long the peer may take to say that it stops.
	downAnswer = 5 * time.Second
	// downPatience is how long it may take to be gone before it is killed.
	downPatience = 60 * time.Second
)

func newDown() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Hand over, drain, and stop the peer and its engines",
		Long:  "Hand over, drain, and stop the peer of this machine and its engines. Returns when they are\ngone. A peer that hangs is killed after a minute.",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := stateDir()
			if err != nil {
				return err
			}
			if _, held, err := store.Holder(dir); err != nil {
				return err
			} else if !held {
				return errNoPeer
			}
			if err := stopPeer(cmd.Context(), dir); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "stopped")
			return nil
		},
	}
}

// stopPeer asks the peer to stop, tells its process to where it does not take
// the question, and kills it only where it does not end then.
func stopPeer(ctx context.Context, dir string) error {
	told := askDown(ctx) == nil
	if err := ctx.Err(); err != nil {
		return err
	}
	pid, held, err := store.Holder(dir)
	switch {
	case err != nil || !held:
		return err
	case pid == 0 && !told:
		return errors.New("the peer does not answer, and its process cannot be told: end it by hand")
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	told = told || process.Signal(syscall.SIGTERM) == nil
	gone, err := waitGone(ctx, dir, downPatience, func() {
		told = told || askDown(ctx) == nil // Where there are no signals.
	})
	if gone || err != nil {
		return err
	}
	// Its engines die with it: the shim of each sees the pipe close.
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("the peer (process %d) does not end and cannot be killed: %w", pid, err)
	}
	gone, err = waitGone(ctx, dir, downAnswer, func() {})
	if err == nil && !gone {
		return fmt.Errorf("the peer (process %d) was killed, but its state folder is still in use", pid)
	}
	return err
}

func askDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downAnswer)
	defer cancel()
	_, err := ask[struct{}](ctx, http.MethodPost, "/v0/down", nil)
	return err
}

// waitGone waits until no process holds the state folder, and does something
// every now and then meanwhile.
func waitGone(ctx context.Context, dir string, patience time.Duration, meanwhile func()) (bool, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, held, err := store.Holder(dir)
		if err != nil || !held {
			return !held, err
		}
		select {
		case <-tick.C:
			meanwhile()
		case <-deadline.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
