package scheduler

import (
	"maps"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/liveness"
	"relay/p2p/membership"
)

// A distance that wobbles is not told anew, and one that matters to nobody is not told.
func TestDistancesThatAreTold(t *testing.T) {
	id := peer.ID("somebody")
	away := func(rtt time.Duration, state liveness.State) []p2p.Peer {
		return []p2p.Peer{{Member: membership.Member{ID: id}, RTT: rtt, State: state}}
	}
	told := func(micros uint64) map[string]uint64 { return map[string]uint64{id.String(): micros} }
	for name, test := range map[string]struct {
		told  map[string]uint64
		peers []p2p.Peer
		want  map[string]uint64
	}{
		"near":                     {nil, away(900*time.Microsecond, liveness.Alive), nil},
		"far":                      {nil, away(20*time.Millisecond, liveness.Alive), told(20000)},
		"about as far":             {told(20000), away(70*time.Millisecond, liveness.Alive), told(20000)},
		"much farther":             {told(20000), away(90*time.Millisecond, liveness.Alive), told(90000)},
		"a little nearer":          {told(1500), away(700*time.Microsecond, liveness.Alive), told(1500)},
		"much nearer":              {told(20000), away(2*time.Millisecond, liveness.Alive), told(2000)},
		"far, and does not answer": {told(20000), away(20*time.Millisecond, liveness.Suspect), nil},
	} {
		if got := roundTrips(test.told, test.peers); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
