package p2p

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/p2p/liveness"
	"relay/p2p/membership"
)

// seeds is how many different orders of events each test of silence sees.
const seeds = 20

// others are the machines but one.
func (w *world) others(but int) []*machine {
	return slices.Concat(w.machines[:but], w.machines[but+1:])
}

// all waits until a member looks like this to all the machines.
func (w *world) all(within time.Duration, machines []*machine, what liveness.State, of *machine) time.Duration {
	w.t.Helper()
	return w.wait(within, fmt.Sprintf("%s is %s", of.Name, what), func() bool {
		return agree(machines, what, of)
	})
}

// hold lets time pass in which none of the machines sees a member in a state.
func (w *world) hold(during time.Duration, machines []*machine, never liveness.State, of ...*machine) {
	w.t.Helper()
	for began := time.Now(); time.Since(began) < during; pass(50 * time.Millisecond) {
		for _, m := range machines {
			for _, other := range of {
				if m != other && look(m, other) == never {
					w.t.Fatalf("after %s %s is %s to %s", time.Since(began), other.Name, never, m.Name)
				}
			}
		}
	}
}

// TestASilentPeerIsSuspectAndThenGone: a machine of which nothing is heard any
// more, frozen or cut off, at any moment between two probes.
func TestASilentPeerIsSuspectAndThenGone(t *testing.T) {
	var suspect, gone time.Duration
	for seed := range uint64(seeds) {
		simulate(t, 5, seed, func(t *testing.T, w *world) {
			w.wait(10*time.Second, "all alive", w.settled)
			pass(5*time.Second + w.jitter(time.Second))
			frozen, rest := w.machines[2], w.others(2)
			w.cut(func(a, _ int) bool { return a == 2 })
			first := w.all(1500*time.Millisecond, rest, liveness.Suspect, frozen)
			then := first + w.all(5*time.Second-first, rest, liveness.Gone, frozen)
			suspect, gone = max(suspect, first), max(gone, then)
			if !agree(rest, liveness.Alive, rest...) {
				t.Error("the others do not see one another alive")
			}
			if !seesAlive(rest[0], 4)() {
				t.Error("what is listed is not what is known")
			}
			w.cut(func(int, int) bool { return false })
			w.wait(30*time.Second, "all alive again", w.settled)
		})
	}
	t.Logf("of %d, suspect after at most %s, gone after %s", seeds, suspect, gone)
}

func TestASlowPeerIsNeverGone(t *testing.T) {
	for seed := range uint64(seeds) {
		simulate(t, 4, seed, func(t *testing.T, w *world) {
			w.wait(10*time.Second, "all alive", w.settled)
			w.set(func(from, to int) time.Duration {
				if from == 1 || to == 1 {
					return 300*time.Millisecond + w.jitter(600*time.Millisecond)
				}
				return time.Millisecond + w.jitter(time.Millisecond)
			})
			w.hold(30*time.Second, w.machines, liveness.Gone, w.machines...)
		})
	}
}

func TestAPeerCutOffFromOneOtherIsNeverGone(t *testing.T) {
	for seed := range uint64(seeds) {
		simulate(t, 4, seed, func(t *testing.T, w *world) {
			w.wait(10*time.Second, "all alive", w.settled)
			pass(w.jitter(time.Second))
			w.cut(func(a, b int) bool { return a == 1 && b == 2 })
			w.all(1500*time.Millisecond, w.machines[1:2], liveness.Suspect, w.machines[2])
			w.hold(20*time.Second, w.machines, liveness.Gone, w.machines...)
			w.cut(func(int, int) bool { return false })
			w.wait(30*time.Second, "all alive again", w.settled)
		})
	}
}

// TestTwoHalvesHealToOneTable: both sides of a cut go on writing, for longer than
// the pauses between dials take to grow as long as they get.
func TestTwoHalvesHealToOneTable(t *testing.T) {
	var worst time.Duration
	for seed := range uint64(seeds) {
		simulate(t, 7, seed, func(t *testing.T, w *world) {
			took := w.heal(40*time.Second+w.jitter(10*time.Second), 3, 5*time.Second)
			worst = max(worst, took)
		})
	}
	t.Logf("of %d, all linked and one table at most %s after the cut", seeds, worst)
}

// TestTwoPeersFindEachOther: where nobody else comes back first. A dial of either
// that began before the cut ended may take five seconds to fail.
func TestTwoPeersFindEachOther(t *testing.T) {
	var worst time.Duration
	for seed := range uint64(seeds) {
		simulate(t, 2, seed, func(t *testing.T, w *world) {
			took := w.heal(40*time.Second+w.jitter(10*time.Second), 1, 6*time.Second)
			worst = max(worst, took)
		})
	}
	t.Logf("of %d, linked and one table at most %s after the cut", seeds, worst)
}

// heal cuts the first machines off from the others for a time, and says how long
// it then takes until all are linked and have all that was written on both sides.
func (w *world) heal(during time.Duration, first int, within time.Duration) time.Duration {
	w.t.Helper()
	w.wait(10*time.Second, "all alive", w.settled)
	w.cut(func(a, b int) bool { return a < first && b >= first })
	cut := time.Now()
	for _, m := range w.machines[:first] {
		w.all(5*time.Second, w.machines[first:], liveness.Gone, m)
	}
	for i, m := range w.machines {
		if err := m.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: nameOf(i)}); err != nil {
			w.t.Fatal(err)
		}
		pass(time.Second)
	}
	w.wait(20*time.Second, "one table on each side", func() bool {
		return sameState(w.machines[:first]...)() && sameState(w.machines[first:]...)()
	})
	if sameState(w.machines...)() {
		w.t.Fatal("the two sides were not cut off from each other")
	}
	pass(during - time.Since(cut))
	w.cut(func(int, int) bool { return false })
	return w.wait(within, "all alive and one table", func() bool { return w.settled() && sameState(w.machines...)() })
}

// TestAllSeeADeadPeerGoneThatFewAreLinkedTo: of forty, each has links to some,
// and learns of the rest by what those say.
func TestAllSeeADeadPeerGoneThatFewAreLinkedTo(t *testing.T) {
	for seed := range uint64(2) {
		simulate(t, 40, seed, func(t *testing.T, w *world) {
			t.Logf("all alive after %s", w.wait(20*time.Second, "all alive", w.settled))
			for _, m := range w.machines {
				if n := len(m.host.Network().Peers()); n < 16 || n > 24 {
					t.Errorf("%s has %d links", m.Name, n)
				}
			}
			w.hold(5*time.Second+w.jitter(time.Second), w.machines, liveness.Suspect, w.machines...)
			dead, rest := w.machines[7], w.others(7)
			far := slices.DeleteFunc(slices.Clone(rest), func(m *machine) bool { return m.links.isLinked(dead.Self()) })
			if len(far) < 10 {
				t.Fatalf("only %d are without a link to it", len(far))
			}
			w.cut(func(a, _ int) bool { return a == 7 })
			near := slices.DeleteFunc(slices.Clone(rest), func(m *machine) bool { return slices.Contains(far, m) })
			t.Logf("%d linked ones see it gone after %s", len(near), w.all(5*time.Second, near, liveness.Gone, dead))
			t.Logf("all %d after %s more", len(rest), w.all(600*time.Millisecond, rest, liveness.Gone, dead))
			if !agree(rest, liveness.Alive, rest...) {
				t.Error("the others do not see one another alive")
			}
			w.hold(10*time.Second, rest, liveness.Alive, dead)
			w.cut(func(int, int) bool { return false })
			t.Logf("all alive again after %s", w.wait(40*time.Second, "all alive again", w.settled))
		})
	}
}
