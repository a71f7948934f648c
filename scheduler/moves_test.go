package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/scheduler/ways"
)

// failOnGPUs has the next starts on a GPU fail; nil no longer.
func (e *fakeEngine) failOnGPUs(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gpuFails = err
}

// A GPU that does not load a model parks that way alone: the CPU serves it.
func TestAGPUThatFailsLeavesTheCPU(t *testing.T) {
	withGPUs(t, false, []Device{card("CUDA0", 8*gib)}, func(t *testing.T, c *cluster, a, b *fakePeer) {
		a.engine.failOnGPUs(Errorf(EngineFailed, "out of memory"))
		c.hold("m", a)
		b.register("m", 1, shaped(2*gib))
		c.pass(15 * time.Second)
		c.want("ready soon", b.ready("m"), []string{"a"})
		began := a.s.started
		c.pass(20 * time.Minute)
		c.want("ready", b.ready("m"), []string{"a"})
		m, err := b.s.Model("m")
		if err != nil {
			t.Fatal(err)
		}
		c.want("way", m.Replicas[0].Way, ways.CPU)
		c.want("engines", a.engine.count(), 1)
		if !slices.ContainsFunc(m.Parked, func(p ParkedState) bool { return p.Way == string(ways.OneGPU) }) {
			t.Errorf("parked after %s: %+v", time.Since(began), m.Parked)
		}
		if tries := a.engine.starts(); tries > 5*3+2 {
			t.Errorf("%d starts", tries)
		}
		a.engine.failOnGPUs(nil)
		if _, err := b.s.Act(t.Context(), "m", ActRetry); err != nil {
			t.Fatal(err)
		}
		c.pass(15 * time.Second)
		m, err = b.s.Model("m")
		if err != nil {
			t.Fatal(err)
		}
		c.want("way after it was tried again", m.Replicas[0].Way, ways.OneGPU)
	})
}

// A model on the CPU moves to a GPU that has become free without a gap, and where it
// does not start there the old engine goes on as if nothing had been.
func TestAModelMovesToItsGPUWithoutAGap(t *testing.T) {
	for name, fails := range map[string]bool{"it starts there": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			withGPUs(t, false, []Device{card("CUDA0", 8*gib)}, func(t *testing.T, c *cluster, a, b *fakePeer) {
				a.engine.others("CUDA0", gib)
				c.pass(15 * time.Second)
				c.hold("m", a)
				b.register("m", 1, shaped(2*gib))
				c.pass(10 * time.Second)
				c.want("ways", fmt.Sprint(a.engine.kinds()), "[cpu]")
				if fails {
					a.engine.failOnGPUs(Errorf(EngineFailed, "out of memory"))
				}
				a.engine.others("CUDA0", 0)
				c.always(time.Minute, "it serves", a.serves("m", 1))
				m, err := b.s.Model("m")
				if err != nil {
					t.Fatal(err)
				}
				want := ways.OneGPU
				if fails {
					want = ways.CPU
				}
				c.want("way", m.Replicas[0].Way, want)
				c.want("engines", a.engine.count(), 1)
			})
		})
	}
}

// A request does not wait for this peer's cores where another replica has its own
// free.
func TestOthersCoresAreNotWaitedFor(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		two := 2
		c.addModel("m", 1<<30, a, b)
		c.addModel("other", 1<<30, a)
		a.set("m", SetOptions{Min: &two})
		c.pass(20 * time.Second)
		c.want("ready", len(a.ready("m")), 2)
		a.s.cores.SetLent(1)
		busy, err := a.s.Serve(t.Context(), Want{UID: uidOf("other")})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		route, err := a.s.Route(t.Context(), Want{UID: "m"})
		if err != nil {
			t.Fatal(err)
		}
		c.want("routed to", route.PeerName, "b")
		c.want("waited", time.Since(began), time.Duration(0))
		route.Done(nil)
		busy.Done(nil)
	})
}

// A model whose cores or memory are in use by others is waited for, longer than one
// that will not come up.
func TestWhoOnlyHasToWaitWaits(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("first", 3<<30, a)
		c.pass(time.Minute)
		busy, err := a.s.Serve(t.Context(), Want{UID: uidOf("first")})
		if err != nil {
			t.Fatal(err)
		}
		c.addModel("second", 3<<30, a)
		answer := a.ask("second")
		c.pass(time.Minute)
		select {
		case got := <-answer:
			t.Fatalf("after %s: %v", got.after, got.err)
		default:
		}
		busy.Done(nil)
		if got := <-answer; got.err != nil || got.after > 2*time.Minute {
			t.Errorf("after %s: %v", got.after, got.err)
		}
	})
}
