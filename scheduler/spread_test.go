package scheduler

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/scheduler/ways"
)

// spreadOver runs a test of peers of which each lends 3 GiB, with a model of 4 GiB that
// the first two hold.
func spreadOver(t *testing.T, peers int, f func(t *testing.T, c *cluster, uid string)) {
	bubble(t, peers, func(t *testing.T, c *cluster) {
		for _, p := range c.peers {
			p.crash()
			p.lend = 3 * gib
			p.open()
			p.start()
		}
		c.hold("m", c.peers[0], c.peers[1])
		uid := c.peers[0].register("m", 4*gib, layered(4*gib))
		c.pass(settledAfter)
		f(t, c, uid)
	})
}

// layered gives a model sixteen layers of a sixteenth of so many bytes each.
func layered(bytes uint64) func(*Model) {
	return func(m *Model) {
		m.Shape = &ways.Shape{Input: 1 << 20, Output: 1 << 20, Layers: []ways.Layers{{Count: 16, Weights: bytes / 16, KV: 1 << 20}}, Compute: 16 << 20, Host: 64 << 20, Largest: bytes / 64}
		m.Need = m.Shape.CPU()
	}
}

// group is the group that serves a model, by the names of its peers, the coordinator
// first; nil where none is ready.
func (p *fakePeer) group(name string) (names []string) {
	p.c.t.Helper()
	m, err := p.s.Model(name)
	if err != nil {
		p.c.t.Fatal(err)
	}
	called := map[string]string{}
	for _, o := range p.c.peers {
		called[o.id.String()] = o.name
	}
	for _, r := range m.Replicas {
		if r.State != StateReady || len(r.Shares) == 0 {
			continue
		}
		names = append(names, called[r.Peer])
		for _, s := range r.Shares {
			if s.State != StateReady {
				return nil
			}
			names = append(names, called[s.Peer])
		}
	}
	return names
}

// working are the rpc-servers that run on a peer.
func (e *fakeEngine) working() []*fakeShare {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.sharing))
}

// shares are how many they are.
func (e *fakeEngine) shares() int { return len(e.working()) }

// What nobody holds whole runs on as few peers as hold it together; whoever is lost is
// replaced by who is left, and what comes back is used again.
func TestAModelOnSeveralPeers(t *testing.T) {
	spreadOver(t, 3, func(t *testing.T, c *cluster, uid string) {
		c.pass(10 * time.Second)
		for _, lost := range []string{"worker", "coordinator", "leader"} {
			v := c.peers[0].s.newView()
			leader := v.placements[uid].leader
			var before []string
			for _, p := range c.peers {
				before = p.group("m")
				if len(before) != 2 {
					t.Fatalf("before the %s is lost %s sees the group %v: %s", lost, p.name, before, p.told("m"))
				}
			}
			gone := c.named(before[0])
			switch lost {
			case "worker":
				gone = c.named(before[1])
			case "leader":
				gone = c.peers[slices.IndexFunc(c.peers, func(p *fakePeer) bool { return p.id.String() == leader })]
			}
			other := c.peers[slices.IndexFunc(c.peers, func(p *fakePeer) bool { return p != gone })]
			gone.crash()
			c.pass(15 * time.Second)
			if after := other.group("m"); len(after) != 2 || slices.Contains(after, gone.name) {
				t.Fatalf("without the %s (%s of %v) the group is %v: %s", lost, gone.name, before, after, other.told("m"))
			}
			gone.open()
			gone.start()
			c.pass(settledAfter)
			for _, p := range c.peers {
				if p.engine.count()+p.engine.shares() > 1 {
					t.Errorf("%s has %d engines and %d rpc-servers", p.name, p.engine.count(), p.engine.shares())
				}
			}
		}
	})
}

// A machine that can hold the model whole takes it from the group as soon as it is there;
// the group serves until then.
func TestWholeIsBetterThanTogether(t *testing.T) {
	spreadOver(t, 3, func(t *testing.T, c *cluster, uid string) {
		c.pass(10 * time.Second)
		if got := c.peers[0].group("m"); len(got) != 2 {
			t.Fatalf("the group is %v: %s", got, c.peers[0].told("m"))
		}
		big := c.peers[2]
		big.crash()
		big.lend = 8 * gib
		big.open()
		big.start()
		c.pass(settledAfter + 20*time.Second)
		c.want("ready", c.peers[0].ready("m"), []string{"c"})
		c.want("group", len(c.peers[0].group("m")), 0)
		for _, p := range c.peers[:2] {
			c.want("engines of "+p.name, p.engine.count()+p.engine.shares(), 0)
			c.want("reserved on "+p.name, p.s.ledger.Names(), []string(nil))
		}
	})
}

// Who asks for it has a model on several peers that one could hold.
func TestSpreadByForce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.hold("m", c.peers[0], c.peers[1])
		c.peers[0].register("m", 2*gib, layered(2*gib))
		c.pass(settledAfter)
		if got := c.peers[0].ready("m"); len(got) != 1 || c.peers[0].group("m") != nil {
			t.Fatalf("ready on %v, together on %v", got, c.peers[0].group("m"))
		}
		if _, err := c.peers[2].s.Act(t.Context(), "m", ActSpread); err != nil {
			t.Fatal(err)
		}
		c.pass(20 * time.Second)
		if got := c.peers[1].group("m"); len(got) != 2 {
			t.Fatalf("the group is %v: %s", got, c.peers[1].told("m"))
		}
		if _, err := c.peers[2].s.Act(t.Context(), "m", ActLoad); err != nil {
			t.Fatal(err)
		}
		c.pass(20 * time.Second)
		if got := c.peers[0].ready("m"); len(got) != 1 || c.peers[0].group("m") != nil {
			t.Fatalf("ready on %v, together on %v", got, c.peers[0].group("m"))
		}
	})
}

// A worker that fails is left alone for a while, and one that is too few for it has the
// model wait with the reason.
func TestAWorkerThatFails(t *testing.T) {
	spreadOver(t, 3, func(t *testing.T, c *cluster, uid string) {
		c.pass(10 * time.Second)
		before := c.peers[0].group("m")
		if len(before) != 2 {
			t.Fatalf("the group is %v: %s", before, c.peers[0].told("m"))
		}
		bad := c.named(before[1])
		bad.engine.mu.Lock()
		bad.engine.shareFails = errors.New("no such device")
		bad.engine.mu.Unlock()
		bad.engine.killAll()
		c.pass(20 * time.Second)
		after := c.peers[0].group("m")
		if len(after) != 2 || after[1] == bad.name { // It may coordinate: that is another program.
			t.Fatalf("the group is %v after %v: %s", after, before, c.peers[0].told("m"))
		}
		holder := c.peers[0]
		if bad == holder {
			holder = c.peers[1]
		}
		for _, p := range c.peers {
			if p != bad && p != holder {
				p.crash()
			}
		}
		c.pass(20 * time.Second)
		switch text := holder.told("m"); {
		case bad == c.peers[0] || bad == c.peers[1]:
			if got := holder.group("m"); !slices.Equal(got, []string{bad.name, holder.name}) {
				t.Errorf("the group is %v, %s failed as a worker: %s", got, bad.name, text)
			}
		case !strings.Contains(text, "no such device"):
			t.Errorf("told: %s", text)
		}
	})
}
