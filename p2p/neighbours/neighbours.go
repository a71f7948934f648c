// Package neighbours says which members of a large mesh keep a link to one
// another. It is a function of the ids of all members alone, so that any two
// peers that know the same members agree, and it reads no clock and no network.
package neighbours

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// All is how many members all keep a link to all others.
	All = 32
	// Least and Most bound the links of a member where there are more.
	Least = 2 * nearest
	Most  = 2 * (nearest + chords)

	// On one ring, in the order of a hash, a member is linked to those nearest to
	// it on both sides; that alone makes Least links.
	nearest = 8
	// On each of some more rings, every one in an order of its own, it is linked
	// to the next on both sides. Those links cross the first ring, so that the
	// way between any two members is short, and the mesh holds together however
	// many are gone.
	chords = 4
)

// Graph is who keeps a link to whom.
type Graph struct{ of map[peer.ID]map[peer.ID]bool }

// New makes the graph of these members, each named once, in any order. A member
// that comes takes the place of others in links that exist: at most nearest +
// chords of them end.
func New(members []peer.ID) *Graph {
	g := &Graph{of: make(map[peer.ID]map[peer.ID]bool, len(members))}
	for _, id := range members {
		g.of[id] = map[peer.ID]bool{}
	}
	if len(members) <= All {
		for _, a := range members {
			for _, b := range members {
				g.link(a, b)
			}
		}
		return g
	}
	g.ring(members, "", nearest)
	for i := range chords {
		g.ring(members, strconv.Itoa(i), 1)
	}
	return g
}

// ring links each member with those up to reach steps from it on the ring that
// salt orders.
func (g *Graph) ring(members []peer.ID, salt string, reach int) {
	type place struct {
		at [sha256.Size]byte
		id peer.ID
	}
	places := make([]place, len(members))
	for i, id := range members {
		places[i] = place{sha256.Sum256([]byte("relay-ring/" + salt + "/" + string(id))), id}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(slices.Compare(a.at[:], b.at[:]), cmp.Compare(a.id, b.id))
	})
	for i, p := range places {
		for step := 1; step <= reach; step++ {
			g.link(p.id, places[(i+step)%len(places)].id)
		}
	}
}

func (g *Graph) link(a, b peer.ID) {
	if a != b {
		g.of[a][b], g.of[b][a] = true, true
	}
}

// Linked says whether two members keep a link to each other.
func (g *Graph) Linked(a, b peer.ID) bool { return g.of[a][b] }

// Of lists whom a member keeps a link to, in order.
func (g *Graph) Of(id peer.ID) []peer.ID {
	ids := make([]peer.ID, 0, len(g.of[id]))
	for other := range g.of[id] {
		ids = append(ids, other)
	}
	slices.Sort(ids)
	return ids
}
