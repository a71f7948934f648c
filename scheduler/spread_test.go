package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/scheduler/leadership"
	"relay/scheduler/ways"
)

// spreadOver runs a test of peers of which each lends 3 GiB, with a model of 4 GiB that
// the first two hold.
func spreadOver(t *testing.T, peers int, f func(t *testing.T, c *cluster, uid string)) {
	bubble(t, peers, func(t *testing.T, c *cluster) {
		for _, p := range c.peers {
			p.crash()
		}
		for _, p := range c.peers {
			p.lend = 3 * gib
			p.open()
		}
		for _, p := range c.peers {
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

// formed waits for the group of two that serves the model.
func (c *cluster) formed() []string {
	c.t.Helper()
	c.pass(10 * time.Second)
	names := c.peers[0].group("m")
	if len(names) != 2 {
		c.t.Fatalf("the group is %v: %s", names, c.peers[0].told("m"))
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
		before := c.formed()
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

// A worker that its coordinator cannot reach is left alone for longer and longer, and the
// group is formed with another one.
func TestAWorkerThatCannotBeReached(t *testing.T) {
	spreadOver(t, 4, func(t *testing.T, c *cluster, uid string) {
		before := c.formed()
		c.mu.Lock()
		c.unreached = map[int]bool{c.named(before[1]).index: true}
		c.mu.Unlock()
		started := 0
		for _, p := range c.peers {
			started -= p.engine.starts()
		}
		if _, err := c.peers[0].s.Act(t.Context(), "m", ActRestart); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		after := c.peers[0].group("m")
		if len(after) != 2 || after[1] == before[1] {
			t.Errorf("the group is %v after %v: %s", after, before, c.peers[0].told("m"))
		}
		for _, p := range c.peers {
			started += p.engine.starts()
		}
		if started > 4 {
			t.Errorf("%d engines were started in a minute", started)
		}
	})
}

// What runs on a peer that is to be empty finishes its requests, and then the peer is
// empty, also where nobody else can take its part.
func TestAGroupIsDrained(t *testing.T) {
	for _, role := range []int{0, 1} {
		for _, peers := range []int{2, 3} {
			t.Run(fmt.Sprintf("%d of %d", role, peers), func(t *testing.T) {
				spreadOver(t, peers, func(t *testing.T, c *cluster, uid string) {
					before := c.formed()
					coordinator, goes := c.named(before[0]), c.named(before[role])
					route, err := coordinator.s.Route(t.Context(), Want{UID: "m"})
					if err != nil {
						t.Fatal(err)
					}
					process := coordinator.engine.processes()[0]
					c.say(goes, said{draining: true})
					c.pass(20 * time.Second)
					if err := process.Err(); err != nil {
						t.Errorf("the engine ended (%v) with a request that runs", err)
					}
					route.Done(nil)
					c.pass(3 * time.Minute)
					if n := goes.engine.count() + goes.engine.shares(); n > 0 {
						t.Errorf("%d processes on the peer that is to be empty: %s", n, coordinator.told("m"))
					}
					after := coordinator.group("m")
					if peers == 2 && after != nil || peers == 3 && (len(after) != 2 || slices.Contains(after, goes.name)) {
						t.Errorf("without %s the group is %v: %s", goes.name, after, coordinator.told("m"))
					}
				})
			})
		}
	}
}

// What other peers say of a model counts only where they have layers of it.
func TestWhoHasNoLayersSaysNothing(t *testing.T) {
	spreadOver(t, 4, func(t *testing.T, c *cluster, uid string) {
		before := c.formed()
		group := c.peers[0].s.newView().placements[uid].Ways[0].Group.ID
		for _, p := range c.peers {
			if slices.Contains(before, p.name) {
				continue
			}
			for _, state := range []Share{{State: StateRefused, Reason: string(Unloaded), Message: "ha", Group: group}, {State: StateFailed, Reason: string(EngineFailed), Message: "ha", Group: group}} {
				if err := p.PutOwned(KindShare, pairID(p.id.String(), uid), state); err != nil {
					t.Fatal(err)
				}
				c.pass(5 * time.Second)
			}
		}
		if after := c.peers[0].group("m"); !slices.Equal(after, before) {
			t.Errorf("the group is %v after %v: %s", after, before, c.peers[0].told("m"))
		}
	})
}

// Placements that no leader writes are refused, and none brings a peer down.
func TestPlacementsOfNoGroup(t *testing.T) {
	spreadOver(t, 3, func(t *testing.T, c *cluster, uid string) {
		c.pass(10 * time.Second)
		var ids []string
		for _, p := range c.peers {
			ids = append(ids, p.id.String())
		}
		ram := []ways.Part{{Device: ways.HostID, Layers: 4, Bytes: gib}}
		group := func(peers ...string) *ways.Group {
			g := &ways.Group{ID: "x"}
			for _, id := range peers {
				g.Shares = append(g.Shares, ways.Share{Peer: id, From: 1, Parts: ram})
			}
			return g
		}
		for name, p := range map[string]Placement{
			"a peer twice":             {Peers: []string{ids[0], ids[0]}, Ways: []ways.Way{{Kind: ways.CPU, Parts: ram}, {Kind: ways.Shards, Parts: ram, Group: group(ids[1])}}},
			"a kind without its group": {Peers: []string{ids[0]}, Ways: []ways.Way{{Kind: ways.Shards, Parts: ram}}},
			"a group of another kind":  {Peers: []string{ids[0]}, Ways: []ways.Way{{Kind: ways.CPU, Parts: ram, Group: group(ids[1])}}},
			"a coordinator that works": {Peers: []string{ids[0]}, Ways: []ways.Way{{Kind: ways.Shards, Parts: ram, Group: group(ids[0])}}},
			"a worker twice":           {Peers: []string{ids[0]}, Ways: []ways.Way{{Kind: ways.Shards, Parts: ram, Group: group(ids[1], ids[1])}}},
			"no parts":                 {Peers: []string{ids[0]}, Ways: []ways.Way{{Kind: ways.Shards, Group: &ways.Group{ID: "x"}}}},
		} {
			if err := p.check(); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		absurd := Placement{Peers: []string{ids[0]}, Ways: []ways.Way{{Kind: ways.Shards, Group: &ways.Group{ID: "x", Shares: []ways.Share{{Peer: ids[1], From: 1 << 40}, {Peer: ids[2]}}}}}}
		if err := absurd.check(); err != nil {
			t.Fatal(err)
		}
		_, version := c.peers[2].placement(uid)
		if err := c.peers[2].PutPlacement(uid, record.Version{version[0] + 1, leadership.Rank(uid, ids[2]), 0}, absurd); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		if after := c.peers[0].group("m"); len(after) != 2 {
			t.Errorf("after what cannot be the group is %v: %s", after, c.peers[0].told("m"))
		}
	})
}

// Layers are given back where the one that coordinated is gone for long.
func TestNobodyIsWaitedForForever(t *testing.T) {
	spreadOver(t, 2, func(t *testing.T, c *cluster, uid string) {
		worker := c.peers[1] // It can lead nothing.
		c.say(worker, said{trust: membership.TrustShardOnly})
		c.pass(20 * time.Second)
		c.want("group", c.peers[0].group("m"), []string{"a", "b"})
		c.peers[0].crash()
		c.pass(5 * time.Minute)
		if n := worker.engine.count() + worker.engine.shares(); n > 0 || len(worker.s.ledger.Names()) > 0 {
			t.Errorf("%d processes, %v reserved: %s", n, worker.s.ledger.Names(), worker.told("m"))
		}
	})
}

// An engine that has lost a worker is replaced although it does not notice: it would at
// the next request.
func TestAnIdleEngineThatLostAWorker(t *testing.T) {
	spreadOver(t, 3, func(t *testing.T, c *cluster, uid string) {
		for _, p := range c.peers {
			p.engine.mu.Lock()
			p.engine.patient = true
			p.engine.mu.Unlock()
		}
		before := c.formed()
		old := c.named(before[0]).engine.processes()[0]
		c.named(before[1]).engine.working()[0].end(errors.New("signal: killed"))
		c.pass(10 * time.Second)
		select {
		case <-old.done:
		default:
			t.Error("the engine that lost its worker runs")
		}
		if after := c.peers[0].group("m"); len(after) != 2 {
			t.Errorf("the group is %v after %v: %s", after, before, c.peers[0].told("m"))
		}
	})
}

// A coordinator's engine that does not hang up is waited for no longer than that.
func TestAnEngineThatDoesNotHangUp(t *testing.T) {
	spreadOver(t, 2, func(t *testing.T, c *cluster, uid string) {
		before := c.formed()
		w := c.named(before[1]).s.work
		w.mu.Lock()
		s := w.shares[uid]
		w.mu.Unlock()
		s.asked.Store(time.Now().UnixNano()) // And nothing comes of it.
		done := make(chan struct{})
		go func() {
			w.await(s, make(chan struct{}))
			close(done)
		}()
		for _, step := range []struct {
			after time.Duration
			over  bool
		}{{drainTime - time.Second, false}, {2 * time.Second, true}} {
			c.pass(step.after)
			select {
			case <-done:
				if !step.over {
					t.Fatal("it was not waited for")
				}
			default:
				if step.over {
					t.Fatal("it is waited for still")
				}
			}
		}
	})
}
