package p2p

import (
	"testing"
	"time"

	"relay/p2p/membership"
)

// TestAPeerThatRestartsOftenIsHeard: one that ends again and again, after having
// written something, compares its records anew with each start. That is no flood:
// the other peer has everything soon after the last one.
func TestAPeerThatRestartsOftenIsHeard(t *testing.T) {
	simulate(t, 2, 1, func(t *testing.T, w *world) {
		w.wait(10*time.Second, "all alive", w.settled)
		attic, den := w.machines[0], w.machines[1]
		const starts = 150
		for i := range starts {
			if err := attic.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: nameOf(i)}); err != nil {
				t.Fatal(err)
			}
			attic.stop()
			attic.open(t, w.mesh, nameOf(0), func(*Node) error { return nil })
			w.wait(time.Second, "connected", func() bool { return attic.links.isLinked(den.Self()) })
			pass(w.jitter(300 * time.Millisecond))
		}
		for _, b := range den.Blamed() {
			t.Errorf("after %d starts it is blamed for %d things, and kept out for %s", starts, b.Dropped, b.Until)
		}
		took := w.wait(5*time.Second, "den has all", sameState(attic, den))
		t.Logf("den has all %s after the last of %d starts", took, starts)
	})
}

// TestHeard: a peer that is alone has nothing to hear, and one that starts in a mesh has
// not heard of it until it compared its records with somebody.
func TestHeard(t *testing.T) {
	attic := found(t, "attic")
	if !attic.Heard() {
		t.Error("a peer that is alone waits to hear from others")
	}
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "both have heard", func() bool { return attic.Heard() && den.Heard() })
	mesh := attic.Mesh
	attic.listen = attic.ListenAddrs() // Where den knows it.
	den.stop()
	attic.stop()
	den.open(t, mesh, "den", func(*Node) error { return nil })
	if den.Heard() {
		t.Error("den has heard from nobody, as nobody else runs")
	}
	attic.open(t, mesh, "attic", func(*Node) error { return nil })
	eventually(t, 20*time.Second, "both have heard", func() bool { return attic.Heard() && den.Heard() })
}
