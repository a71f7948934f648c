package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	case roster.Revoked(target) || !roster.Proven(target): // Who has left by itself could come back.
		return membership.ErrNotMember
	case in && m.Role == membership.RoleAdmin && roster.Admins() < 2:
		return ErrLastAdmin
	}
	stuck, err := n.adopt(target, losesItsInvites)
	if err != nil {
		return fmt.Errorf("take over what stands of the machine's records: %w", err)
	}
	if err := n.PutOwned(membership.KindRevocation, membership.JudgementID(n.self, target), n.revocationOf(target, wipe)); err != nil {
		return err
	}
	n.log.Info("revoked", "peer", short(target), "name", m.Name)
	if err := n.dropVoid(); err != nil {
		return err
	}
	return n.putAgain(stuck)
}

func (n *Node) revocationOf(target peer.ID, wipe bool) membership.Revocation {
	v := n.Roster().Standing(target)
	v.Wipe = wipe
	return v
}

// What becomes of the invites of one that is no admin any more.
type inviteFate bool

const (
	// losesItsInvites: who has its machine may have them.
	losesItsInvites inviteFate = false
	// keepsItsInvites: but those that make admins.
	keepsItsInvites inviteFate = true
)

// adopt writes again what the target wrote for everybody: its own judgements, and
// shared records, deleted ones included. It all counts for this peer's own share
// from then on, so of a target that filled its own no more is taken over than
// leaves room to write and to judge the next one: what is not is void, as if it
// had never been. The deleted ones are last: one that is lost comes back only
// where a peer has missed all that came since.
//
// The records that nothing can replace, since their versions are used up, are
// returned: their keys are free when those are void.
func (n *Node) adopt(target peer.ID, fate inviteFate) (stuck []record.Signed, err error) {
	roster, most := n.Roster(), n.table.MaxShare()
	lost := 0
	for _, s := range n.writtenForAll(target) {
		share := n.table.Share(n.self)
		full := share.Records >= most.Records/4*3 || share.Bytes >= most.Bytes/4*3
		var err error
		switch {
		case s.Kind == membership.KindErased:
			if whom, no := membership.JudgementTarget(s.ID); no == nil && !s.Deleted {
				_, err = n.table.PutOwned(membership.KindErased, membership.JudgementID(n.self, whom), nil)
			}
		case isJudgement(s.Kind):
			err = n.adoptJudgement(roster, s)
		case full:
			lost++
		default:
			if err = n.takeOver(s, fate); errors.Is(err, record.ErrExhausted) {
				stuck = append(stuck, s)
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if lost > 0 {
		n.log.Warn("the machine had written more than can be taken over: the rest of it is void", "peer", short(target), "records", lost)
	}
	return stuck, nil
}

// putAgain writes what was stuck, once it is gone, in this peer's name.
func (n *Node) putAgain(stuck []record.Signed) error {
	for _, s := range stuck {
		if s.Deleted || s.Kind == membership.KindInvite {
			continue
		}
		if _, err := n.table.PutShared(s.Kind, s.ID, s.Payload); err != nil {
			return err
		}
	}
	return nil
}

// takeOver writes a shared record again in this peer's name.
func (n *Node) takeOver(s record.Signed, fate inviteFate) error {
	dead := s.Deleted
	if s.Kind == membership.KindInvite && !dead {
		var i membership.Issue
		dead = fate == losesItsInvites || record.Unmarshal(s.Payload, &i) != nil || i.Role == membership.RoleAdmin
	}
	_, err := n.table.TakeOver(s, dead)
	if errors.Is(err, record.ErrSuperseded) || errors.Is(err, record.ErrNotFound) {
		return nil // Somebody else has.
	}
	return err
}

// writtenForAll lists the records that an admin's rights let it write for
// everybody: judgements, then what is live, then what is deleted.
func (n *Node) writtenForAll(author peer.ID) []record.Signed {
	list := slices.DeleteFunc(n.table.All(), func(s record.Signed) bool {
		return s.Author != author || s.Kind != membership.KindErased && !isJudgement(s.Kind) && n.rules[s.Kind] != record.Shared
	})
	order := func(s record.Signed) int {
		switch {
		case n.rules[s.Kind] != record.Shared:
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
	about, err := membership.JudgementTarget(s.ID)
	if err != nil || about == n.self || about == s.Author || !roster.Proven(about) {
		return nil
	}
	id := membership.JudgementID(n.self, about)
	if s.Kind == membership.KindPolicy {
		return n.PutOwned(membership.KindPolicy, id, roster.NextPolicy(n.self, about, s.Author))
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
	if !n.Roster().Judged() {
		return nil
	}
	var lost []string
	var roster *membership.Roster // As it is while nothing is written.
	err := n.table.Void(func(r record.Record) bool {
		if roster == nil {
			roster = n.Roster()
		}
		rule, known := n.rules[r.Kind]
		if !known {
			rule = record.Foreign
		}
		stands := roster.Stands(r, rule)
		if !stands && (rule == record.Shared || rule == record.Foreign) && len(lost) < maxListed {
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

// revokedPatience is how long a peer that finds itself revoked looks for records
// that say otherwise: it may have heard of a revocation before it hears that the
// one who wrote it was revoked.
const revokedPatience = 3 * time.Second

// heedRevocation ends the node of a peer that is revoked and stays so.
func (n *Node) heedRevocation(roster *membership.Roster) error {
	switch now := time.Now(); {
	case !roster.Revoked(n.self):
		n.revoked = time.Time{}
	case n.revoked.IsZero():
		n.revoked = now
	case now.Sub(n.revoked) < revokedPatience:
	case !roster.WipeOrdered(n.self), n.Surveyed(): // What is erased does not come back: everybody is heard first.
		return ErrRevoked
	}
	return nil
}

// AwaitStanding returns once this peer is not revoked, by the records that it has
// heard; at once if it never was. It ends with ctx.
func (n *Node) AwaitStanding(ctx context.Context) error {
	changed, cancel := n.table.Subscribe()
	defer cancel()
	for n.Roster().Revoked(n.self) {
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// takeOverStranded writes again, where this peer is an admin, what those had
// written for all who have put one another out.
func (n *Node) takeOverStranded(roster *membership.Roster) {
	if m, _ := roster.Member(n.self); m.Role != membership.RoleAdmin || !roster.AnyStranded() {
		return
	}
	for _, s := range n.table.All() {
		if n.rules[s.Kind] == record.Shared && roster.Stranded(s.Author) {
			if err := n.takeOver(s, losesItsInvites); err != nil {
				n.log.Warn("a record of one that is out was not taken over", "key", s.Key(), "error", err)
			}
		}
	}
}
