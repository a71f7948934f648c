package scheduler

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/scheduler/ways"
)

// act has the leader of a model do something, asked from a peer.
func (p *fakePeer) act(name string, act Act) {
	p.c.t.Helper()
	if _, err := p.s.Act(p.c.t.Context(), name, act); err != nil {
		p.c.t.Errorf("%s: %v", act, err)
	}
	p.c.pass(time.Millisecond)
}

// set changes how a model is treated.
func (p *fakePeer) set(name string, o SetOptions) {
	p.c.t.Helper()
	if _, _, err := p.s.Set(name, o); err != nil {
		p.c.t.Error(err)
	}
	p.c.pass(time.Millisecond)
}

// always lets time go by and checks something meanwhile, and says how often it was
// not so.
func (c *cluster) always(d time.Duration, what string, is func() bool) {
	c.t.Helper()
	bad := time.Duration(0)
	for range d / (100 * time.Millisecond) {
		c.pass(100 * time.Millisecond)
		if !is() {
			bad += 100 * time.Millisecond
		}
	}
	if bad > 0 {
		c.t.Errorf("%s: not for %s of %s", what, bad, d)
	}
}

// insist asks for a model until it is served.
func (p *fakePeer) insist(name string, most time.Duration) {
	p.c.t.Helper()
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(p.c.t.Context(), most+time.Second)
		route, err := p.s.Route(ctx, Want{UID: name})
		cancel()
		switch {
		case err == nil:
			if on := p.c.named(route.PeerName); on != p { // It gets there.
				if lease, err := on.s.Serve(p.c.t.Context(), Want{UID: uidOf(name)}); err == nil {
					lease.Done(nil)
				}
			}
			route.Done(nil)
			p.c.pass(time.Millisecond)
			return
		case time.Since(began) >= most:
			p.c.t.Errorf("%s is not served after %s: %v", name, most, err)
			return
		}
		p.c.pass(time.Second)
	}
}

func (c *cluster) named(name string) *fakePeer {
	return c.peers[slices.IndexFunc(c.peers, func(p *fakePeer) bool { return p.name == name })]
}

// serves says whether a model has as many ready replicas at least, as a peer
// sees it and where it routes to.
func (p *fakePeer) serves(name string, least int) func() bool {
	return func() bool {
		if len(p.ready(name)) < least {
			return false
		}
		route, err := p.s.Route(p.c.t.Context(), Want{UID: name})
		if err == nil {
			route.Done(nil)
		}
		return err == nil
	}
}

func TestRestarts(t *testing.T) {
	t.Run("two engines fit", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, c *cluster) {
			a, b := c.peers[0], c.peers[1]
			c.addModel("m", 1<<30, a)
			c.pass(10 * time.Second)
			for n := 2; n <= 4; n++ {
				b.act("m", ActRestart)
				c.always(10*time.Second, "it serves", b.serves("m", 1))
				c.want("starts", a.engine.starts(), n)
				c.want("engines", a.engine.count(), 1)
			}
			if most := a.engine.peak("RAM"); most > 2<<30 {
				t.Errorf("%d bytes at a time", most)
			}
		})
	})
	t.Run("while the one before finishes its requests", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, c *cluster) {
			a := c.peers[0]
			c.addModel("other", 1<<30, a) // So that one engine has half of the cores, and two can work.
			c.pass(10 * time.Second)
			c.addModel("m", 1<<30, a)
			c.pass(10 * time.Second)
			before := a.engine.starts()
			route, err := a.s.Route(t.Context(), Want{UID: "m"})
			if err != nil {
				t.Fatal(err)
			}
			a.act("m", ActRestart)
			c.always(5*time.Second, "it serves", a.serves("m", 1))
			a.act("m", ActRestart)
			c.always(10*time.Second, "it serves", a.serves("m", 1))
			c.want("starts while the first one is not gone", a.engine.starts()-before, 1)
			c.want("requests", a.s.InFlight()[uidOf("m")], 1)
			route.Done(nil)
			c.always(10*time.Second, "it serves", a.serves("m", 1))
			c.want("starts then", a.engine.starts()-before, 2)
			c.want("engines", a.engine.count(), 2)
		})
	})
	t.Run("another peer stands in", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, c *cluster) {
			c.addModel("m", 3<<30, c.peers[0], c.peers[1])
			c.pass(10 * time.Second)
			on, other := c.serving("m", c.peers[0], c.peers[1])
			c.peers[2].act("m", ActRestart)
			c.always(20*time.Second, "it serves", c.peers[2].serves("m", 1))
			c.want("starts", []int{on.engine.starts(), other.engine.starts()}, []int{2, 1})
			c.want("engines", on.engine.count()+other.engine.count(), 1)
		})
	})
	t.Run("there is no room", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, c *cluster) {
			a := c.peers[0]
			c.alone(a)
			c.addModel("m", 3<<30, a)
			c.pass(10 * time.Second)
			c.peers[1].act("m", ActRestart)
			c.pass(time.Second)
			if m, _ := c.peers[1].s.Model("m"); len(m.Replicas) != 1 || !strings.Contains(m.Replicas[0].Message, "no room for two") {
				t.Errorf("%+v", m.Replicas)
			}
			c.pass(5 * time.Second)
			c.want("ready", c.peers[1].ready("m"), []string{"a"})
			c.want("starts", a.engine.starts(), 2)
			c.want("most memory", a.engine.peak("RAM"), uint64(3<<30))
		})
	})
	t.Run("the engine does not start any more", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, c *cluster) {
			a, b := c.peers[0], c.peers[1]
			c.addModel("m", 1<<30, a)
			c.pass(10 * time.Second)
			a.engine.failWith(Errorf(EngineFailed, "bad magic"))
			b.act("m", ActRestart)
			c.always(10*time.Second, "it serves", b.serves("m", 1))
			if m, _ := b.s.Model("m"); len(m.Replicas) != 1 || !strings.Contains(m.Replicas[0].Message, "bad magic") {
				t.Errorf("%+v", m.Replicas)
			}
			c.want("starts", a.engine.starts(), 2)
			c.want("turn", b.s.newView().placements[uidOf("m")].Turn, "")
		})
	})
	t.Run("several, one after another", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, c *cluster) {
			c.addModel("m", 3<<30, c.peers...)
			three := 3
			c.peers[0].set("m", SetOptions{Min: &three})
			c.pass(10 * time.Second)
			c.want("ready", len(c.peers[0].ready("m")), 3)
			c.peers[0].act("m", ActRestart)
			c.always(20*time.Second, "two serve", c.peers[1].serves("m", 2))
			for _, p := range c.peers {
				c.want("starts", p.engine.starts(), 2)
			}
		})
	})
	t.Run("its leader dies meanwhile", func(t *testing.T) {
		bubble(t, 4, func(t *testing.T, c *cluster) {
			order := c.byRank(uidOf("m"))
			leader, others := order[0], order[1:]
			c.addModel("m", 1<<30, others...)
			three := 3
			leader.set("m", SetOptions{Min: &three})
			c.pass(10 * time.Second)
			for _, p := range others {
				p.engine.load = 8 * time.Second
			}
			leader.act("m", ActRestart)
			c.pass(12 * time.Second)
			leader.crash()
			c.always(time.Minute, "three serve", others[0].serves("m", 3))
			for _, p := range others {
				c.want("starts on "+p.name, p.engine.starts(), 2)
			}
		})
	})
}

// An engine that is to be replaced is not unloaded for another model at the same
// moment: each would wait for the other.
func TestARestartAndAnEvictionDoNotWaitForEachOther(t *testing.T) {
	for after := range 8 {
		bubble(t, 1, func(t *testing.T, c *cluster) {
			a := c.peers[0]
			c.addModel("old", 2<<30, a)
			c.pass(time.Minute)
			c.hold("new", a)
			a.act("old", ActRestart)
			c.pass(time.Duration(after) * loadTime / 4)
			a.register("new", 3<<30)
			a.insist("new", 2*time.Minute)
			ready := slices.Concat(a.ready("new"), a.ready("old"))
			c.want("ready", ready, []string{"a"})
			if most := a.engine.peak("RAM"); most > a.lend {
				t.Errorf("after %d: %d bytes at a time", after, most)
			}
		})
	}
}

// Where an engine dies while its successor is being started nothing is sent to it any
// more, and its memory is given back: whoever asks waits for the successor.
func TestAnEngineThatDiesWhileItIsReplaced(t *testing.T) {
	for name, fails := range map[string]error{"the next one comes": nil, "the next one fails": Errorf(EngineFailed, "no")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, c *cluster) {
				a, door := c.peers[0], c.peers[1]
				c.alone(a)
				c.addModel("m", 1<<30, a)
				c.pass(10 * time.Second)
				a.engine.mu.Lock()
				a.engine.load, a.engine.fail, a.engine.fails = 20*time.Second, fails, 2
				a.engine.mu.Unlock()
				door.act("m", ActRestart)
				c.pass(5 * time.Second)
				a.engine.killAll()
				c.pass(time.Second)
				c.want("ready", door.ready("m"), []string{})
				c.want("reserved", a.s.ledger.Reserved()[ways.HostID], uint64(1<<30))
				got := <-door.ask("m")
				if got.err != nil || got.after < 10*time.Second || got.after > time.Minute {
					t.Errorf("after %s: %v", got.after, got.err)
				}
				c.pass(time.Minute)
				c.want("engines", a.engine.count(), 1)
				lease, err := a.s.Serve(t.Context(), Want{UID: uidOf("m")})
				if err != nil {
					t.Fatal(err)
				}
				lease.Done(nil)
			})
		})
	}
}
