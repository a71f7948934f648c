package neighbours

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"
)

func ids(seed, n int) []peer.ID {
	list := make([]peer.ID, n)
	for i := range list {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", seed, i))
		list[i] = peer.ID(sum[:])
	}
	return list
}

// mesh draws the ids of a mesh that is too large for links between all.
func mesh(t *rapid.T) []peer.ID {
	return ids(rapid.IntRange(0, 1<<30).Draw(t, "seed"), rapid.IntRange(All+1, 500).Draw(t, "members"))
}

func TestUpToAFewAllAreLinked(t *testing.T) {
	for _, n := range []int{0, 1, 2, All} {
		members := ids(1, n)
		g := New(members)
		for _, id := range members {
			if len(g.Of(id)) != n-1 || g.Linked(id, id) {
				t.Fatalf("of %d, one has %d links", n, len(g.Of(id)))
			}
		}
	}
	if links := New(ids(1, 3)).Of("nobody"); len(links) != 0 {
		t.Errorf("who is no member has links: %v", links)
	}
}

func TestEveryMemberHasItsLinksAndBothEndsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := mesh(t)
		g := New(members)
		other := New(rapid.Permutation(members).Draw(t, "order"))
		for _, id := range members {
			links := g.Of(id)
			if len(links) < Least || len(links) > Most {
				t.Fatalf("%d members, %d links", len(members), len(links))
			}
			if !slices.Equal(links, other.Of(id)) {
				t.Fatal("the order in which members are named changes their links")
			}
			for _, to := range links {
				if to == id || !g.Linked(id, to) || !g.Linked(to, id) || !slices.Contains(g.Of(to), id) {
					t.Fatal("the two ends of a link do not agree")
				}
			}
		}
	})
}

// eccentricity is how many links away the farthest of the members is, and how
// many are reached at all, over those that are up.
func eccentricity(g *Graph, from peer.ID, up map[peer.ID]bool) (far, reached int) {
	seen := map[peer.ID]bool{from: true}
	for edge := []peer.ID{from}; ; far++ {
		var next []peer.ID
		for _, id := range edge {
			for other := range g.of[id] {
				if up[other] && !seen[other] {
					seen[other] = true
					next = append(next, other)
				}
			}
		}
		if len(next) == 0 {
			return far, len(seen)
		}
		edge = next
	}
}

func all(members []peer.ID) map[peer.ID]bool {
	up := map[peer.ID]bool{}
	for _, id := range members {
		up[id] = true
	}
	return up
}

// TestNobodyIsFar: the times in liveness count on it.
func TestNobodyIsFar(t *testing.T) {
	for _, n := range []int{All + 1, 40, 50, 100, 200, 350, 500} {
		most := 0
		for seed := range 5 {
			members := ids(seed, n)
			g, up := New(members), all(members)
			for _, id := range members {
				far, reached := eccentricity(g, id, up)
				if reached != n {
					t.Fatalf("of %d, %d are reached", n, reached)
				}
				most = max(most, far)
			}
		}
		if t.Logf("%d members: at most %d links away", n, most); most > 4 || n <= 200 && most > 3 {
			t.Errorf("of %d, one is %d links away", n, most)
		}
	}
}

func TestItHoldsTogetherWithoutAThird(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := mesh(t)
		g := New(members)
		left := rapid.Permutation(members).Draw(t, "who goes")[len(members)/3:]
		far, reached := eccentricity(g, left[0], all(left))
		if reached != len(left) {
			t.Fatalf("of %d that are left, %d are reached", len(left), reached)
		}
		if far > 4 {
			t.Fatalf("one is %d links away", far)
		}
	})
}

// TestOneMoreChangesFewLinks: whoever comes or goes, few others change theirs.
func TestOneMoreChangesFewLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := mesh(t)
		more := New(append(slices.Clone(members), "one more"))
		ended, begun := 0, 0
		before := New(members)
		for i, a := range members {
			for _, b := range members[:i] {
				switch was, is := before.Linked(a, b), more.Linked(a, b); {
				case was && !is:
					ended++
				case is && !was:
					begun++
				}
			}
		}
		if ended > nearest+chords || begun > 0 {
			t.Fatalf("of %d members: %d links of others end, %d begin", len(members), ended, begun)
		}
	})
}
