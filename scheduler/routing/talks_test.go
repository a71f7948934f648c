package routing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"relay/scheduler/routing"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// conversation is one that goes on through some entrance.
type conversation struct {
	id           int
	turns, asked int
	entrance     int
	by           string // Who answered last.
}

// prefix is how its next request begins: a system prompt that all have, and what was said.
func (c *conversation) prefix() []uint64 {
	h := uint64(0x5e5)
	p := []uint64{h}
	for i := range min(15, 2*c.asked+1) {
		h = h*0x9e3779b97f4a7c15 + uint64(c.id)*1000 + uint64(i) + 1
		h ^= h >> 29
		p = append(p, h)
	}
	return p
}

// checked is a test, or one of rapid's.
type checked interface {
	Helper()
	Fatalf(format string, args ...any)
}

// crowd is conversations over replicas.
type crowd struct {
	rnd       *rand.Rand
	replicas  []routing.Replica
	entrances []*routing.Book
	now       time.Time
	live      []*conversation
	begun     int
	// stays: a conversation goes through one entrance.
	stays bool

	// with are the turns that some replica had the prefix of, hit those that reached it.
	with, hit int
	asked     map[string]int
}

func newCrowd(seed uint64, replicas, entrances int, stays bool) *crowd {
	c := &crowd{rnd: rand.New(rand.NewPCG(seed, 0)), now: start, stays: stays, asked: map[string]int{}}
	for i := range replicas {
		c.replicas = append(c.replicas, routing.Replica{Peer: fmt.Sprintf("peer %d of %d", i, seed), Slots: 4, Context: 1 << 14, Decode: 40, Prefill: 1500})
	}
	for range entrances {
		c.entrances = append(c.entrances, routing.New())
	}
	return c
}

func (c *crowd) begin(turns int) {
	c.begun++
	c.live = append(c.live, &conversation{id: c.begun, turns: turns, entrance: c.rnd.IntN(len(c.entrances))})
}

// turn has one of the conversations ask, and leave where it has come to its end.
func (c *crowd) turn(t checked, at int) {
	t.Helper()
	talk := c.live[at]
	entrance := talk.entrance
	if !c.stays {
		entrance = c.rnd.IntN(len(c.entrances))
	}
	c.now = c.now.Add(200 * time.Millisecond)
	d, trip := c.entrances[entrance].Pick("model", routing.Want{Prefix: talk.prefix(), Shared: 1, Tokens: 150 + 120*talk.asked}, c.replicas, c.now, c.rnd.Uint64())
	if d.Pick < 0 {
		t.Fatalf("nobody is asked: %+v", d.Each)
	}
	trip.Done(routing.Served, c.now, c.rnd.Uint64())
	by := c.replicas[d.Pick].Peer
	c.asked[by]++
	for _, r := range c.replicas {
		if r.Out == "" && r.Peer == talk.by {
			c.with++
			if talk.by == by {
				c.hit++
			}
		}
	}
	talk.by = by
	if talk.asked++; talk.asked == talk.turns {
		c.live = append(c.live[:at], c.live[at+1:]...)
	}
}

func (c *crowd) hits() float64 { return float64(c.hit) / float64(max(1, c.with)) }

// spread is how far apart the replicas are in the requests that they got, in means.
func (c *crowd) spread() float64 {
	least, most, sum := 1<<30, 0, 0
	for _, r := range c.replicas {
		n := c.asked[r.Peer]
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	return float64(most-least) * float64(len(c.replicas)) / float64(sum)
}

// The ways in which 50 conversations come about.
var customs = map[string]func(*crowd, checked){
	// In rounds, ten turns each.
	"rounds": func(c *crowd, t checked) {
		c.fill(50, 10, 10)
		for len(c.live) > 0 {
			for i := len(c.live) - 1; i >= 0; i-- {
				c.turn(t, i)
			}
		}
	},
	// In any order, ten turns each.
	"mixed": func(c *crowd, t checked) {
		c.fill(50, 10, 10)
		for len(c.live) > 0 {
			c.turn(t, c.rnd.IntN(len(c.live)))
		}
	},
	// Some end and others begin all the time.
	"churn": func(c *crowd, t checked) {
		for range 2000 {
			c.fill(50, 5, 15)
			c.turn(t, c.rnd.IntN(len(c.live)))
		}
	},
	// The same, and a replica is away for a while; the load is that of after it came back.
	"away": func(c *crowd, t checked) {
		for i := range 3500 {
			switch i {
			case 1000:
				c.replicas[0].Out = routing.NotAlive
			case 1200:
				c.replicas[0].Out = ""
			case 1500:
				clear(c.asked)
			}
			c.fill(50, 5, 15)
			c.turn(t, c.rnd.IntN(len(c.live)))
		}
	},
}

// fill begins conversations until there are so many, with so many turns.
func (c *crowd) fill(n, least, most int) {
	for len(c.live) < n {
		c.begin(least + c.rnd.IntN(most-least+1))
	}
}

// Conversations reach the replica that answered them last, and replicas alike get alike:
// also where every turn comes through another entrance.
func TestTalksStayAndLoadIsEven(t *testing.T) {
	for _, c := range []struct {
		name      string
		entrances int
		stays     bool
		// least are the hits, and most the spread: in the mean of all runs, and in each.
		least, eachLeast, most, eachMost float64
	}{
		{"one entrance", 1, true, 0.99, 0.98, 0.1, 0.2},
		{"three entrances", 3, true, 0.99, 0.98, 0.12, 0.25},
		{"any of three entrances", 3, false, 0.9, 0.85, 0.15, 0.35},
	} {
		for custom, f := range customs {
			const runs = 40
			hits, spread, worstHits, worstSpread := 0.0, 0.0, 1.0, 0.0
			for seed := range uint64(runs) {
				crowd := newCrowd(seed, 3, c.entrances, c.stays)
				f(crowd, t)
				hits, spread = hits+crowd.hits()/runs, spread+crowd.spread()/runs
				worstHits, worstSpread = min(worstHits, crowd.hits()), max(worstSpread, crowd.spread())
			}
			t.Logf("%-22s %-6s  hits %.3f, at least %.3f  spread %.3f, at most %.3f", c.name, custom, hits, worstHits, spread, worstSpread)
			if hits < c.least || worstHits < c.eachLeast || spread > c.most || worstSpread > c.eachMost {
				t.Errorf("%s, %s: hits %.3f, at least %.3f; spread %.3f, at most %.3f", c.name, custom, hits, worstHits, spread, worstSpread)
			}
		}
	}
}
