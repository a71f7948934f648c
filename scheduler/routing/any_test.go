package routing_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/scheduler/routing"
)

// Many entrances that have heard the same, a while ago, send at the same time: nobody gets
// much more than a share, whatever it was.
func TestNobodyIsRunOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "replicas")
		entrances := rapid.IntRange(8, 60).Draw(t, "entrances")
		age := time.Duration(rapid.IntRange(10, 60).Draw(t, "seconds ago")) * time.Second
		talks := rapid.Bool().Draw(t, "talks")
		seed := rapid.Uint64().Draw(t, "chance")
		var list []routing.Replica
		var loads []int
		for i := range n {
			list = append(list, routing.Replica{Peer: fmt.Sprint("peer ", i), RTT: time.Duration(i) * time.Millisecond, Slots: 4, Decode: 40, Prefill: 1000})
			loads = append(loads, rapid.SampledFrom([]int{0, 0, 1, 4, 40}).Draw(t, "load"))
		}
		got := make([]int, n)
		for e := range entrances {
			book := routing.New()
			for i := range list {
				only := append([]routing.Replica{}, list...)
				for j := range only {
					if j != i {
						only[j].Out = routing.Tried
					}
				}
				_, trip := book.Pick("model", routing.Want{}, only, start, 0)
				trip.Heard(routing.Load{Running: min(4, loads[i]) + 1, Waiting: max(0, loads[i]-4), Slots: 4}, start)
				trip.Done(routing.Served, start, 0)
			}
			w := routing.Want{Tokens: 200}
			if talks {
				w = talking(int(seed%1e9)+e, 0, 200)
			}
			d, _ := book.Pick("model", w, list, start.Add(age), seed+uint64(e)*0x9e3779b97f4a7c15)
			got[d.Pick]++
		}
		share := float64(entrances) / float64(n)
		for i, g := range got {
			if float64(g) > 2*share+5 { // 60 throws of a die with two sides are above that once in 10^5.
				t.Fatalf("replica %d got %d of %d: %v", i, g, entrances, got)
			}
		}
	})
}

// Whatever happens, the choice is among those that can be asked where there are any, and
// among those that serve where there are not.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book, now := routing.New(), start
		var trips []*routing.Trip
		outs := []routing.Out{"", "", "", "", routing.NotReady, routing.NotAlive, routing.NoTrust, routing.Tried, routing.Leaving}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "later")))
			var list []routing.Replica
			for i := range rapid.IntRange(0, 6).Draw(t, "replicas") {
				speeds := rapid.SampledFrom([]float64{0, 1, 10, 11, 100})
				list = append(list, routing.Replica{
					Peer: fmt.Sprint("peer ", i), Out: rapid.SampledFrom(outs).Draw(t, "out"), Local: i == 0, Relayed: rapid.Bool().Draw(t, "relayed"),
					RTT: time.Duration(rapid.IntRange(0, 1e9).Draw(t, "rtt")), Context: rapid.SampledFrom([]int{0, 100, 4096}).Draw(t, "context"),
					Slots: rapid.IntRange(0, 4).Draw(t, "slots"), Decode: speeds.Draw(t, "decode"), Prefill: speeds.Draw(t, "prefill"),
				})
			}
			w := talking(rapid.IntRange(0, 5).Draw(t, "talk"), rapid.IntRange(0, 10).Draw(t, "turns"), rapid.IntRange(0, 500).Draw(t, "tokens"))
			w.Prefix = w.Prefix[:rapid.IntRange(0, len(w.Prefix)).Draw(t, "prefix")]
			w.Answers, w.Light = rapid.IntRange(0, 3).Draw(t, "answers"), rapid.Bool().Draw(t, "light")
			d, trip := book.Pick("model", w, list, now, rapid.Uint64().Draw(t, "chance"))
			asked, serving := false, false
			for i, r := range list {
				v := d.Each[i]
				if !(v.Wait >= 0 && v.Read >= 0 && v.Write >= 0 && v.Way >= 0 && v.Seconds() < 1e6) {
					t.Fatalf("%+v", v)
				}
				if r.Out != "" && r.Out != routing.Leaving && v.Out != r.Out {
					t.Fatalf("%s is out for %q, not for %q", r.Peer, r.Out, v.Out)
				}
				asked = asked || v.Out == ""
				serving = serving || r.Out == "" || r.Out == routing.Leaving
			}
			if asked != serving || (d.Pick >= 0) != serving || (trip != nil) != serving {
				t.Fatalf("%+v of %+v", d, list)
			}
			if trip != nil {
				if d.Each[d.Pick].Out != "" {
					t.Fatalf("%+v", d)
				}
				trips = append(trips, trip)
			}
			for len(trips) > 0 && rapid.Bool().Draw(t, "one ends") {
				i := rapid.IntRange(0, len(trips)-1).Draw(t, "which")
				if rapid.Bool().Draw(t, "it says") {
					some := rapid.IntRange(-1, 9)
					trips[i].Heard(routing.Load{Running: some.Draw(t, "running"), Waiting: some.Draw(t, "waiting"), Slots: 4}, now)
				}
				trips[i].Done(rapid.SampledFrom([]routing.End{routing.Served, routing.Refused, routing.Failed, routing.Dropped, routing.NotAsked}).Draw(t, "end"), now, 1)
				trips = append(trips[:i], trips[i+1:]...)
			}
		}
		// Once all are over, and a while later, nothing is left of it: replicas alike get alike.
		for _, trip := range trips {
			trip.Done(routing.Served, now, 0)
		}
		now = now.Add(2 * time.Hour)
		var list []routing.Replica
		for i := range 6 {
			list = append(list, routing.Replica{Peer: fmt.Sprint("peer ", i), Slots: 4})
		}
		got := map[int]int{}
		for range 12 {
			d, _ := book.Pick("model", routing.Want{}, list, now, 0)
			got[d.Pick]++
		}
		for i := range list {
			if got[i] != 2 {
				t.Fatalf("of 12 requests: %v", got)
			}
		}
	})
}

// Of replicas alike nobody starves, though it failed, was full, or far behind, once.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "replicas")
		c := newCrowd(rapid.Uint64().Draw(t, "seed"), n, 1, true)
		for i, r := range c.replicas {
			for range rapid.IntRange(0, 4).Draw(t, "failures") {
				only := append([]routing.Replica{}, c.replicas...)
				for j := range only {
					if j != i {
						only[j].Out = routing.Tried
					}
				}
				_, trip := c.entrances[0].Pick("model", routing.Want{Tokens: 5000}, only, c.now, 0)
				trip.Done(rapid.SampledFrom([]routing.End{routing.Served, routing.Refused, routing.Failed}).Draw(t, r.Peer), c.now, 1)
			}
		}
		turns := func(n int) {
			for range n {
				c.fill(10*len(c.replicas), 2, 12)
				c.turn(t, c.rnd.IntN(len(c.live)))
			}
		}
		turns(300)
		clear(c.asked)
		turns(300)
		for _, r := range c.replicas {
			if c.asked[r.Peer] < 300/n/4 { // What it had before counts for a while.
				t.Fatalf("%v", c.asked)
			}
		}
	})
}
