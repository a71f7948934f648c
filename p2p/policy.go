package p2p

import (
	"cmp"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// SetPolicy changes what a member may decide and what it may see and run; an
// empty role or trust leaves that as it is. What an admin has written for all
// and whom it let in stays when it is one no more.
func (n *Node) SetPolicy(target peer.ID, role membership.Role, trust membership.Trust) error {
	roster := n.Roster()
	me, _ := roster.Member(n.self)
	m, in := roster.Member(target)
	role, trust = cmp.Or(role, m.Role), cmp.Or(trust, m.Trust)
	lowered := m.Role == membership.RoleAdmin && role != membership.RoleAdmin
	switch {
	case me.Role != membership.RoleAdmin:
		return fmt.Errorf("roles and trust are changed on an admin's machine: %w", membership.ErrNotAllowed)
	case !in:
		return membership.ErrNotMember
	case role == m.Role && trust == m.Trust:
		return nil
	case lowered && roster.Admins() < 2:
		return ErrLastAdmin
	case lowered && target == n.self:
		return ErrOwnRole
	}
	var stuck []record.Signed
	if lowered {
		var err error
		if stuck, err = n.adopt(target, keepsItsInvites); err != nil {
			return fmt.Errorf("take over what the machine wrote for all: %w", err)
		}
	}
	p := n.Roster().NextPolicy(n.self, target, "")
	p.Role, p.Trust = role, trust
	if err := n.PutOwned(membership.KindPolicy, membership.JudgementID(n.self, target), p); err != nil {
		return err
	}
	n.log.Info("policy set", "peer", short(target), "name", m.Name, "role", role, "trust", trust)
	if err := n.dropVoid(); err != nil {
		return err
	}
	return n.putAgain(stuck)
}

// cutLowered closes the connections of members that may less than before, so
// that nothing goes on that began under the rights they had. They connect again
// at once, under those they have.
func (n *Node) cutLowered(before, now *membership.Roster) {
	if before == nil {
		return
	}
	for _, m := range now.Members() {
		was, in := before.Member(m.ID)
		lower := m.Trust.Lower(was.Trust) || was.Role == membership.RoleAdmin && m.Role != membership.RoleAdmin
		if in && lower && m.ID != n.self {
			n.work.run(func() { _ = n.host.Network().ClosePeer(m.ID) })
		}
	}
}
