//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	// readyIn bounds how long a program that runs beside may take to be ready.
	readyIn = time.Minute
	// farewell is how long it may take to end.
	farewell = 20 * time.Second
)

// beside starts a program that runs until stop is called, and waits until it has
// printed a line that matches; found is the first group, or all of the match.
func beside(ctx context.Context, cmd *exec.Cmd, ready string) (found string, stop func(), err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	matched, ended := make(chan string, 1), make(chan struct{})
	var printed []string // Read by nobody else before ended.
	go func() {
		defer close(ended)
		re, waiting := regexp.MustCompile(ready), true
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m := re.FindStringSubmatch(lines.Text())
			switch {
			case !waiting:
			case m != nil:
				waiting = false
				matched <- m[len(m)-1]
			default:
				printed = append(printed, lines.Text())
			}
		}
		_ = cmd.Wait() // It is told to end by a signal, and says so.
	}()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(farewell):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	select {
	case found := <-matched:
		return found, stop, nil
	case <-ended:
		return "", nil, fmt.Errorf("%s ended: %s", strings.Join(cmd.Args, " "), strings.Join(printed, "; "))
	case <-time.After(readyIn):
		err = fmt.Errorf("%s is not ready within %s", strings.Join(cmd.Args, " "), readyIn)
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop()
	return "", nil, err
}
