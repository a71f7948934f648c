package p2p

import (
	"sync/atomic"
	"testing"
	"time"

	"relay/p2p/liveness"
)

// TestRequestsOverACutCable: of a cable that is cut between two, while a third one hears
// both. The one that asks is told within a second, and holds nothing of what it leaves; the
// one that answers has no word of that, and lets go all the same.
func TestRequestsOverACutCable(t *testing.T) {
	var worst, held time.Duration
	for seed := range uint64(5) {
		simulate(t, 3, seed, func(t *testing.T, w *world) {
			var active atomic.Int64
			door, den := w.machines[0], w.machines[1]
			den.stop()
			den.serves = streams(&active)
			w.start(1)
			w.wait(20*time.Second, "all alive", w.settled)
			asked := startRequests(t, door, den.Self(), "/stream", ownStreams+20, "x")
			waiting := startRequests(t, door, den.Self(), "/wait", 5, "x")
			all := asked.started + waiting.started
			w.wait(10*time.Second, "all are under way", func() bool { return active.Load() == all && asked.began.Load() == asked.started })
			pass(5*time.Second + w.jitter(time.Second))
			if isQuiet(door, den.Self()) {
				t.Error("it is quiet while its answers come")
			}

			w.cut(func(a, b int) bool { return a == 0 && b == 1 })
			worst = max(worst, w.wait(time.Second, "it is quiet", func() bool { return isQuiet(door, den.Self()) }))
			for _, a := range []*requests{asked, waiting} {
				a.leave()
			}
			w.wait(time.Second, "all have returned", func() bool { return asked.left.Load()+waiting.left.Load() == all })
			held = max(held, w.wait(time.Minute, "none goes on there", func() bool { return active.Load() == 0 }))
			if look(door, den) == liveness.Gone {
				t.Error("it is gone although the third one hears it")
			}
			w.cut(func(int, int) bool { return false })
			w.wait(30*time.Second, "all alive again", w.settled)
			w.wait(5*time.Second, "it is not quiet any more", func() bool { return !isQuiet(door, den.Self()) })
			if n, err := count(door, den.Self()); err != nil || n != 0 {
				t.Errorf("%d at the end: %v", n, err)
			}
		})
	}
	t.Logf("quiet %s after the cut at most; what was left goes on there for %s at most", worst, held)
}
