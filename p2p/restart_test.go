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
