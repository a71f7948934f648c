package scheduler

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay/scheduler/leadership"
	"relay/scheduler/ways"
)

func TestAModelRunsOnceOnAHolderAndEveryPeerRoutesThere(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[1])
		c.pass(10 * time.Second)
		for _, p := range c.peers {
			c.want(p.name+" sees", p.ready("m"), []string{"b"})
			route, err := p.s.Route(t.Context(), Want{UID: "m"})
			if err != nil {
				t.Fatal(err)
			}
			c.want(p.name+" routes to", route.PeerName, "b")
			c.want(p.name+" local", route.Local, p.name == "b")
			route.Done(nil)
		}
		c.want("engines", c.peers[0].engine.count()+c.peers[1].engine.count()+c.peers[2].engine.count(), 1)
	})
}

func TestAnotherHolderTakesOverAndWaitingRequestsGetIt(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		c.pass(10 * time.Second)
		serving := c.peers[0]
		if c.peers[2].ready("m")[0] == "b" {
			serving = c.peers[1]
		}
		other := c.peers[1-serving.index]
		serving.crash()
		begin := time.Now()
		route, err := c.peers[2].s.Route(t.Context(), Want{UID: "m", Tried: []string{serving.id.String()}})
		if err != nil {
			t.Fatal(err)
		}
		route.Done(nil)
		c.want("routed to", route.PeerName, other.name)
		if took := time.Since(begin); took < loadTime || took > loadTime+time.Second {
			t.Errorf("waited %s for a load of %s", took, loadTime)
		}
		// Back again it changes nothing.
		epoch := func() uint64 { m, _ := other.s.Model("m"); return m.Leader.Epoch }
		before := epoch()
		serving.engine = &fakeEngine{}
		serving.open()
		serving.start()
		c.pass(time.Minute)
		c.want("serving", other.ready("m"), []string{other.name})
		c.want("the epoch", epoch(), before)
		c.want("engines on the one that came back", serving.engine.starts(), 0)
	})
}

func TestTheReasonIsTheAnswerWhereNothingWillComeUp(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(c *cluster)
		why     Reason
		text    string
	}{
		"nobody holds it": {func(c *cluster) { c.addModel("m", 1<<30) }, NoHolder, "no peer holds it whole"},
		"too large":       {func(c *cluster) { c.addModel("m", 5<<30, c.peers[0]) }, NoCapacity, "5.0 GiB"},
		"the engine fails": {func(c *cluster) {
			c.peers[0].engine.failWith(Errorf(EngineFailed, "it said: bad magic"))
			c.addModel("m", 1<<30, c.peers[0])
		}, EngineFailed, "bad magic"},
		"no such model": {func(*cluster) {}, ModelNotFound, `no model "m"`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, c *cluster) {
				c.alone(c.peers[0])
				test.prepare(c)
				c.pass(2 * time.Minute)
				begin := time.Now()
				_, err := c.peers[1].s.Route(t.Context(), Want{UID: "m"})
				if ReasonOf(err) != test.why || !strings.Contains(err.Error(), test.text) {
					t.Errorf("%s: %v", ReasonOf(err), err)
				}
				if took := time.Since(begin); took > 2*hopeless+loadTime {
					t.Errorf("it took %s to say so", took)
				}
			})
		})
	}
}

func TestAFailingPeerIsPassedOverAndTriedAgainLater(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		a.engine.failWith(Errorf(EngineFailed, "no"))
		b.engine.failWith(Errorf(EngineFailed, "no"))
		c.addModel("m", 1<<30, a, b)
		c.pass(13 * time.Second)
		tries := a.engine.starts() + b.engine.starts()
		if tries < 4 || tries > 8 {
			t.Errorf("%d tries in thirteen seconds", tries)
		}
		b.engine.failWith(nil)
		c.pass(3 * time.Minute)
		c.want("serving", a.ready("m"), []string{"b"})
		b.engine.killAll() // Dies after having been ready.
		c.pass(20 * time.Second)
		c.want("serving again", a.ready("m"), []string{"b"})
	})
}

func TestTwoModelsShareAPeersMemory(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.alone(a)
		c.addModel("first", 3<<30, a)
		yes := true
		if _, _, err := a.s.Set("first", SetOptions{Pinned: &yes}); err != nil {
			t.Fatal(err)
		}
		c.pass(10 * time.Second)
		c.addModel("second", 3<<30, a)
		c.pass(time.Minute)
		c.want("first on", a.ready("first"), []string{"a"})
		c.want("second on", a.ready("second"), []string(nil))
		_, err := c.peers[1].s.Route(t.Context(), Want{UID: "second"})
		if ReasonOf(err) != NoCapacity || !strings.Contains(err.Error(), "1.0 GiB") {
			t.Errorf("%s: %v", ReasonOf(err), err)
		}
		if _, err := a.s.Remove(t.Context(), "first", false, false); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		c.want("second on", a.ready("second"), []string{"a"})
		if most := a.engine.peak(ways.HostID); most > a.lend {
			t.Errorf("%d bytes were used at once, %d are lent", most, a.lend)
		}
	})
}

func TestTwoSidesOfACutHealToOnePlacement(t *testing.T) {
	bubble(t, 4, func(t *testing.T, c *cluster) {
		uid := c.addModel("m", 1<<30, c.peers[0], c.peers[3])
		c.pass(10 * time.Second)
		obeyed := map[*fakePeer]leadership.Fence{}
		watch := func() {
			for _, p := range c.peers {
				kept, ok, _ := p.state.Get([]byte("fence/" + uid))
				if !ok {
					continue
				}
				f := leadership.Fence{Epoch: binary.BigEndian.Uint64(kept), Rank: binary.BigEndian.Uint64(kept[8:])}
				if f.Less(obeyed[p]) {
					t.Errorf("%s obeyed %v after %v", p.name, f, obeyed[p])
				}
				obeyed[p] = f
			}
		}
		for round := range 4 {
			c.split(2)
			for range 20 {
				c.pass(time.Second)
				watch()
			}
			c.want("this side", len(c.peers[0].ready("m")), 1)
			c.want("that side", len(c.peers[3].ready("m")), 1)
			c.split(0)
			for range 40 {
				c.pass(time.Second)
				watch()
			}
			for _, p := range c.peers {
				c.want(p.name+" sees replicas", len(p.ready("m")), 1)
				m, err := p.s.Model("m")
				first, _ := c.peers[0].s.Model("m")
				if err != nil || *m.Leader != *first.Leader {
					t.Errorf("round %d: %s has leader %v, a has %v", round, p.name, m.Leader, first.Leader)
				}
			}
			total := 0
			for _, p := range c.peers {
				total += p.engine.count()
			}
			c.want("engines after healing", total, 1)
		}
	})
}

func TestAPeerThatLeavesIsReplacedBeforeItIsGone(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0], c.peers[1])
		c.pass(10 * time.Second)
		leaving := c.peers[0]
		if c.peers[1].ready("m")[0] == "b" {
			leaving = c.peers[1]
		}
		other := c.peers[1-leaving.index]
		lease, err := leaving.s.Serve(t.Context(), Want{UID: uidOf("m")})
		if err != nil {
			t.Fatal(err)
		}
		leaving.s.Leave(5 * time.Second)
		stopped := make(chan struct{})
		go func() {
			leaving.stop()
			close(stopped)
		}()
		c.pass(10 * time.Second)
		c.want("serving", other.ready("m"), []string{other.name})
		select {
		case <-stopped:
			t.Error("it did not wait for the request that it was serving")
		default:
		}
		c.want("engines on the one that leaves", leaving.engine.count(), 1)
		lease.Done(nil)
		<-stopped
		c.want("engines on the one that left", leaving.engine.count(), 0)
		leaving.stop = func() {}
	})
}

func TestARequestDoesNotWaitForLongerThanItsClient(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0])
		ctx, cancel := context.WithTimeout(t.Context(), loadTime/2)
		defer cancel()
		_, err := c.peers[0].s.Route(ctx, Want{UID: "m"})
		if ReasonOf(err) != ModelLoading || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestWhatTheLastRunSaidIsTakenBack(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.addModel("m", 1<<30, c.peers[0])
		c.pass(10 * time.Second)
		a, b := c.peers[0], c.peers[1]
		a.crash()
		a.engine = &fakeEngine{fail: Errorf(EngineFailed, "broken meanwhile")}
		a.open()
		a.start()
		synctest.Wait()
		c.want("b sees", b.ready("m"), []string(nil))
	})
}

// Every peer has every field of its link, whether there is one or not.
func TestEveryPeerShowsItsLink(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		data, err := json.Marshal(c.peers[0].s.Peers())
		if err != nil {
			t.Fatal(err)
		}
		var shown []struct{ Link map[string]any }
		if err := json.Unmarshal(data, &shown); err != nil || len(shown) != 2 {
			t.Fatalf("%s: %v", data, err)
		}
		for _, p := range shown {
			for _, field := range []string{"path", "transport", "rtt_ms"} {
				if _, ok := p.Link[field]; !ok {
					t.Errorf("no %s in %v", field, p.Link)
				}
			}
		}
	})
}

func TestModelsOfOneNameAreBothReached(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		c.split(1)
		c.addModel("m", 1<<30, c.peers[0])
		model, _ := c.peers[0].s.Model("m")
		other := Model{Name: "m", CID: model.CID, Bytes: 1, Kind: "chat", Context: 8, Slots: 1, Need: 1}
		if err := c.peers[1].PutShared(KindModel, uidOf("zzzz"), other); err != nil {
			t.Fatal(err)
		}
		c.split(0)
		c.pass(2 * time.Second)
		for _, p := range c.peers {
			first, err := p.s.Model("m")
			if err != nil || first.UID != uidOf("m") {
				t.Errorf("m is %s: %v", first.UID, err)
			}
			second, err := p.s.Model("m~zzzz")
			if err != nil || second.UID != uidOf("zzzz") {
				t.Errorf("m~zzzz is %s: %v", second.UID, err)
			}
		}
	})
}
