//go:build unix

package p2p

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
)

// streamer starts one that joins a mesh, listening there.
func streamer(t *testing.T, at *machine, listen string) (id peer.ID, process *os.Process) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=streamer", listenVar+"="+listen)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	fmt.Fprintln(in, invite(t, at, 1))
	said := bufio.NewScanner(out)
	said.Scan()
	id, err = peer.Decode(said.Text())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "it is alive", seesAlive(at, 2))
	return id, cmd.Process
}

// atRest is how many goroutines there are without those of streams that are only kept for
// the next request.
func atRest(m *machine) int {
	for _, c := range m.web.channels {
		c.client.CloseIdleConnections()
	}
	return runtime.NumGoroutine()
}

// TestRequestsAtAFrozenPeer: whoever leaves requests at a peer that is frozen, those that
// wait for an answer, have half of one, or began only then, is held by none of them; nothing of
// them is left while it is frozen, and nothing at the peer when it goes on. There are more
// of them than have a stream to themselves.
func TestRequestsAtAFrozenPeer(t *testing.T) {
	for _, listen := range []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"} {
		for _, frozen := range []time.Duration{2 * time.Second, 6 * time.Second} { // While it is suspect, and when it is gone.
			t.Run(fmt.Sprintf("%s for %s", strings.Split(listen, "/")[3], frozen), func(t *testing.T) {
				attic := foundOn(t, "attic", listen)
				den, process := streamer(t, attic, listen)
				quiet, err := count(attic, den)
				if err != nil || quiet != 0 {
					t.Fatalf("%d at first: %v", quiet, err)
				}
				atMost := func(n int) func() bool {
					return func() bool { return atRest(attic) <= n }
				}
				before := atRest(attic)
				streaming := startRequests(t, attic, den, "/stream", 200, "x")
				waiting := startRequests(t, attic, den, "/wait", 50, "x")
				eventually(t, 20*time.Second, "all are under way", func() bool {
					n, _ := count(attic, den)
					return streaming.began.Load() == streaming.started && n == int(streaming.started+waiting.started)
				})

				began := time.Now()
				if err := process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				eventually(t, 5*time.Second, "it is quiet", func() bool { return isQuiet(attic, den) })
				t.Logf("quiet after %s", time.Since(began).Round(time.Millisecond))
				eventually(t, 5*time.Second, "it is suspect", func() bool { return !slices.Contains(attic.links.alive(), den) })
				t.Logf("suspect after %s", time.Since(began).Round(time.Millisecond))
				late := startRequests(t, attic, den, "/stream", 20, strings.Repeat("x", 1<<20))
				left := time.Now()
				for _, a := range []*requests{streaming, waiting, late} {
					a.leave()
				}
				eventually(t, 2*time.Second, "all have returned", func() bool {
					return streaming.left.Load() == streaming.started && waiting.left.Load() == waiting.started && late.left.Load() == late.started
				})
				t.Logf("left within %s", time.Since(left).Round(time.Millisecond))
				if frozen > liveness.GoneAfter {
					eventually(t, 10*time.Second, "nothing of them is left", atMost(before))
					t.Logf("nothing is left after %s", time.Since(left).Round(time.Millisecond))
				}
				thaw := time.NewTimer(frozen - time.Since(began))
				<-thaw.C
				if err := process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				back := time.Now()
				eventually(t, 20*time.Second, "it has none of them any more", func() bool {
					n, err := count(attic, den)
					return err == nil && n == 0
				})
				t.Logf("none is left there %s after it went on", time.Since(back).Round(time.Millisecond))
				eventually(t, 10*time.Second, "nothing of them is left here", atMost(before))
				eventually(t, 5*time.Second, "it is not quiet any more", func() bool { return !isQuiet(attic, den) })
				attic.web.crowds.mu.Lock()
				defer attic.web.crowds.mu.Unlock()
				if len(attic.web.crowds.own) != 0 {
					t.Errorf("streams are counted still: %v", attic.web.crowds.own)
				}
			})
		}
	}
}
