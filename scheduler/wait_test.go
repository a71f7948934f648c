package scheduler

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// routed is the outcome of a request that waits.
type routed struct {
	route Route
	err   error
	after time.Duration
}

// ask has a request for a model wait at a peer.
func (p *fakePeer) ask(name string) <-chan routed {
	began, done := time.Now(), make(chan routed, 1)
	ctx := p.c.t.Context()
	go func() {
		route, err := p.s.Route(ctx, Want{UID: name})
		if err == nil {
			route.Done(nil)
		}
		done <- routed{route, err, time.Since(began)}
	}()
	return done
}

// A replica that is coming up is waited for, whoever leads meanwhile.
func TestWaitingOutlivesTheLeader(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, holder, entrance := order[0], order[1], order[2]
		holder.engine.load = time.Minute
		c.hold("m", holder)
		entrance.register("m", 1<<30)
		answer := entrance.ask("m")
		c.pass(10 * time.Second)
		c.suspect(leader, true) // So that nobody takes over.
		if got := <-answer; got.err != nil || got.route.PeerName != holder.name || got.after < time.Minute {
			t.Errorf("after %s: %q, %v", got.after, got.route.PeerName, got.err)
		}
	})
}

// The time without a leader counts from when there is none.
func TestWaitingForAnElection(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, next, entrance := order[0], order[1], order[2]
		leader.engine.load = time.Minute
		c.hold("m", leader, next)
		c.lends(leader, 4<<30)
		c.lends(next, 3<<30)
		entrance.register("m", 1<<30)
		answer := entrance.ask("m")
		c.pass(40 * time.Second)
		leader.crash() // Its replica goes with it.
		if got := <-answer; got.err != nil || got.route.PeerName != next.name {
			t.Errorf("after %s: %q, %v", got.after, got.route.PeerName, got.err)
		}
	})
}

// One load that fails is not the end of the requests that wait for it.
func TestWaitingOutlivesALoadThatFails(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		a.engine.load, a.engine.fail, a.engine.fails = 20*time.Second, Errorf(EngineFailed, "no"), 1
		c.addModel("m", 1<<30, a)
		if got := <-c.peers[1].ask("m"); got.err != nil || got.after < 40*time.Second || got.after > time.Minute {
			t.Errorf("after %s: %v", got.after, got.err)
		}
	})
}

// What fails again and again is answered long before the model's whole budget.
func TestWaitingEndsWhereLoadsFail(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		a.engine.failWith(Errorf(EngineFailed, "bad magic"))
		c.addModel("m", 1<<30, a)
		got := <-a.ask("m")
		if ReasonOf(got.err) != EngineFailed || got.after > 30*time.Second {
			t.Errorf("after %s: %v", got.after, got.err)
		}
		if text := got.err.Error(); strings.Count(text, `"m"`) != 1 || strings.Count(text, "bad magic") != 1 {
			t.Errorf("it says its subject twice: %s", text)
		}
	})
}

// A peer that stops lets go of what waits at its door.
func TestWaitingEndsWithThePeer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		a.engine.load = time.Minute
		c.addModel("m", 1<<30, a)
		answer := a.ask("m")
		c.pass(time.Second)
		a.stop()
		a.stop = func() {}
		if got := <-answer; ReasonOf(got.err) != Draining || got.after > 2*time.Second {
			t.Errorf("after %s: %v", got.after, got.err)
		}
	})
}

// A replica that is to stop lets nothing new in, and waits for what came in.
func TestAReplicaStopsOnceItIsEmpty(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		uid := c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		var within atomic.Int64
		a.engine.mu.Lock()
		a.engine.stopping = func() {
			if n := within.Load(); n != 0 {
				t.Errorf("stopped under %d requests", n)
			}
		}
		a.engine.mu.Unlock()
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for {
					lease, err := a.s.Serve(t.Context(), Want{UID: uid})
					if err != nil {
						return // It lets nothing new in.
					}
					within.Add(1)
					<-time.After(time.Millisecond)
					within.Add(-1)
					lease.Done(nil)
				}
			})
		}
		c.pass(time.Second)
		if _, err := a.s.Remove(t.Context(), "m", false, false); err != nil {
			t.Fatal(err)
		}
		clients.Wait()
		c.pass(time.Second)
		c.want("engines", a.engine.count(), 0)
		c.want("in flight", len(a.s.InFlight()), 0)
	})
}
