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
	from    [len(rosterKinds)]uint64
	current *membership.Roster
}

// Roster is who is a member right now, by the records that this peer has.
func (n *Node) Roster() *membership.Roster {
	c := &n.roster
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.table == nil { // While the table is being read.
		return n.judge.Roster(nil)
	}
	var from [len(rosterKinds)]uint64
	for i, kind := range rosterKinds {
		from[i] = n.table.Revision(kind)
	}
	if c.current == nil || c.from != from {
		c.current, c.from = n.judge.Roster(n.membershipRecords()), from
	}
	return c.current
}

// rosterKinds are what a roster follows from.
var rosterKinds = [...]string{membership.KindRevocation, membership.KindPolicy, membership.KindErased, membership.KindInvite,
	membership.KindAdmission, membership.KindMember}

func (n *Node) membershipRecords() []record.Record {
	var records []record.Record
	for _, kind := range rosterKinds {
		for _, s := range n.table.History(kind) {
			records = append(records, s.Record)
		}
	}
	return records
}

// rights answers the table's questions from the roster in force.
type rights struct{ n *Node }

func (r rights) May(author peer.ID, rule record.Rule, kind, id string) record.Verdict {
	return r.n.Roster().May(author, rule, kind, id)
}
