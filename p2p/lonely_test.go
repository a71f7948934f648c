package p2p

import (
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
	"relay/p2p/neighbours"
)

// TestWhoLosesItsNeighboursIsLonely: and not who has enough of them, late ones
// included, nor one that has only just started.
func TestWhoLosesItsNeighboursIsLonely(t *testing.T) {
	var ids []peer.ID
	for i := range 40 {
		ids = append(ids, peer.ID(nameOf(i)))
	}
	lay := &layout{graph: neighbours.New(ids)}
	near := lay.graph.Of(ids[0])
	const at = time.Hour
	for _, c := range []struct {
		name        string
		alive, late int
		at          time.Duration
		lonely      bool
	}{
		{"all answer", len(near), 0, at, false},
		{"just enough", fewLinks, 0, at, false},
		{"too few", fewLinks - 1, 0, at, true},
		{"enough, but late", 0, fewLinks, at, false},
		{"just started", 0, 0, surveyPatience - 1, false},
	} {
		l := &links{n: &Node{self: ids[0]}, members: map[peer.ID]*link{}}
		heard := func(near []peer.ID, silence time.Duration) {
			for _, id := range near {
				k := &link{own: true}
				k.seen.Answer(c.at-silence, time.Millisecond)
				l.members[id] = k
			}
		}
		heard(near, liveness.GoneAfter)
		heard(near[:c.late], liveness.SuspectAfter)
		heard(near[:c.alive], 0)
		for _, id := range ids { // Who is no neighbour does not help.
			if !slices.Contains(near, id) {
				heard([]peer.ID{id}, 0)
			}
		}
		if got := l.isLonely(lay, c.at); got != c.lonely {
			t.Errorf("%s: lonely is %t", c.name, got)
		}
	}
}
