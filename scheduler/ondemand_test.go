package scheduler

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/scheduler/residency"
)

func idleAfter(seconds int64) func(*Model) { return func(m *Model) { m.IdleUnload = seconds } }

// Without a request a model is unloaded after its time, says so, and is loaded when
// it is asked for, wherever that is.
func TestAModelSleepsUntilItIsAskedFor(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, on, door := order[0], order[1], order[2]
		c.hold("m", on)
		door.register("m", 1<<30, idleAfter(120))
		c.pass(100 * time.Second)
		c.want("ready before its time", door.ready("m"), []string{on.name})
		c.pass(60 * time.Second)
		c.want("engines", on.engine.count(), 0)
		m, _ := door.s.Model("m")
		if !m.Asleep || !strings.Contains(m.Placed, "unloaded after 2m0s without a request; it is loaded when somebody asks for it") || !door.decided("unloaded after 2m0s without a request") {
			t.Errorf("asleep %v: %s", m.Asleep, m.Placed)
		}
		c.pass(5 * time.Minute)
		c.want("starts while nobody asks", on.engine.starts(), 1)
		got := <-door.ask("m")
		if got.err != nil || got.after < loadTime || got.after > loadTime+time.Second {
			t.Errorf("after %s: %v", got.after, got.err)
		}
		// The next leader knows that it sleeps.
		c.pass(residency.UnusedLife + time.Minute) // It was asked for and then not used.
		c.want("engines", on.engine.count(), 0)
		leader.crash()
		c.pass(5 * time.Minute)
		c.want("starts under the new leader", on.engine.starts(), 2)
		door.insist("m", 2*loadTime)
	})
}

// Requests keep a model loaded: one that runs on, and each that ends.
func TestAModelInUseIsNotIdle(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.hold("m", a)
		a.register("m", 1<<30, idleAfter(60))
		c.pass(10 * time.Second)
		route, err := a.s.Route(t.Context(), Want{UID: "m"})
		if err != nil {
			t.Fatal(err)
		}
		c.pass(5 * time.Minute)
		c.want("engines under a long request", a.engine.count(), 1)
		route.Done(nil)
		c.pass(50 * time.Second)
		c.want("engines after it", a.engine.count(), 1)
		c.pass(15 * time.Second)
		c.want("engines then", a.engine.count(), 0)
	})
}

func TestUnloadAndLoadByHand(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		b.act("m", ActUnload)
		c.pass(10 * time.Second)
		c.want("engines", a.engine.count(), 0)
		c.pass(5 * time.Minute)
		c.want("starts", a.engine.starts(), 1)
		b.act("m", ActLoad)
		c.pass(10 * time.Second)
		c.want("ready", b.ready("m"), []string{"a"})
		yes := true
		b.set("m", SetOptions{Pinned: &yes})
		if _, err := b.s.Act(t.Context(), "m", ActUnload); ReasonOf(err) != InvalidRequest {
			t.Errorf("unload what is pinned: %v", err)
		}
		b.act("m", ActRestart)
		c.pass(10 * time.Second)
		no := false
		b.set("m", SetOptions{Pinned: &no})
		b.act("m", ActUnload)
		c.pass(10 * time.Second)
		if _, err := b.s.Act(t.Context(), "m", ActRestart); ReasonOf(err) != InvalidRequest {
			t.Errorf("restart what does not run: %v", err)
		}
		// A minimum wakes it.
		one := 1
		b.set("m", SetOptions{Min: &one})
		c.pass(10 * time.Second)
		c.want("ready", b.ready("m"), []string{"a"})
	})
}

// Where there is no room the least recently used model goes, once it is older than
// a moment, and never one in use or pinned.
func TestTheLeastRecentlyUsedModelGoes(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, door := c.peers[0], c.peers[1]
		c.alone(a)
		c.addModel("one", 1<<30, a)
		c.addModel("two", 1<<30, a)
		c.addModel("used", 1<<30, a)
		c.pass(10 * time.Second)
		for _, name := range []string{"two", "one"} {
			a.insist(name, 0)
			c.pass(time.Second)
		}
		route, err := a.s.Route(t.Context(), Want{UID: "used"})
		if err != nil {
			t.Fatal(err)
		}
		c.addModel("new", 2<<30, a)
		c.pass(time.Minute)
		c.want("new while nobody asks", door.ready("new"), []string{})
		got := <-door.ask("new")
		if got.err != nil || got.after > 2*loadTime {
			t.Errorf("after %s: %v", got.after, got.err)
		}
		c.pass(time.Second)
		for name, want := range map[string]int{"one": 1, "two": 0, "used": 1, "new": 1} {
			c.want(name, len(door.ready(name)), want)
		}
		if !door.decided(`unloaded to make room for model "new"`) {
			t.Errorf("%+v", door.s.Decisions())
		}
		if most := a.engine.peak("RAM"); most > a.lend {
			t.Errorf("%d bytes at a time", most)
		}
		// All are in use or young: the sentence says so, and nothing goes.
		c.addModel("last", 3<<30, a)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := door.s.Route(ctx, Want{UID: "last"}); ReasonOf(err) != NoCapacity || !strings.Contains(err.Error(), `"used" stays on a`) {
			t.Errorf("%v", err)
		}
		for name, want := range map[string]int{"one": 1, "two": 0, "used": 1, "new": 1} {
			c.want(name, len(door.ready(name)), want)
		}
		route.Done(nil)
	})
}

// Two models that are asked for by turns take turns, and neither is thrown out
// before it could answer.
func TestTwoModelsThatAreAskedForTakeTurns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.alone(a)
		c.addModel("one", 3<<30, a)
		c.addModel("two", 3<<30, a)
		c.pass(40 * time.Second)
		for range 4 {
			c.peers[1].insist("one", 2*time.Minute)
			c.peers[2].insist("two", 2*time.Minute)
		}
		if n := a.engine.starts(); n > 9 {
			t.Errorf("%d starts for eight requests", n)
		}
		if most := a.engine.peak("RAM"); most > a.lend {
			t.Errorf("%d bytes at a time", most)
		}
	})
}

// Many leaders that want one peer's memory at the same moment get no more than
// there is.
func TestManyLeadersShareAPeersMemory(t *testing.T) {
	bubble(t, 4, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.alone(a)
		var names []string
		for i := range 8 {
			names = append(names, "m"+string(rune('a'+i)))
		}
		c.hold("idle", a)
		a.register("idle", 3<<30)
		c.pass(time.Minute)
		for i, name := range names {
			c.hold(name, a)
			c.peers[i%4].register(name, 3<<29)
		}
		leaders := map[string]bool{}
		for i, name := range names {
			_ = c.peers[1+i%3].ask(name)
		}
		c.pass(20 * time.Second)
		ready := 0
		for _, name := range names {
			ready += len(c.peers[1].ready(name))
			leaders[c.peers[1].s.newView().placements[uidOf(name)].leader] = true
		}
		c.want("ready of three halves of a GiB each", ready, 2)
		c.want("the idle one", c.peers[1].ready("idle"), []string{})
		if len(leaders) < 2 {
			t.Fatal("one leader leads them all: the test shows nothing")
		}
		if most := a.engine.peak("RAM"); most > a.lend {
			t.Errorf("%d bytes at a time", most)
		}
		c.pass(10 * time.Minute)
		if n := a.engine.starts(); n > 12 {
			t.Errorf("%d starts", n)
		}
	})
}

// One that is unloaded on one of two peers is not loaded there again at once.
func TestAReplicaForTheLoadThatIsUnloadedStaysAway(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.hold("m", a, b)
		a.register("m", 1<<30, idleAfter(60))
		c.pass(10 * time.Second)
		press(t, c, "m")
		c.want("ready", len(a.ready("m")), 2)
		c.pass(30 * time.Minute)
		if n := a.engine.starts() + b.engine.starts(); n != 2 {
			t.Errorf("%d starts", n)
		}
		c.want("engines", a.engine.count()+b.engine.count(), 0)
	})
}

// press has more requests than slots wait on every replica for as long as it takes
// for another one to be there.
func press(t *testing.T, c *cluster, name string) {
	t.Helper()
	ctx, over := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, p := range c.peers {
		if !slices.Contains(p.ready(name), p.name) {
			continue
		}
		for range 3 - p.s.InFlight()[uidOf(name)] {
			clients.Go(func() {
				lease, err := p.s.Serve(ctx, Want{UID: uidOf(name)})
				if err == nil {
					<-ctx.Done()
					lease.Done(nil)
				}
			})
		}
	}
	c.pass(pressedAfter + 5*time.Second)
	over()
	clients.Wait()
	c.pass(loadTime + time.Second)
}
