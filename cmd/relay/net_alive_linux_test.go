package main_test

import (
	"fmt"
	"testing"
	"time"

	"relay/cmd/lab"
)

const (
	// suspectWithin and goneWithin are what the mesh promises, from the moment
	// something happens to a peer to the moment the others know.
	suspectWithin = 1500 * time.Millisecond
	goneWithin    = 5 * time.Second
	// looks is how often the others are asked.
	looks = 20 * time.Millisecond
)

// TestNetSilenceIsNoticed: whatever makes a peer silent, every other one routes
// away from it, and then plans without it, in time.
func TestNetSilenceIsNoticed(t *testing.T) {
	n := newNetwork(t)
	n.machines("a", "b", "c", "d")
	n.mesh("a", "b", "c", "d")
	others := []string{"a", "b", "c"}
	for _, kind := range []struct {
		what          string
		begin, mended func() error
	}{
		{"pulled", func() error { return n.Pull("d") }, func() error { return n.Plug("d") }},
		{"frozen", func() error { return n.peers["d"].Freeze() }, func() error { return n.peers["d"].Thaw() }},
		{"killed", func() error { return n.stage.Kill(n.peers["d"]) }, nil},
	} {
		began := time.Now()
		n.must(kind.begin())
		suspect, gone := n.watchFall("d", others, began)
		t.Logf("%s: suspect after %.2f s, gone after %.2f s", kind.what, suspect.Seconds(), gone.Seconds())
		if suspect > suspectWithin || gone > goneWithin {
			t.Errorf("%s: suspect after %s, gone after %s", kind.what, suspect, gone)
		}
		if kind.mended != nil {
			n.must(kind.mended())
			n.allAlive(60*time.Second, "a", "b", "c", "d")
		}
	}
}

// watchFall waits until all the others see a peer as gone, and says how long
// after it began the last of them saw it as not alive, and as gone.
func (n *network) watchFall(victim string, others []string, began time.Time) (suspect, gone time.Duration) {
	n.Helper()
	falling, fallen := map[string]bool{}, map[string]bool{}
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for len(fallen) < len(others) {
		if time.Since(began) > 4*goneWithin {
			n.Fatalf("only %v see that %s is gone", fallen, victim)
		}
		for _, by := range others {
			state := n.states(by)[victim]
			if state != "alive" && !falling[by] {
				falling[by], suspect = true, time.Since(began)
			}
			if state == "gone" && !fallen[by] {
				fallen[by], gone = true, time.Since(began)
			}
		}
		<-tick.C
	}
	return suspect, gone
}

// TestNetNotGone: a peer behind a link that is slow and loses packets is never
// taken for gone, and neither are two that only cannot reach one another.
func TestNetNotGone(t *testing.T) {
	n := newNetwork(t)
	t.Parallel() // It waits for a minute.
	n.machines("a", "b", "c")
	n.must(n.AddSlow("slow", lab.Slow{Delay: 200 * time.Millisecond, Loss: 0.02, Seed: 7}))
	names := []string{"a", "b", "c", "slow"}
	n.mesh("a", names[1:]...)
	n.must(n.Cut([]string{"b"}, []string{"c"}))
	suspects := map[string]int{}
	last := map[string]string{}
	for began := time.Now(); time.Since(began) < time.Minute; n.pass(looks) {
		for _, by := range names {
			for name, state := range n.states(by) {
				if state == "gone" {
					t.Fatalf("%s takes %s for gone after %s", by, name, time.Since(began))
				}
				way := by + "→" + name
				if state != last[way] && state == "suspect" {
					suspects[way]++
				}
				last[way] = state
			}
		}
	}
	t.Logf("suspected: %v", suspects)
	if suspects["b→c"] == 0 || suspects["c→b"] == 0 {
		t.Errorf("b and c were not cut from one another: suspected %v", suspects)
	}
}

// TestNetBehindOneRouter: a dozen peers behind one address join one seed, and
// all are connected and stay so.
func TestNetBehindOneRouter(t *testing.T) {
	n := newNetwork(t)
	t.Parallel()
	n.machines("seed")
	n.must(n.AddRouter("router"))
	n.up("seed")
	invite := n.invite("seed", "--uses", "12")
	names := []string{"seed"}
	for i := range 12 {
		name := fmt.Sprint("home", i+1)
		n.must(n.AddBehind("router", name))
		n.up(name, "--join", invite)
		names = append(names, name)
	}
	n.allAlive(30*time.Second, names...)
	for began := time.Now(); time.Since(began) < 30*time.Second; n.pass(500 * time.Millisecond) {
		for _, by := range names {
			for name, state := range n.states(by) {
				if state == "gone" {
					t.Fatalf("%s takes %s for gone after %s", by, name, time.Since(began))
				}
			}
		}
	}
	n.allAlive(5*time.Second, names...)
}
