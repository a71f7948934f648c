package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// watch NAME relay ARGS… starts a command that goes on until interrupt.
func cmdWatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "relay" {
		ts.Fatalf("usage: watch NAME relay ARGS…")
	}
	p := &peerProcess{log: &logBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(relayPath(ts), args[2:]...)
	p.cmd.Env = environ(ts, args[0])
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	ts.Check(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	s := scriptStage(ts)
	s.watched = p
	s.closed = append(s.closed, killer{p})
}

// killer ends a process that is still there when a script is over.
type killer struct{ p *peerProcess }

func (k killer) Close() error {
	_ = k.p.cmd.Process.Kill()
	<-k.p.done
	return nil
}

// seen PATTERN waits until the command that is watched has printed it; "! seen PATTERN"
// wants that it has not.
func cmdSeen(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptStage(ts)
	if len(args) != 1 || s.watched == nil {
		ts.Fatalf("usage: seen PATTERN, after watch")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	if neg {
		if text := s.watched.log.String(); pattern.MatchString(text) {
			ts.Fatalf("it printed:\n%s", text)
		}
		return
	}
	s.wait(ts, 20*time.Second, "seen "+args[0], func() error {
		if text := s.watched.log.String(); !pattern.MatchString(text) {
			return fmt.Errorf("it printed:\n%s", text)
		}
		return nil
	})
}

// interrupt ends the command that is watched as Ctrl-C does; code checks how it ended.
func cmdInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptStage(ts)
	if neg || len(args) != 0 || s.watched == nil {
		ts.Fatalf("usage: interrupt, after watch")
	}
	ts.Check(s.watched.cmd.Process.Signal(os.Interrupt))
	select {
	case <-s.watched.done:
	case <-time.After(20 * time.Second):
		ts.Fatalf("it does not end")
	}
	ts.Setenv("code", strconv.Itoa(s.watched.cmd.ProcessState.ExitCode()))
}
