package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"relay/store"
)

// holdLock is a peer that has its state folder and no control socket yet.
func holdLock(dir string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	lock, err := store.LockDir(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	<-ctx.Done()
	if err := lock.Release(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// A peer that does not take the question is told to end, and not killed; and
// nothing happens to it where whoever asks has changed his mind.
func TestDownOfAPeerThatDoesNotAnswer(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals here; `relay down` goes on asking")
	}
	dir := filepath.Join(t.TempDir(), "state")
	t.Setenv("RELAY_STATE_DIR", dir)
	cmd := exec.Command(os.Args[0], "hold-lock", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	defer func() { _ = cmd.Process.Kill() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line)
	}
	go func() { ended <- cmd.Wait() }()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stopPeer(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, held, err := store.Holder(dir); !held || err != nil {
		t.Errorf("it was ended all the same: %v", err)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := stopPeer(ctx, dir); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it did not end by itself: %v", err)
	}
}
