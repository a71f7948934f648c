package p2p

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// rosterCache keeps the roster until a record that it follows from changes.
type rosterCache struct {
	mu      sync.Mutex
	from    [2]uint64
	current *membership.Roster
}

// Roster is who is a member right now, by the records that this peer has.
func (n *Node) Roster() *membership.Roster {
	c := &n.roster
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.table == nil { // While the table is being read.
		return membership.NewRoster(n.Mesh, nil)
	}
	from := [2]uint64{n.table.Revision(membership.KindMember), n.table.Revision(membership.KindInvite)}
	if c.current == nil || c.from != from {
		var records []record.Record
		for _, kind := range []string{membership.KindInvite, membership.KindMember} {
			for _, s := range n.table.History(kind) {
				records = append(records, s.Record)
			}
		}
		c.current, c.from = membership.NewRoster(n.Mesh, records), from
	}
	return c.current
}

// rights answers the table's questions from the roster in force.
type rights struct{ n *Node }

func (r rights) May(author peer.ID, rule record.Rule, kind, id string) record.Verdict {
	return r.n.Roster().May(author, rule, kind, id)
}
