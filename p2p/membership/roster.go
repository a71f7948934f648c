package membership

import (
	"cmp"
	"crypto/ed25519"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// Member is one machine of the mesh.
type Member struct {
	ID    peer.ID
	Name  string
	Role  Role
	Trust Trust
	// Invite is the id of the invite it joined with; empty for the founder.
	Invite string
}

// Roster is who is in, worked out from the records alone: the same records give
// the same roster on every peer. It is not changed once made.
type Roster struct {
	mesh    MeshID
	members map[peer.ID]Member
	// proven are the members and those who left: who they let in stays.
	proven map[peer.ID]Member
	issues map[string]issue
	used   map[string]int
}

// issue is an invite as the mesh's records have it now.
type issue struct {
	Issue
	author  peer.ID
	deleted bool
}

// NewRoster evaluates the membership and invite records of a mesh, deleted ones
// included. It starts from what the mesh key signed and adds whoever is proven
// by those already in, so that no ring of members can vouch for itself; and it
// leans on nothing that its holder can change, so that no right ends with the
// act that it allows.
func NewRoster(mesh MeshID, records []record.Record) *Roster {
	r := &Roster{mesh: mesh, members: map[peer.ID]Member{}, proven: map[peer.ID]Member{}, issues: map[string]issue{}, used: map[string]int{}}
	grants := map[peer.ID]Grant{}
	left := map[peer.ID]bool{}
	for _, rec := range records {
		switch rec.Kind {
		case KindMember:
			var g Grant
			if record.Unmarshal(rec.Payload, &g) == nil {
				grants[rec.Author], left[rec.Author] = g, rec.Deleted
			}
		case KindInvite:
			var i Issue
			if record.Unmarshal(rec.Payload, &i) == nil {
				r.issues[rec.ID] = issue{i, rec.Author, rec.Deleted}
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for id, g := range grants {
			switch member, verdict := r.judge(id, g); verdict {
			case record.Allowed:
				r.proven[id] = member
				grown = true
				fallthrough
			case record.Denied: // For good: nothing that comes changes it.
				delete(grants, id)
			}
		}
	}
	for id, m := range r.proven {
		if m.Invite != "" {
			r.used[m.Invite]++
		}
		if !left[id] {
			r.members[id] = m
		}
	}
	return r
}

// judge works out what a grant makes of a peer: Unknown while the membership of
// somebody it leans on has not arrived.
func (r *Roster) judge(id peer.ID, g Grant) (Member, record.Verdict) {
	if g.Mesh != r.mesh {
		return Member{}, record.Denied
	}
	if len(g.Root) > 0 {
		if len(g.Root) != ed25519.PublicKeySize || IDOf(g.Root) != r.mesh || !ed25519.Verify(g.Root, rootClaim(r.mesh, id), g.RootSig) {
			return Member{}, record.Denied
		}
		return Member{ID: id, Name: g.Name, Role: RoleAdmin, Trust: TrustReplicas}, record.Allowed
	}
	i, author, err := g.issued()
	if err != nil {
		return Member{}, record.Denied
	}
	invite := InviteID(i.Public)
	admitter, err := peer.Decode(g.Admitter)
	if err != nil || !i.SignedByInvite(r.mesh, id, g.InviteSig) || !verifiedBy(admitter, admitClaim(r.mesh, id, invite, g.Stamp), g.AdmitSig) {
		return Member{}, record.Denied
	}
	if r.proven[author].Role != RoleAdmin {
		return Member{}, record.Unknown
	}
	if _, in := r.proven[admitter]; !in {
		return Member{}, record.Unknown
	}
	return Member{ID: id, Name: g.Name, Role: i.Role, Trust: i.Trust, Invite: invite}, record.Allowed
}

// Admit says whether a membership record proves what it claims.
func (r *Roster) Admit(rec record.Record) record.Verdict {
	var g Grant
	if err := record.Unmarshal(rec.Payload, &g); err != nil {
		return record.Denied
	}
	_, verdict := r.judge(rec.Author, g)
	return verdict
}

// May says whether a peer may write records of a kind: the rule of record.Rights.
func (r *Roster) May(author peer.ID, rule record.Rule, _, _ string) record.Verdict {
	m, in := r.members[author]
	switch rule {
	case record.Shared:
		return known(in && m.Role == RoleAdmin)
	case record.Placement:
		return known(in && m.Trust == TrustReplicas)
	}
	return known(in)
}

func known(ok bool) record.Verdict {
	if ok {
		return record.Allowed
	}
	// The grant that makes it right may still be on its way.
	return record.Unknown
}

// Member looks a peer up.
func (r *Roster) Member(id peer.ID) (Member, bool) {
	m, ok := r.members[id]
	return m, ok
}

// Members lists everybody, ordered by name and id.
func (r *Roster) Members() []Member {
	list := make([]Member, 0, len(r.members))
	for _, m := range r.members {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Admins counts the admins.
func (r *Roster) Admins() int {
	n := 0
	for _, m := range r.members {
		if m.Role == RoleAdmin {
			n++
		}
	}
	return n
}

// Issue looks an invite up by its id, with how many peers have used it.
func (r *Roster) Issue(id string) (i Issue, deleted bool, used int, ok bool) {
	found, ok := r.issues[id]
	if !ok || r.proven[found.author].Role != RoleAdmin {
		return Issue{}, false, 0, false
	}
	return found.Issue, found.deleted, r.used[id], true
}

// Chain lists the peers whose membership records prove that a peer is a member,
// in an order in which each is proven by those before it: what a machine that
// knows nothing needs in order to believe it. grant looks a membership up, also
// of those who left. It is empty for a peer that cannot be proven.
func Chain(id peer.ID, grant func(peer.ID) (Grant, bool)) []peer.ID {
	var chain []peer.ID
	seen := map[peer.ID]bool{}
	var visit func(peer.ID) bool
	visit = func(id peer.ID) bool {
		if seen[id] {
			return true
		}
		seen[id] = true
		g, ok := grant(id)
		if !ok {
			return false
		}
		if len(g.Root) == 0 {
			_, author, err := g.issued()
			admitter, badID := peer.Decode(g.Admitter)
			if err != nil || badID != nil || !visit(author) || !visit(admitter) {
				return false
			}
		}
		chain = append(chain, id)
		return true
	}
	if !visit(id) {
		return nil
	}
	return chain
}
