package p2p

import (
	"sync"
	"testing"
	"time"

	"relay/p2p/liveness"
)

// TestACrowdJoinsAtOnce: as many machines as one address has places for, all at
// the same moment, by the one peer that there is. None of them is turned away,
// and all become one mesh.
func TestACrowdJoinsAtOnce(t *testing.T) {
	first := found(t, nameOf(0))
	inv := invite(t, first, strangersPerAddress)
	machines := []*machine{first}
	for range strangersPerAddress {
		machines = append(machines, newMachine(t))
	}
	began := time.Now()
	var joins sync.WaitGroup
	for i, m := range machines[1:] {
		joins.Go(func() {
			a, err := Join(t.Context(), m.key, inv, nameOf(i+1), agent)
			if err != nil {
				t.Errorf("%s does not join: %v", nameOf(i+1), err)
			}
			m.admission = &a
		})
	}
	joins.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d joined in %s", len(machines)-1, time.Since(began).Round(time.Millisecond))
	for i, m := range machines[1:] {
		m.open(t, m.admission.Mesh, nameOf(i+1), func(n *Node) error { return n.Adopt(*m.admission) })
	}
	began = time.Now()
	eventually(t, 60*time.Second, "all see all alive, and one state", func() bool {
		return agree(machines, liveness.Alive, machines...) && sameState(machines...)()
	})
	t.Logf("one mesh %s after the last was started", time.Since(began).Round(time.Millisecond))
	for _, m := range machines {
		for _, b := range m.Blamed() {
			t.Errorf("%s blames %s for %d things", m.Name, short(b.Peer), b.Dropped)
		}
	}
}
