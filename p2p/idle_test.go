package p2p

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// idle is how many bytes one of n peers sends in a second in which nothing
// happens: what is in the packets of QUIC, acknowledgements included. Six probes
// to each neighbour and three heartbeats of gossip fall into the time that is
// measured; the comparison that a peer begins every ten seconds does not.
func idle(t *testing.T, n int) (rate float64) {
	began := time.Now()
	simulate(t, n, 1, func(t *testing.T, w *world) {
		settled := w.wait(30*time.Second, "all alive", w.settled)
		pass(time.Second)
		before, packets := w.sent()
		const during = 3
		pass(during * time.Second)
		after, more := w.sent()
		rate = float64(after-before) / during / float64(n)
		links := 0
		for _, m := range w.machines {
			links += len(m.Node.host.Network().Peers())
		}
		t.Logf("%d peers, %.1f links each, all alive after %s: %.0f B/s in %.0f packets/s per peer",
			n, float64(links)/float64(n), settled, rate, float64(more-packets)/during/float64(n))
	})
	t.Logf("that took %s", time.Since(began).Round(time.Second))
	return rate
}

// TestIdleTrafficIsFlat: twice the peers, and each of them still sends no more
// than twice as much, the half of whom it is not linked to included.
func TestIdleTrafficIsFlat(t *testing.T) {
	few, many := idle(t, 25), idle(t, 50)
	if many > 2*few {
		t.Errorf("a peer of 25 sends %.0f B/s, one of 50 %.0f", few, many)
	}
}

// TestIdle200 prints the figure for 200 whole nodes; `make bench-mesh` sets the
// variable that asks for it.
func TestIdle200(t *testing.T) {
	if os.Getenv("RELAY_BENCH_IDLE") == "" {
		t.Skip("a benchmark: RELAY_BENCH_IDLE=1 runs it, for some minutes")
	}
	fmt.Printf("BENCH name=idle_bytes_s_200_sim value=%.0f unit=B/s\n", idle(t, 200))
}
