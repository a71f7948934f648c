package scheduler

import (
	"strings"
	"testing"
	"time"
)

// parkedOn lists where a model is parked, as p sees it.
func (p *fakePeer) parkedOn(name string) (list []string) {
	m, _ := p.s.Model(name)
	for _, k := range m.Parked {
		for _, o := range p.c.peers {
			if o.id.String() == k.Peer {
				list = append(list, o.name)
			}
		}
	}
	return list
}

// Five failures in a row park a model on a peer and nowhere else; requests are
// answered at once then. A person, another definition and another build have it
// tried again; another leader does not.
func TestParking(t *testing.T) {
	for name, mend := range map[string]func(c *cluster, on, other *fakePeer){
		"retry": func(c *cluster, on, other *fakePeer) { other.act("m", ActRetry) },
		"another definition": func(c *cluster, on, other *fakePeer) {
			m := other.s.newView().model[uidOf("m")].Model
			m.Context = 2048
			if err := other.PutShared(KindModel, uidOf("m"), m); err != nil {
				c.t.Fatal(err)
			}
		},
		"another build": func(c *cluster, on, other *fakePeer) {
			on.engine.mu.Lock()
			on.engine.build = "feedbee"
			on.engine.mu.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, c *cluster) {
				order := c.byRank(uidOf("m"))
				leader, on, other := order[0], order[1], order[2]
				c.alone(on)
				on.engine.failWith(Errorf(EngineFailed, "bad magic"))
				c.addModel("m", 1<<30, on)
				c.pass(5 * time.Minute)
				c.want("starts", on.engine.starts(), 5)
				c.want("parked on", other.parkedOn("m"), []string{on.name})
				if got := <-other.ask("m"); ReasonOf(got.err) != EngineFailed || got.after > time.Millisecond || !strings.Contains(got.err.Error(), "bad magic") {
					t.Errorf("after %s: %v", got.after, got.err)
				}
				leader.crash()
				c.pass(10 * time.Minute)
				c.want("starts under the new leader", on.engine.starts(), 5)
				c.want("parked on", other.parkedOn("m"), []string{on.name})
				on.engine.failWith(nil)
				mend(c, on, other)
				c.pass(20 * time.Second)
				c.want("ready", other.ready("m"), []string{on.name})
				c.want("starts then", on.engine.starts(), 6)
				c.want("parked on", other.parkedOn("m"), []string(nil))
			})
		})
	}
}

// TestServedInBetween: an engine that some requests end and that serves others is not
// parked; one that just ends is.
func TestServedInBetween(t *testing.T) {
	for name, serves := range map[string]bool{"serves": true, "serves nobody": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, c *cluster) {
				on, other := c.peers[0], c.peers[1]
				c.alone(on)
				on.engine.life = 10 * time.Second
				c.addModel("m", 1<<30, on)
				for range 10 {
					c.pass(20 * time.Second)
					for range 60 { // It may be between two lives.
						if !serves || len(on.ready("m")) > 0 {
							break
						}
						c.pass(time.Second)
					}
					if serves {
						if got := <-on.ask("m"); got.err != nil {
							t.Fatal(got.err)
						}
					}
				}
				var parked []string
				if !serves {
					parked = []string{on.name}
				}
				c.want("parked on", other.parkedOn("m"), parked)
			})
		})
	}
}

// What is parked on one peer goes on on another.
func TestParkedOnOnePeerOnly(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.addModel("m", 1<<30, a, b)
		c.pass(10 * time.Second)
		two := 2
		on, other := c.serving("m", a, b)
		other.engine.failWith(Errorf(EngineFailed, "bad magic"))
		a.set("m", SetOptions{Min: &two})
		c.pass(10 * time.Minute)
		c.want("parked on", a.parkedOn("m"), []string{other.name})
		c.want("ready", a.ready("m"), []string{on.name})
		a.insist("m", 0)
	})
}

// A refusal is no failure: it is tried again less and less often, and never parked.
func TestRefusalsDoNotPark(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.alone(a)
		a.engine.failWith(Errorf(NoCapacity, "cudaMalloc failed"))
		c.addModel("m", 1<<30, a)
		c.pass(20 * time.Minute)
		c.want("parked on", b.parkedOn("m"), []string(nil))
		if n := a.engine.starts(); n < 6 || n > 20 {
			t.Errorf("%d starts in twenty minutes", n)
		}
		a.engine.failWith(nil)
		c.pass(7 * time.Minute)
		c.want("ready", b.ready("m"), []string{"a"})
	})
}

// A peer whose answer does not arrive is not ordered the same again and again.
func TestOneOrderForEachFailure(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, on := order[0], order[1]
		c.alone(on)
		on.engine.failWith(Errorf(EngineFailed, "no"))
		c.addModel("m", 1<<30, on)
		c.pass(loadTime + 100*time.Millisecond)
		c.silence(on, true)
		before := leader.s.newView().placements[uidOf("m")].version[2]
		c.pass(30 * time.Second)
		if n := leader.s.newView().placements[uidOf("m")].version[2] - before; n > 3 {
			t.Errorf("%d orders in half a minute", n)
		}
	})
}
