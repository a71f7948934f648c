package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// serving is the peer on which a model is ready, and the other holder.
func (c *cluster) serving(name string, a, b *fakePeer) (on, other *fakePeer) {
	c.t.Helper()
	switch got := c.peers[0].ready(name); {
	case slices.Equal(got, []string{a.name}):
		return a, b
	case slices.Equal(got, []string{b.name}):
		return b, a
	default:
		c.t.Fatalf("%s is ready on %v", name, got)
		return nil, nil
	}
}

// told is the sentence for a model, as a peer shows it.
func (p *fakePeer) told(name string) string {
	m, err := p.s.Model(name)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return m.Placed
}

// decided says whether a peer lists a decision with that text.
func (p *fakePeer) decided(text string) bool {
	return slices.ContainsFunc(p.s.Decisions(), func(d Decision) bool { return strings.Contains(d.Text, text) })
}

// A drained peer serves until another one is ready, finishes its requests, stops,
// and leads nothing; nothing moves back by itself.
func TestDrainMovesFirst(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		uid := c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		c.pass(10 * time.Second)
		on, other := c.serving("m", c.peers[0], c.peers[1])
		other.engine.load = time.Minute
		route, err := on.s.Route(t.Context(), Want{UID: "m"})
		if err != nil {
			t.Fatal(err)
		}
		c.say(on, said{draining: true})
		c.pass(50 * time.Second)
		c.want("ready while the other one loads", c.peers[2].ready("m"), []string{on.name})
		if text := c.peers[2].told("m"); !strings.Contains(text, on.name+" is drained and serves until then") {
			t.Errorf("told: %s", text)
		}
		c.want("routed to", mustRoute(t, c.peers[2]), on.name)
		for _, p := range c.peers[0].s.Peers() {
			c.want("state of "+p.Name, p.State == "draining", p.ID == on.id.String())
		}
		c.pass(15 * time.Second)
		c.want("ready", c.peers[2].ready("m"), []string{other.name})
		c.want("engines while a request runs", on.engine.count(), 1)
		c.want("routed to", mustRoute(t, on), other.name)
		route.Done(nil)
		c.pass(time.Second)
		c.want("engines of the drained one", on.engine.count(), 0)
		if v := c.peers[2].s.newView(); v.placements[uid].leader == on.id.String() {
			t.Error("the drained one leads")
		}

		_, before := other.placement(uid)
		c.say(on, said{})
		c.pass(time.Minute)
		if _, after := other.placement(uid); after != before || on.engine.count() != 0 {
			t.Errorf("placement %v after %v, %d engines", after, before, on.engine.count())
		}
	})
}

func mustRoute(t *testing.T, p *fakePeer) string {
	t.Helper()
	route, err := p.s.Route(t.Context(), Want{UID: "m"})
	if err != nil {
		t.Fatal(err)
	}
	route.Done(nil)
	return route.PeerName
}

// Where nobody else can take a model, a drained peer stops it all the same, after
// a while, with a sentence; also where nobody else can lead.
func TestDrainEnds(t *testing.T) {
	for name, peers := range map[string]int{"others there": 3, "alone": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, peers, func(t *testing.T, c *cluster) {
				on, asked := c.peers[0], c.peers[peers-1]
				c.alone(on)
				c.addModel("m", 1<<30, on)
				c.pass(10 * time.Second)
				route, err := on.s.Route(t.Context(), Want{UID: "m"}) // Never done.
				if err != nil {
					t.Fatal(err)
				}
				c.say(on, said{draining: true})
				c.pass(moveTime - 5*time.Second)
				c.want("ready", asked.ready("m"), []string{on.name})
				soon := "a is drained and nobody else can take it, so that it soon stops there"
				if text := asked.told("m"); !strings.Contains(text, soon) || !asked.decided(soon) {
					t.Errorf("told: %s", text)
				}
				c.pass(10*time.Second + drainTime)
				c.want("ready", asked.ready("m"), []string{})
				c.want("engines", on.engine.count(), 0)
				gone := "a is drained and nobody else that answers holds the file"
				if text := asked.told("m"); !strings.Contains(text, gone) || !asked.decided(gone) {
					t.Errorf("told: %s", text)
				}
				if _, err := asked.s.Route(t.Context(), Want{UID: "m"}); ReasonOf(err) != Draining || !strings.Contains(err.Error(), gone) {
					t.Errorf("%s: %v", ReasonOf(err), err)
				}
				route.Done(nil)
				c.say(on, said{})
				c.pass(10 * time.Second)
				c.want("ready once it is taken back", asked.ready("m"), []string{on.name})
			})
		})
	}
}

// A cordoned peer takes nothing new, and keeps what it has: under a new leader,
// and when its engine falls; it may lead.
func TestCordon(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("old"))
		leader, on := order[0], order[1]
		c.alone(on)
		c.addModel("old", 1<<30, on)
		c.pass(10 * time.Second)
		c.say(on, said{cordoned: true})
		c.addModel("new", 1<<30, on)
		c.pass(10 * time.Second)
		c.want("the new one", leader.ready("new"), []string{})
		if text := leader.told("new"); !strings.Contains(text, on.name+" is cordoned") {
			t.Errorf("told: %s", text)
		}
		if _, err := leader.s.Route(t.Context(), Want{UID: "new"}); ReasonOf(err) != Cordoned {
			t.Errorf("%s: %v", ReasonOf(err), err)
		}
		c.want("the old one", leader.ready("old"), []string{on.name})

		leader.crash()
		c.pass(10 * time.Second)
		c.want("the old one under a new leader", on.ready("old"), []string{on.name})
		c.want("starts", on.engine.starts(), 1)
		if v := on.s.newView(); v.placements[uidOf("old")].leader != on.id.String() {
			t.Errorf("the next in rank does not lead, for it is cordoned: %+v", v.placements[uidOf("old")])
		}
		for range 3 { // Each time it is left alone for longer.
			on.engine.killAll()
			c.pass(20 * time.Second)
			c.want("the old one after its engine fell", on.ready("old"), []string{on.name})
		}
		c.want("the new one", on.ready("new"), []string{})

		c.say(on, said{})
		c.pass(10 * time.Second)
		c.want("the new one once it is not cordoned", on.ready("new"), []string{on.name})
	})
}

// What ran on a cordoned peer that was alone is started again when it is.
func TestCordonOutlivesARestart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		c.addModel("m", 1<<30, p)
		c.pass(10 * time.Second)
		c.say(p, said{cordoned: true})
		p.crash()
		p.engine = &fakeEngine{}
		p.open()
		p.start()
		c.pass(10 * time.Second)
		c.want("ready", p.ready("m"), []string{"a"})
	})
}
