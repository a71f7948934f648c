//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newLab(t *testing.T) *Lab {
	t.Helper()
	if err := Needs(); err != nil {
		t.Skip(err)
	}
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// echo answers every datagram on a machine.
func echo(t *testing.T, l *Lab, name string) {
	t.Helper()
	var c *net.UDPConn
	must(t, inside(l.machines[name].namespace, func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4zero, Port: 7})
		return err
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [64]byte
		for {
			n, from, err := c.ReadFromUDP(b[:])
			if err != nil {
				return
			}
			_, _ = c.WriteToUDP(b[:n], from)
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
}

// caller is a socket on one machine to the echo of another.
func caller(t *testing.T, l *Lab, from, to string) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	must(t, inside(l.machines[from].namespace, func() (err error) {
		c, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: l.Addr(to).AsSlice(), Port: 7})
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var lastCall int

// call sends one datagram and waits for it to come back.
func call(c *net.UDPConn, within time.Duration) (time.Duration, bool) {
	lastCall++
	began, text := time.Now(), fmt.Sprint("call ", lastCall)
	_ = c.SetDeadline(began.Add(within))
	if _, err := c.Write([]byte(text)); err != nil {
		return 0, false
	}
	var b [64]byte
	for {
		n, err := c.Read(b[:])
		if err != nil {
			return 0, false
		}
		if string(b[:n]) == text { // Else one that comes late.
			return time.Since(began), true
		}
	}
}

const short = 300 * time.Millisecond

// heard wants an answer to come, or none. Whoever waits for one asks again: an
// interface takes a moment to come up, and what is sent meanwhile is lost.
func heard(t *testing.T, what string, c *net.UDPConn, want bool) {
	t.Helper()
	_, ok := call(c, short)
	for began := time.Now(); want && !ok && time.Since(began) < 10*time.Second; {
		_, ok = call(c, short)
	}
	if ok != want {
		t.Errorf("%s: an answer came: %t", what, ok)
	}
}

func TestNetCutsAndCables(t *testing.T) {
	l := newLab(t)
	must(t, l.Add("a"), l.Add("b"), l.Add("c"))
	echo(t, l, "a")
	echo(t, l, "b")
	ab, ba, ca := caller(t, l, "a", "b"), caller(t, l, "b", "a"), caller(t, l, "c", "a")
	heard(t, "at first", ab, true)
	heard(t, "at first", ca, true)

	must(t, l.Cut([]string{"a"}, []string{"b"}))
	heard(t, "cut", ab, false)
	heard(t, "cut, the other way", ba, false)
	heard(t, "a third", ca, true)
	must(t, l.Mend([]string{"a"}, []string{"b"}))
	heard(t, "mended", ab, true)

	must(t, l.Pull("b"))
	heard(t, "pulled", ab, false)
	must(t, l.Plug("b"))
	heard(t, "plugged", ab, true)
	heard(t, "plugged", ba, true)

	// One way only: what a says arrives, the answer does not.
	must(t, l.Drop("b", "a"))
	heard(t, "one way", ab, false)
	counted, err := exec.Command("ip", "netns", "exec", l.machines["b"].namespace, "cat", "/proc/net/snmp").Output()
	must(t, err)
	heard(t, "one way", ab, false)
	more, err := exec.Command("ip", "netns", "exec", l.machines["b"].namespace, "cat", "/proc/net/snmp").Output()
	must(t, err)
	if received(t, more) <= received(t, counted) {
		t.Error("the direction that was not dropped is cut too")
	}
}

// received is how many datagrams a machine took in.
func received(t *testing.T, snmp []byte) (n int) {
	t.Helper()
	for line := range strings.Lines(string(snmp)) {
		if _, err := fmt.Sscanf(line, "Udp: %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no count of datagrams: %s", snmp)
	return 0
}

func TestNetSlowCable(t *testing.T) {
	l := newLab(t)
	const delay = 50 * time.Millisecond
	must(t, l.Add("a"), l.AddSlow("slow", Slow{Delay: delay}), l.AddSlow("lossy", Slow{Loss: 0.5, Seed: 1}))
	echo(t, l, "a")
	slow := caller(t, l, "slow", "a")
	if took, ok := call(slow, 5*time.Second); !ok || took < 2*delay {
		t.Errorf("an answer over a cable of %s each way: %t after %s", delay, ok, took)
	}
	lossy := caller(t, l, "lossy", "a")
	came := 0
	const calls = 200
	for range calls {
		if _, ok := call(lossy, 20*time.Millisecond); ok {
			came++
		}
	}
	// A quarter comes back in the mean; a busy machine loses some more.
	if came == 0 || came > calls/2 {
		t.Errorf("%d of %d answers came where each way loses half", came, calls)
	}
}

func TestNetRouter(t *testing.T) {
	l := newLab(t)
	must(t, l.Add("seed"), l.AddRouter("router"), l.AddBehind("router", "x"), l.AddBehind("router", "y"))
	echo(t, l, "seed")
	echo(t, l, "y")
	heard(t, "out through the router", caller(t, l, "x", "seed"), true)
	heard(t, "behind the router", caller(t, l, "x", "y"), true)
	// From the switch nothing comes in, not even by a route.
	must(t, ip(l.machines["seed"].namespace, fmt.Sprintf("route add %s0/24 via %s", l.machines["router"].home, l.Addr("router"))))
	heard(t, "in through the router", caller(t, l, "seed", "y"), false)
}

func TestNetSealed(t *testing.T) {
	l := newLab(t)
	must(t, l.Add("a"))
	a := l.machines["a"].namespace
	must(t, sealed(a))
	must(t, ip(a, "route add default via "+subnet+"200"))
	if err := sealed(a); err == nil || !strings.Contains(err.Error(), "default route") {
		t.Errorf("a default route is let pass: %v", err)
	}
	must(t, ip(a, "route del default", "route add 192.0.2.0/24 via "+subnet+"200"))
	if err := sealed(a); err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("a way out is let pass: %v", err)
	}
}

// What a dead process left goes at the next start, with what runs in it; that
// of a living one stays.
func TestNetSweep(t *testing.T) {
	l := newLab(t)
	dead := exec.Command("true")
	must(t, dead.Run())
	name := fmt.Sprintf("%s%d-1-x", prefix, dead.Process.Pid)
	must(t, addNamespace(name))
	left := exec.Command("ip", "netns", "exec", name, "sleep", "600")
	must(t, left.Start())
	comm := fmt.Sprintf("/proc/%d/comm", left.Process.Pid)
	tick, late := time.NewTicker(5*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for {
		// `ip` becomes that once it is in the namespace.
		if is, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(is)) == "sleep" {
			break
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it does not run in the namespace")
		}
	}
	must(t, Sweep())
	var exit *exec.ExitError
	if err := left.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("what ran there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(mounts, name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace of a dead process: %v", err)
	}
	if _, err := os.Stat(filepath.Join(mounts, l.hub())); err != nil {
		t.Errorf("the namespace of a living process: %v", err)
	}
}
