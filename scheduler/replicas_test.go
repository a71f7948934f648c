package scheduler

import (
	"strings"
	"testing"
	"time"
)

// Requests that wait for a minute on every replica bring one more, as long as a peer
// has the file and up to the maximum; ten quiet minutes take one away. The next
// leader goes on with what there is.
func TestReplicasFollowTheLoad(t *testing.T) {
	bubble(t, 4, func(t *testing.T, c *cluster) {
		order := c.byRank(uidOf("m"))
		leader, door := order[0], order[3]
		c.hold("m", order[1:]...)
		door.register("m", 1<<30)
		c.pass(2 * time.Minute)
		c.want("ready", len(door.ready("m")), 1)
		press(t, c, "m")
		c.want("ready after a minute", len(door.ready("m")), 2)
		press(t, c, "m")
		c.want("ready after another", len(door.ready("m")), 3)
		press(t, c, "m")
		press(t, c, "m")
		c.want("ready: nobody else has the file", len(door.ready("m")), 3)
		c.want("engines of the one without", leader.engine.starts(), 0)
		leader.crash()
		c.pass(2 * time.Minute)
		c.want("ready under the new leader", len(door.ready("m")), 3)
		since := time.Now()
		for n := 3; n > 1; {
			c.pass(10 * time.Second)
			switch now := len(door.ready("m")); {
			case now == n:
			case now == n-1 && time.Since(since) >= 8*time.Minute: // Two have passed before.
				n, since = now, time.Now().Add(-2*time.Minute)
			default:
				t.Fatalf("%d ready after %d, %s later", now, n, time.Since(since))
			}
			if time.Since(since) > 15*time.Minute {
				t.Fatalf("%d ready for %s without a request", n, time.Since(since))
			}
		}
		c.pass(12 * time.Minute)
		c.want("ready", len(door.ready("m")), 1)
	})
}

func TestNeverMoreReplicasThanTheMaximum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("m", 1<<30, a)
		two := 2
		a.set("m", SetOptions{Max: &two})
		c.pass(time.Minute + 10*time.Second)
		press(t, c, "m")
		c.pass(fetchTime + loadTime) // Somebody said so: another one fetches it.
		c.want("ready", len(a.ready("m")), 2)
		c.pass(time.Minute)
		press(t, c, "m")
		c.pass(time.Minute)
		c.want("ready", len(a.ready("m")), 2)
		c.want("engines", c.peers[0].engine.count()+c.peers[1].engine.count()+c.peers[2].engine.count(), 2)
	})
}

// A minimum is kept, with files fetched for it; what cannot be had is refused, and
// what only has no room now is not.
func TestTheMinimum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		two, four := 2, 4
		if _, _, err := a.s.Set("m", SetOptions{Min: &four}); ReasonOf(err) != NoCapacity || !strings.Contains(err.Error(), "4 replicas wanted, and it could run on 3 peers") {
			t.Errorf("four on three peers: %v", err)
		}
		a.set("m", SetOptions{Min: &two})
		c.pass(fetchTime + loadTime + 2*time.Second)
		c.want("ready", len(a.ready("m")), 2)
		lost := c.peers[1]
		if lost.engine.count() == 0 {
			lost = c.peers[2]
		}
		lost.crash()
		c.pass(fetchTime + loadTime + 2*time.Second)
		c.want("ready after one is lost", len(a.ready("m")), 2)
		a.set("m", SetOptions{Min: ptr(3)}) // The one that is lost may come back.
	})
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a := c.peers[0]
		c.addModel("big", 3<<30, a)
		c.addModel("m", 3<<30, a, c.peers[1])
		c.pass(time.Minute)
		route, err := a.s.Route(t.Context(), Want{UID: "big"})
		if err != nil {
			t.Fatal(err)
		}
		two := 2
		a.set("m", SetOptions{Min: &two})
		c.pass(20 * time.Second)
		c.want("ready while the other is in use", a.ready("m"), []string{"b"})
		route.Done(nil)
		c.pass(10 * time.Minute)
		c.want("ready then", len(a.ready("m")), 2)
		c.want("big", a.ready("big"), []string{})
	})
}

func TestOnlyOnOnePeer(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.addModel("m", 1<<30, a)
		c.pass(10 * time.Second)
		for name, o := range map[string]SetOptions{"nobody": {Only: ptr("nobody")}, "two on one": {Only: ptr("b"), Min: ptr(2)}, "none": {}} {
			if _, _, err := a.s.Set("m", o); err == nil {
				t.Errorf("%s: not refused", name)
			}
		}
		a.set("m", SetOptions{Only: ptr("b")})
		c.pass(fetchTime + loadTime + 2*time.Second)
		c.want("ready", a.ready("m"), []string{"b"})
		b.crash()
		c.pass(time.Minute)
		c.want("ready without it", a.ready("m"), []string{})
		if got := <-a.ask("m"); ReasonOf(got.err) == ModelLoading || got.err == nil || !strings.Contains(got.err.Error(), "b does not answer") {
			t.Errorf("after %s: %v", got.after, got.err)
		}
		a.set("m", SetOptions{Only: ptr(c.peers[1].id.String()), Min: ptr(1)}) // It may come back.
		a.set("m", SetOptions{Min: ptr(0)})
		a.set("m", SetOptions{Only: ptr("")})
		c.pass(10 * time.Second)
		c.want("ready anywhere", a.ready("m"), []string{"a"})
	})
}

func ptr[T any](x T) *T { return &x }

// Where no holder has room another peer fetches the file; not while a holder is only
// in trouble for a moment, and not past its owner's limit.
func TestFetching(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.alone(b)
		c.addModel("m", 1<<30, a)
		c.pass(fetchTime + loadTime + 5*time.Second)
		c.want("ready", a.ready("m"), []string{"b"})
	})
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		a.engine.fail, a.engine.fails = Errorf(EngineFailed, "no"), 2
		c.addModel("m", 1<<30, a)
		c.pass(time.Minute)
		c.want("ready", b.ready("m"), []string{"a"})
		c.want("files of the other", len(b.List()), 0)
	})
	bubble(t, 2, func(t *testing.T, c *cluster) {
		a, b := c.peers[0], c.peers[1]
		c.alone(b)
		b.s.ModelsMax = 1 << 10
		c.addModel("m", 1<<30, a)
		c.pass(2 * time.Minute)
		c.want("files of the other", len(b.List()), 0)
		if got := <-a.ask("m"); got.err == nil || !a.decided("RELAY_MODELS_MAX") && !b.decided("RELAY_MODELS_MAX") { // Whoever leads has seen it.
			t.Errorf("%v, %+v", got.err, a.s.Decisions())
		}
		if epoch := a.s.newView().placements[uidOf("m")].version; epoch[2] > 30 {
			t.Errorf("%d orders in two minutes", epoch[2])
		}
	})
}
