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
func (c *crowd) turn(t testing.TB, at int) {
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

func (c *crowd) rounds(t testing.TB) {
	for range 50 {
		c.begin(10)
	}
	for len(c.live) > 0 {
		for i := len(c.live) - 1; i >= 0; i-- {
			c.turn(t, i)
		}
	}
}

func (c *crowd) mixed(t testing.TB) {
	for range 50 {
		c.begin(10)
	}
	for len(c.live) > 0 {
		c.turn(t, c.rnd.IntN(len(c.live)))
	}
}

func (c *crowd) churn(t testing.TB) {
	for range 3000 {
		for len(c.live) < 50 {
			c.begin(5 + c.rnd.IntN(11))
		}
		c.turn(t, c.rnd.IntN(len(c.live)))
	}
}

func (c *crowd) away(t testing.TB) {
	for i := range 4500 {
		for len(c.live) < 50 {
			c.begin(5 + c.rnd.IntN(11))
		}
		switch i {
		case 1500:
			c.replicas[0].Out = routing.NotAlive
		case 1700:
			c.replicas[0].Out = ""
		case 2000:
			clear(c.asked)
		}
		c.turn(t, c.rnd.IntN(len(c.live)))
	}
}

func TestExplore(t *testing.T) {
	for _, entrances := range []int{1, 3} {
		for _, stays := range []bool{true, false} {
			if entrances == 1 && !stays {
				continue
			}
			for name, f := range map[string]func(*crowd, testing.TB){"rounds": (*crowd).rounds, "mixed": (*crowd).mixed, "churn": (*crowd).churn, "away": (*crowd).away} {
				var hit, spread, worst, worstS float64
				worst = 1
				const runs = 60
				for seed := range runs {
					c := newCrowd(uint64(seed), 3, entrances, stays)
					f(c, t)
					hit, spread = hit+c.hits()/runs, spread+c.spread()/runs
					worst, worstS = min(worst, c.hits()), max(worstS, c.spread())
				}
				fmt.Printf("entrances %d stays %-5v %-6s hits %.3f (%.3f) spread %.3f (%.3f)\n", entrances, stays, name, hit, worst, spread, worstS)
			}
		}
	}
}
