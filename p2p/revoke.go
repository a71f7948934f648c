package p2p

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// Revoke takes a member out of the mesh for ever. What stands of its records is
// written again in this peer's name; everything else that it ever signs is void.
// With wipe it is told to erase what it pulled.
func (n *Node) Revoke(target peer.ID, wipe bool) error {
	roster := n.Roster()
	me, _ := roster.Member(n.self)
	m, in := roster.Member(target)
	switch {
	case me.Role != membership.RoleAdmin:
		return fmt.Errorf("a machine is taken out on an admin's machine: %w", membership.ErrNotAllowed)
	case target == n.self:
		return ErrSelf
	case roster.Revoked(target) && wipe && !roster.WipeOrdered(target):
		return n.PutOwned(membership.KindRevocation, membership.JudgementID(n.self, target), n.revocationOf(target, true))
	case !in:
		return membership.ErrNotMember
	case m.Role == membership.RoleAdmin && roster.Admins() < 2:
		return ErrLastAdmin
	}
	if err := n.adopt(target); err != nil {
		return fmt.Errorf("take over what stands of the machine's records: %w", err)
	}
	if err := n.PutOwned(membership.KindRevocation, membership.JudgementID(n.self, target), n.revocationOf(target, wipe)); err != nil {
		return err
	}
	n.log.Info("revoked", "peer", short(target), "name", m.Name)
	return n.dropVoid()
}

func (n *Node) revocationOf(target peer.ID, wipe bool) membership.Revocation {
	v := n.Roster().Standing(target)
	v.Wipe = wipe
	return v
}

// adopt writes again what the target wrote for everybody: its own judgements, and
// shared records, deleted ones included. It all counts for this peer's own share
// from then on, so of a target that filled its own no more is taken over than
// leaves room to write and to judge the next one: what is not is void, as if it
// had never been. The deleted ones are last: one that is lost comes back only
// where a peer has missed all that came since.
func (n *Node) adopt(target peer.ID) error {
	roster, most := n.Roster(), n.table.MaxShare()
	lost := 0
	for _, s := range n.writtenForAll(target) {
		share := n.table.Share(n.self)
		full := share.Records >= most.Records/4*3 || share.Bytes >= most.Bytes/4*3
		switch {
		case isJudgement(s.Kind):
			if err := n.adoptJudgement(roster, s); err != nil {
				return err
			}
		case full:
			lost++
		default:
			if _, err := n.table.PutShared(s.Kind, s.ID, slices.Clone(s.Payload)); err != nil {
				return err
			}
			if s.Deleted {
				if _, err := n.table.DeleteShared(s.Kind, s.ID); err != nil {
					return err
				}
			}
		}
	}
	if lost > 0 {
		n.log.Warn("the machine had written more than can be taken over: the rest of it is void", "peer", short(target), "records", lost)
	}
	return nil
}

// writtenForAll lists the records that an admin's rights let it write for
// everybody: judgements, then what is live, then what is deleted.
func (n *Node) writtenForAll(author peer.ID) []record.Signed {
	list := slices.DeleteFunc(n.table.All(), func(s record.Signed) bool {
		return s.Author != author || !isJudgement(s.Kind) && n.rules[s.Kind] != record.Shared
	})
	order := func(s record.Signed) int {
		switch {
		case isJudgement(s.Kind):
			return 0
		case !s.Deleted:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b record.Signed) int { return cmp.Compare(order(a), order(b)) })
	return list
}

func isJudgement(kind string) bool {
	return kind == membership.KindRevocation || kind == membership.KindPolicy
}

// adoptJudgement writes a judgement of somebody else's about a peer in this
// peer's name.
func (n *Node) adoptJudgement(roster *membership.Roster, s record.Signed) error {
	_, whom, _ := strings.Cut(s.ID, "/")
	about, err := record.OwnerIsID(whom)
	if err != nil || about == n.self || about == s.Author {
		return nil
	}
	id := membership.JudgementID(n.self, about)
	if s.Kind == membership.KindPolicy {
		if _, in := roster.Member(about); !in {
			return nil
		}
		return n.PutOwned(membership.KindPolicy, id, roster.NextPolicy(n.self, about))
	}
	if !slices.Contains(roster.Revocations(about), s.Key()) {
		return nil // It does not count, and is not to.
	}
	var v membership.Revocation
	if err := record.Unmarshal(s.Payload, &v); err != nil {
		return err
	}
	return n.PutOwned(membership.KindRevocation, id, v)
}

// dropVoid drops what does not stand any more of those who were judged, and lists
// what of it nobody has taken over: what they did on the far side of a cut.
func (n *Node) dropVoid() error {
	roster := n.Roster()
	if !roster.Judged() {
		return nil
	}
	var lost []string
	err := n.table.Void(func(r record.Record) bool {
		rule, known := n.rules[r.Kind]
		if !known {
			rule = record.Foreign
		}
		stands := roster.Stands(r, rule)
		if !stands && rule == record.Shared && !r.Deleted && len(lost) < maxListed {
			lost = append(lost, r.Key())
		}
		return !stands
	})
	if len(lost) > 0 {
		n.log.Warn("records by a machine that lost its rights, which nobody had taken over, are void", "keys", strings.Join(lost, " "))
	}
	return err
}

// maxListed bounds the keys of one line of the log.
const maxListed = 32

// Leave takes this peer out of the mesh by itself: its membership records say
// so. The last admin of a mesh with others in it does not leave.
func (n *Node) Leave() error {
	roster := n.Roster()
	if m, ok := roster.Member(n.self); ok && m.Role == membership.RoleAdmin && roster.Admins() == 1 && len(roster.Members()) > 1 {
		return ErrLastAdmin
	}
	for _, s := range n.table.List(membership.KindMember) {
		if s.Author != n.self {
			continue
		}
		if _, err := n.table.DeleteOwned(membership.KindMember, s.ID); err != nil {
			return err
		}
	}
	return nil
}

// Recover makes this member an admin, by the mesh key itself.
func (n *Node) Recover(key membership.MeshKey) error {
	if key.ID() != n.Mesh {
		return fmt.Errorf("%w: it is of another mesh", membership.ErrCodeInvalid)
	}
	return n.putGrant(key.GrantAdmin(n.self, n.Name))
}

// InviteState is one invite and what became of it.
type InviteState struct {
	ID      string
	Issue   membership.Issue
	Used    int
	Revoked bool
}

// Invites lists the invites of the mesh, by id.
func (n *Node) Invites() []InviteState {
	roster := n.Roster()
	var list []InviteState
	for _, s := range n.table.History(membership.KindInvite) {
		if issue, deleted, used, ok := roster.Issue(s.ID, ""); ok {
			list = append(list, InviteState{s.ID, issue, used, deleted})
		}
	}
	return list
}

// RevokeInvite takes an invite back; who has joined by it stays.
func (n *Node) RevokeInvite(id string) error {
	_, err := n.table.DeleteShared(membership.KindInvite, id)
	return err
}
