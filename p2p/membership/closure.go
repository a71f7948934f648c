package membership

import (
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// proof is a membership record that holds.
type proof struct {
	key    string
	holder peer.ID
	leans  []peer.ID // On these being proven; empty for the mesh key's own.
	// grounds are the judgements without which it would not hold.
	grounds []int
	// admin: it makes an admin. live: the holder has not left since.
	admin, live bool
	admission   string
}

// assumption is how judgements count that are not decided yet.
type assumption int

const (
	// anyRight: nothing limits anybody, and whoever was ever made an admin is
	// one. It only grows with the records that are known.
	anyRight assumption = iota
	// leastRight: they limit, and give nothing.
	leastRight
	// mostRight: they give, and limit nothing.
	mostRight
)

// closure is who is proven, from the mesh key outwards, under an assumption.
type closure struct {
	*dispute
	assume assumption

	proven map[peer.ID]Member // With the role and trust of their proofs.
	proofs []proof
	order  []claimed // Those of proofs.
	// depth is how many admissions lie between the mesh key and a peer, and rank
	// how many acts by which somebody became an admin: where both are more than
	// one, the least.
	depth, rank map[peer.ID]int
	// admins are what admin answers, once that can change no more.
	admins map[peer.ID]standing
	// ever are those who were an admin at any time, where any right is assumed.
	ever map[peer.ID]bool
}

// standing is whether a peer decides, and by which policy.
type standing struct {
	is bool
	by int
}

// close works out a closure.
func (d *dispute) close(assume assumption) *closure {
	c := &closure{dispute: d, assume: assume, proven: map[peer.ID]Member{}, depth: map[peer.ID]int{}, rank: map[peer.ID]int{},
		ever: map[peer.ID]bool{}}
	left := slices.Clone(d.claims)
	for grown := true; grown; {
		grown = c.raise()
		left = slices.DeleteFunc(left, func(m claimed) bool {
			verdict, grounds := c.judge(m)
			if verdict == record.Allowed {
				c.prove(m, grounds)
				grown = true
			}
			return verdict != record.Unknown
		})
	}
	admins := map[peer.ID]standing{}
	for id := range c.proven {
		is, by := c.admin(id)
		admins[id] = standing{is, by}
	}
	c.admins = admins
	return c
}

// prove takes a grant in. Of several grants of one peer each counts for what it
// gives.
func (c *closure) prove(m claimed, grounds []int) {
	c.proofs = append(c.proofs, proof{record.Key(KindMember, m.ID), m.Author, m.leans, grounds,
		m.member.Role == RoleAdmin, !m.Deleted, m.admission})
	c.order = append(c.order, m)
	depth := 0
	for _, id := range m.leans {
		depth = max(depth, c.depth[id]+1)
	}
	if _, known := c.proven[m.Author]; !known || depth < c.depth[m.Author] {
		c.depth[m.Author] = depth
	}
	c.proven[m.Author] = greater(c.proven[m.Author], m.member)
	if m.member.Role == RoleAdmin {
		if len(m.leans) > 0 { // Whoever was made an admin weighs less than who made it one.
			depth = max(depth, c.rank[m.leans[leanAuthor]]+1)
		}
		c.rise(m.Author, depth)
	}
}

// rise notes that a peer became an admin.
func (c *closure) rise(id peer.ID, rank int) {
	if was, known := c.rank[id]; !known || rank < was {
		c.rank[id] = rank
	}
	c.ever[id] = true
}

// raise notes who was made an admin by one who ever was, and says whether that
// was news.
func (c *closure) raise() (grown bool) {
	for i := range c.judgements {
		j := &c.judgements[i]
		if _, in := c.proven[j.target]; in && j.raises() && c.ever[j.author] && !c.ever[j.target] {
			c.rise(j.target, max(c.depth[j.target], c.rank[j.author]+1))
			grown = true
		}
	}
	return grown
}

// judge says whether a grant holds beside those that are proven so far, and by
// which judgements: Unknown while the membership of somebody whom it leans on
// has not arrived.
func (c *closure) judge(m claimed) (record.Verdict, []int) {
	if !m.good {
		return record.Denied, nil
	}
	var grounds []int
	for i, lean := range m.leans {
		if _, in := c.proven[lean]; !in {
			return record.Unknown, nil
		}
		stands, by := !c.revoked(lean), none
		if i == leanAuthor || m.member.Role == RoleAdmin { // One who is none makes no admins.
			stands, by = c.admin(lean)
		}
		if !stands {
			if by = c.adopter(lean, m.Author); by == none {
				return record.Unknown, nil
			}
		}
		if by != none {
			grounds = append(grounds, by)
		}
	}
	return record.Allowed, grounds
}

// limits says whether a judgement that takes rights away is in force.
func (c *closure) limits(i int) bool {
	return c.assume != anyRight && (c.verdicts[i] == counts || c.verdicts[i] == open && c.assume == leastRight)
}

// gives says whether a judgement that gives rights is in force.
func (c *closure) gives(i int) bool {
	if c.assume == anyRight {
		return c.ever[c.judgements[i].author]
	}
	return c.verdicts[i] == counts || c.verdicts[i] == open && c.assume == mostRight
}

// revoked says whether a peer is out.
func (c *closure) revoked(id peer.ID) bool {
	return slices.ContainsFunc(c.about[id], func(i int) bool { return c.judgements[i].revokes && c.limits(i) })
}

// none stands for no judgement.
const none = -1

// admin says whether a peer decides, and by which policy: none where it does by
// its own proofs.
func (c *closure) admin(id peer.ID) (is bool, by int) {
	if c.assume == anyRight {
		return c.ever[id], none
	}
	if s, known := c.admins[id]; known {
		return s.is, s.by
	}
	return c.isAdmin(id)
}

func (c *closure) isAdmin(id peer.ID) (is bool, by int) {
	m, in := c.proven[id]
	if !in || c.revoked(id) {
		return false, none
	}
	is, by = m.Role == RoleAdmin, none
	last := &judgement{}
	for _, i := range c.about[id] {
		j := &c.judgements[i]
		if j.revokes || j.author == id || !j.outranks(last) { // Nobody changes its own role.
			continue
		}
		switch {
		case j.limits() && c.limits(i):
			is, by, last = false, none, j
		case !j.limits() && c.gives(i):
			is, by, last = true, i, j
		}
	}
	return is, by
}

// adopter is a judgement by which a peer stays that leans on another one.
func (c *closure) adopter(lean, id peer.ID) int {
	for _, i := range c.about[lean] {
		if c.gives(i) && c.judgements[i].adopted[id] {
			return i
		}
	}
	return none
}

// policy is the last one about a member that is in force.
func (c *closure) policy(id peer.ID) (Policy, bool) {
	last := &judgement{}
	for _, i := range c.about[id] {
		if j := &c.judgements[i]; !j.revokes && c.verdicts[i] == counts && j.outranks(last) {
			last = j
		}
	}
	return last.policy, last.policy.Round > 0
}
