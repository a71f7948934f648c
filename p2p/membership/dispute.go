package membership

import (
	"cmp"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
)

// verdict is whether a judgement counts.
type verdict int

const (
	open verdict = iota
	counts
	void
)

// dispute is what a roster follows from: memberships, and what admins judge
// about members, other admins among them.
type dispute struct {
	claims     []claimed
	judgements []judgement
	verdicts   []verdict
	about      map[peer.ID][]int // Judgements by target.
	// any is the closure under which every right is assumed.
	any *closure
}

// newDispute leaves out judgements by those who never were an admin, and about
// those who never were a member.
func newDispute(claims []claimed, judgements []judgement) *dispute {
	d := &dispute{claims: claims}
	d.keep(judgements)
	d.any = d.close(anyRight)
	d.claims = d.any.order // Whoever is proven at all is then found in one go.
	d.keep(slices.DeleteFunc(slices.Clone(judgements), func(j judgement) bool {
		_, member := d.any.proven[j.target]
		return !member || !d.any.ever[j.author]
	}))
	return d
}

func (d *dispute) keep(judgements []judgement) {
	d.judgements, d.verdicts, d.about = judgements, make([]verdict, len(judgements)), map[peer.ID][]int{}
	for i := range judgements {
		d.about[judgements[i].target] = append(d.about[judgements[i].target], i)
	}
}

// maxKnots bounds the rings that are cut; what is open then is void. Each takes
// about as long as working out the roster of a mesh without judgements, and only
// a mesh of which a good part has turned against one another comes near it.
const maxKnots = 64

// settle decides which judgements count, and returns who is proven then. Those
// of an admin count; those of one who was limited are void, but for those
// against whoever limited it: of two that revoke one another both are out.
// Where rights hang on one another in a ring, the judgement of the one who became
// an admin by the fewest acts is heard first.
func (d *dispute) settle() *closure {
	for knots := 0; slices.Contains(d.verdicts, open); {
		switch {
		case d.decide():
		case knots < maxKnots:
			d.verdicts[d.knot()] = counts
			knots++
		default:
			for i, v := range d.verdicts {
				if v == open {
					d.verdicts[i] = void
				}
			}
		}
	}
	return d.close(leastRight) // Nothing is open, so that nothing is assumed.
}

// decide decides whatever can be decided whichever way the rest will be, and
// says whether that was anything.
func (d *dispute) decide() (progress bool) {
	least, most := d.close(leastRight), d.close(mostRight)
	decided := slices.Clone(d.verdicts)
	for i := range d.judgements {
		if d.verdicts[i] != open {
			continue
		}
		j := &d.judgements[i]
		if is, _ := least.admin(j.author); is {
			decided[i] = counts
		} else if is, _ := most.admin(j.author); !is {
			decided[i] = d.answer(most, j)
		}
		progress = progress || decided[i] != open
	}
	d.verdicts = decided
	return progress
}

// answer is the verdict on a judgement by one who is no admin: it counts where
// its author was one, until the one whom it is about took that away.
func (d *dispute) answer(most *closure, j *judgement) verdict {
	m, in := most.proven[j.author]
	if !in || j.author == j.target {
		return void
	}
	was, answers := void, void
	if m.Role == RoleAdmin {
		was = counts
	}
	for _, i := range d.about[j.author] {
		o := &d.judgements[i]
		if o.raises() {
			was = better(was, d.verdicts[i])
		}
		if o.limits() && o.author == j.target && (o.revokes || !j.revokes) { // Who lost a role takes one, and no more.
			answers = better(answers, d.verdicts[i])
		}
	}
	switch {
	case was == void || answers == void:
		return void
	case was == counts && answers == counts:
		return counts
	}
	return open
}

// better is the verdict of two of which either is enough.
func better(a, b verdict) verdict {
	switch {
	case a == counts || b == counts:
		return counts
	case a == open || b == open:
		return open
	}
	return void
}

// knot picks, of the open judgements that decide about their own ground, the one
// whose author became an admin by the fewest acts. It is the first of all where
// none does, which does not happen: what nothing hangs on is decided before.
func (d *dispute) knot() int {
	var left []int
	for i, v := range d.verdicts {
		if v == open {
			left = append(left, i)
		}
	}
	slices.SortFunc(left, func(i, o int) int {
		a, b := &d.judgements[i], &d.judgements[o]
		return cmp.Or(cmp.Compare(d.any.rank[a.author], d.any.rank[b.author]), cmp.Compare(a.author, b.author),
			cmp.Compare(a.target, b.target), cmp.Compare(a.key, b.key))
	})
	on := d.hangs()
	var author peer.ID
	var ground map[peer.ID]bool
	for _, i := range left {
		j := &d.judgements[i]
		if j.author != author {
			author, ground = j.author, reached(on, j.author)
		}
		if ground[j.target] {
			return i
		}
	}
	return left[0]
}

// hangs says on whom the rights of each peer hang while judgements are open.
func (d *dispute) hangs() map[peer.ID][]peer.ID {
	on := map[peer.ID][]peer.ID{}
	for i := range d.judgements {
		if d.verdicts[i] == open {
			on[d.judgements[i].target] = append(on[d.judgements[i].target], d.judgements[i].author)
		}
	}
	for _, m := range d.claims {
		on[m.Author] = append(on[m.Author], m.leans...)
	}
	return on
}

// reached are all on the ways from a peer along what it hangs on.
func reached(on map[peer.ID][]peer.ID, from peer.ID) map[peer.ID]bool {
	seen := map[peer.ID]bool{}
	for queue := []peer.ID{from}; len(queue) > 0; queue = queue[1:] {
		for _, id := range on[queue[0]] {
			if !seen[id] {
				seen[id] = true
				queue = append(queue, id)
			}
		}
	}
	return seen
}
