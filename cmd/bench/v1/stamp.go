//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stampingEngine is the argument by which this program takes the engine's place.
const stampingEngine = "stamping-engine"

// stamped is the field of an event that has the time in its place: relay and nginx
// pass it on as it is, and a number of as many digits leaves the bytes where they are.
var stamped = []byte(`"created":`)

// A stamp is microseconds with stampDigits digits, the first of which is not 0.
const (
	stampDigits = 10
	stampTurn   = 9_000_000_000
	stampFrom   = 1_000_000_000
)

func stampOf(at time.Time) int64 { return stampFrom + at.UnixMicro()%stampTurn }

// sinceStamp is the time from an event's stamp to a moment; false where the event
// has none.
func sinceStamp(event []byte, at time.Time) (time.Duration, bool) {
	_, after, found := bytes.Cut(event, stamped)
	if !found || len(after) < stampDigits {
		return 0, false
	}
	n, err := strconv.ParseInt(string(after[:stampDigits]), 10, 64)
	delay := (stampOf(at) - n + stampTurn) % stampTurn
	return time.Duration(delay) * time.Microsecond, err == nil && delay < time.Minute.Microseconds()
}

// stampEvents runs the stand-in (the program, then its arguments), on a socket
// beside the one that it is to listen on, and passes all connections on: events get
// the time at which they were read from it. It returns the exit code.
func stampEvents(args []string) int {
	at := slices.Index(args, "--host")
	serves := at > 0 && slices.Contains(args, "--alias") && strings.HasSuffix(args[at+1], ".sock")
	line := append([]string{"sim-engine"}, args[1:]...)
	if !serves {
		err := syscall.Exec(args[0], append(args[:1:1], line...), os.Environ())
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	socket := args[at+1]
	inner := strings.TrimSuffix(socket, ".sock") + "i.sock"
	cmd := exec.Command(args[0], append(line, "--host", inner)...) // Of two the last one counts.
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { _ = cmd.Process.Signal(<-signals) }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go passOn(c, inner)
		}
	}()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// passOn carries one connection.
func passOn(c net.Conn, inner string) {
	defer c.Close()
	e, err := net.Dial("unix", inner)
	if err != nil {
		return
	}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			if err != nil {
				e.Close() // The client has gone: so has its request.
				return
			}
			if _, err := e.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	defer e.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := e.Read(buf)
		if err != nil {
			return
		}
		now := strconv.AppendInt(nil, stampOf(time.Now()), 10)
		for rest := buf[:n]; ; {
			i := bytes.Index(rest, stamped)
			if i < 0 || len(rest) < i+len(stamped)+stampDigits {
				break
			}
			rest = rest[i+len(stamped):]
			copy(rest, now)
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}
