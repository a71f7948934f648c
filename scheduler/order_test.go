package scheduler

import (
	"strings"
	"testing"
	"time"

	"relay/p2p/record"
	"relay/store/content"
)

// placement is the order in force for a model, as a peer sees it.
func (p *fakePeer) placement(uid string) (Placement, record.Version) {
	v := p.s.newView().placements[uid]
	return v.Placement, v.version
}

// An order that was not answered yet stands, however the figures wobble.
func TestAnOrderStandsUntilItIsAnswered(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, x, y := order[0], order[1], order[2]
		c.lends(x, 3<<30) // Of which one is left once it has begun.
		c.lends(y, 2<<30)
		c.hold("m", x, y)
		c.silence(x, true)
		uid := leader.register("m", 2<<30)
		c.pass(time.Second)
		first, before := leader.placement(uid)
		c.want("ordered", first.Peers, []string{x.id.String()})
		c.lends(y, 4<<30)
		if _, after := leader.placement(uid); after != before {
			t.Errorf("placement %v has made way for %v", before, after)
		}
		c.want("what x has left", leader.s.newView().peer[x.id.String()].advert.Room, 1<<30)
		c.silence(x, false)
		c.pass(5 * time.Second)
		c.want("serving", leader.ready("m"), []string{x.name})
		c.want("starts elsewhere", y.engine.starts(), 0)
	})
}

// A peer that is only suspect keeps what it runs.
func TestASuspicionMovesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		uid := c.addModel("m", 1<<30, c.peers[0], c.peers[1], c.peers[2])
		c.pass(10 * time.Second)
		on := c.peers[0].ready("m")[0]
		for _, p := range c.peers { // The leader as well as the one that serves.
			_, before := p.placement(uid)
			c.suspect(p, true)
			c.pass(2 * time.Second)
			c.suspect(p, false)
			c.pass(time.Second)
			if _, after := p.placement(uid); after != before {
				t.Errorf("a suspicion of %s made placement %v of %v", p.name, after, before)
			}
		}
		c.want("serving", c.peers[0].ready("m"), []string{on})
	})
}

// What a replica says carries the fence that it obeys now.
func TestAReplicaRenewsItsFence(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, x := order[0], order[1]
		uid := c.addModel("m", 1<<30, x)
		c.pass(10 * time.Second)
		leader.crash()
		c.pass(10 * time.Second)
		_, version := x.placement(uid)
		replicas := x.s.newView().model[uid].replicas
		if len(replicas) != 1 || replicas[0].State != StateReady || replicas[0].Epoch != version[0] || replicas[0].Rank != version[1] || version[0] != 2 {
			t.Errorf("placement %v, replicas %+v", version, replicas)
		}
		c.want("starts", x.engine.starts(), 1)
	})
}

// An engine that takes long to load and dies soon after is left alone for
// longer and longer.
func TestLongLoadsDoNotProveAnEngine(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		p := c.peers[0]
		p.engine.load, p.engine.life = 70*time.Second, time.Second
		c.addModel("m", 1<<30, p)
		c.pass(30 * time.Minute)
		if p.engine.starts() < 5 || p.engine.starts() > 14 {
			t.Errorf("%d starts in half an hour", p.engine.starts())
		}
	})
}

// A replica that runs needs its file no more; once it is needed, whoever asks
// is told which one is missing, and where.
func TestAFileThatVanishes(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		a.put(content.Content{CID: c.rootOf("m"), Bytes: 1 << 20, Path: "/models/m"})
		c.pass(2 * holdingsEvery)
		m, _ := b.s.Model("m")
		c.want("holders", len(m.Holders), 0)
		c.want("serving", b.ready("m"), []string{"a"})
		c.want("starts", a.engine.starts(), 1)
		a.engine.killAll()
		c.pass(10 * time.Second)
		_, err := b.s.Route(t.Context(), Want{UID: "m"})
		if ReasonOf(err) != NoHolder || !strings.Contains(err.Error(), "on a /models/m") || strings.Count(err.Error(), `model "m"`) != 1 {
			t.Errorf("%s: %v", ReasonOf(err), err)
		}
	})
}
