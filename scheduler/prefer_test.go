package scheduler

import (
	"context"
	"sync"
	"testing"
	"time"
)

// twins runs a test of two peers that serve a model with two slots each, and a third
// that does not.
func twins(t *testing.T, f func(t *testing.T, c *cluster, a, b, door *fakePeer)) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.hold("m", a, b)
		a.register("m", 1<<30, slotted(2))
		c.pass(10 * time.Second)
		a.set("m", SetOptions{Min: ptr(2)})
		c.pass(fetchTime + loadTime + 5*time.Second)
		c.want("ready", len(a.ready("m")), 2)
		f(t, c, a, b, c.peers[2])
	})
}

// route is who is asked, and the request at it.
func (p *fakePeer) route(want Want) Route {
	p.c.t.Helper()
	want.UID = "m"
	route, err := p.s.Route(p.c.t.Context(), want)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return route
}

// Requests go to this peer's own replica, to others once its slots are taken, and wait for
// it where all are.
func TestOwnReplicaFirst(t *testing.T) {
	twins(t, func(t *testing.T, c *cluster, a, b, _ *fakePeer) {
		var routes []Route
		got := map[string]int{}
		for range 4 {
			r := a.route(Want{})
			routes = append(routes, r)
			got[r.PeerName]++
			if len(routes) == 1 {
				c.want("the first", r.PeerName, a.name)
			}
		}
		c.want("four requests", got, map[string]int{a.name: 2, b.name: 2})
		for _, r := range routes {
			if r.PeerName == b.name {
				r.Heard(Load{Running: 2, Waiting: 8, Slots: 2}) // Of other entrances.
			}
		}
		last := a.ask("m")
		c.pass(time.Second)
		c.want("waiting at its own", a.s.work.loadOf(routes[0].Model.UID), Load{Running: 2, Waiting: 1, Slots: 2})
		for _, r := range routes {
			r.Done(nil)
		}
		r := <-last
		if r.err != nil {
			t.Fatal(r.err)
		}
		c.want("the last", r.route.PeerName, a.name)
	})
}

// Where no more may wait for this peer's own replica, another one is asked; the client
// hears of it only where there is none.
func TestOwnReplicaFull(t *testing.T) {
	twins(t, func(t *testing.T, c *cluster, a, b, _ *fakePeer) {
		uid := a.route(Want{}).Model.UID
		var served sync.WaitGroup
		ctx, over := context.WithCancel(t.Context())
		for range 2 + maxQueue {
			served.Go(func() {
				if lease, err := a.s.Serve(ctx, Want{UID: uid, Key: "forwarded"}); err == nil {
					<-ctx.Done()
					lease.Done(nil)
				}
			})
		}
		defer served.Wait()
		defer over()
		c.pass(time.Second)
		c.want("waiting", a.s.work.loadOf(uid).Waiting, maxQueue)
		c.want("who is not full", a.route(Want{}).PeerName, b.name)
		one := a.route(Want{})
		one.Done(&Error{Why: Busy}) // Now both are.
		c.want("who is left", a.route(Want{Key: "forwarded"}).PeerName, b.name)
		_, err := a.s.Route(t.Context(), Want{UID: uid, Key: "forwarded", Tried: []string{one.Mark}})
		c.want("nobody is left", ReasonOf(err), Busy)
	})
}

// A replica that fails is left alone for a while, one that is full for a moment.
func TestFailuresAreLeftAlone(t *testing.T) {
	twins(t, func(t *testing.T, c *cluster, a, b, door *fakePeer) {
		for name, how := range map[string]struct {
			err  error
			rest time.Duration
		}{"failed": {&Error{Why: EngineFailed}, 2 * time.Second}, "full": {&Error{Why: Busy}, time.Second}, "its client left": {context.Canceled, 0}, "it was drained": {&Error{Why: Draining}, 0}} {
			r := door.route(Want{})
			bad := r.PeerName
			r.Done(how.err)
			again := map[string]int{}
			for range 6 {
				r := door.route(Want{})
				again[r.PeerName]++
				r.Done(nil)
			}
			if left := again[bad] == 0; left != (how.rest > 0) {
				t.Errorf("%s: asked %v then", name, again)
			}
			c.pass(how.rest)
			for range 6 {
				r := door.route(Want{})
				again[r.PeerName]++
				r.Done(nil)
			}
			if again[bad] == 0 {
				t.Errorf("%s: not asked after %s: %v", name, how.rest, again)
			}
		}
	})
}

// A talk goes on where it was, from whatever entrance it began, and elsewhere once its
// replica is drained.
func TestTalksGoOn(t *testing.T) {
	twins(t, func(t *testing.T, c *cluster, a, b, door *fakePeer) {
		talk := Want{Prefix: []uint64{7, 8}, Shared: 1, Tokens: 100}
		first := door.route(talk)
		first.Done(nil)
		for i := range 5 {
			talk.Prefix = append(talk.Prefix, uint64(100+i), uint64(200+i))
			talk.Tokens += 100
			r := door.route(talk)
			c.want("further turns", r.PeerName, first.PeerName)
			r.Done(nil)
		}
		r := a.route(talk)
		c.want("through another entrance", r.PeerName, first.PeerName)
		r.Done(nil)
		on := a
		if first.PeerName == b.name {
			on = b
		}
		c.say(on, said{draining: true})
		c.pass(time.Second)
		r = door.route(talk)
		if r.PeerName == first.PeerName {
			t.Errorf("asked at %s, which is drained", r.PeerName)
		}
		r.Done(nil)
	})
}

// A request that all others have failed stays at a replica that is to be left; one that
// could go elsewhere leaves it.
func TestTheLastOneIsNotLeft(t *testing.T) {
	twins(t, func(t *testing.T, c *cluster, a, b, door *fakePeer) {
		tried := []string{b.Self().String()}
		before := door.route(Want{Tried: tried})
		defer before.Done(nil)
		c.say(a, said{draining: true})
		c.pass(time.Second)
		c.want("what was there before leaves", before.Away.Err(), context.Canceled)
		for _, p := range []*fakePeer{door, a} {
			r := p.route(Want{Tried: tried})
			c.want("who is left", r.PeerName, a.name)
			if r.Away != nil {
				t.Errorf("at %s: it is to be left as soon as it is asked: %v", p.name, context.Cause(r.Away))
			}
			r.Done(nil)
		}
	})
}

// What is predicted is corrected by what was measured elsewhere.
func TestSpeedsAreComparedLikeWithLike(t *testing.T) {
	for name, c := range map[string]struct {
		measured, predicted, want []float64
	}{
		"all measured":            {[]float64{10, 20}, []float64{500, 100}, []float64{10, 20}},
		"none":                    {[]float64{0, 0}, []float64{500, 100}, []float64{500, 100}},
		"one":                     {[]float64{10, 0}, []float64{500, 1000}, []float64{10, 20}},
		"one, unpredicted":        {[]float64{10, 0, 0}, []float64{0, 1000, 100}, []float64{10, 0, 0}},
		"nothing known of one":    {[]float64{10, 0}, []float64{500, 0}, []float64{10, 0}},
		"two that differ in that": {[]float64{10, 40, 0}, []float64{10, 10, 10}, []float64{10, 40, 20}},
	} {
		var measured, predicted [][2]float64
		for i := range c.measured {
			measured, predicted = append(measured, [2]float64{0, c.measured[i]}), append(predicted, [2]float64{0, c.predicted[i]})
		}
		for i, got := range corrected(measured, predicted, 1) {
			if got < c.want[i]*0.999 || got > c.want[i]*1.001 {
				t.Errorf("%s: speed %d is %v, not %v", name, i, got, c.want[i])
			}
		}
	}
}
