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
	issues  map[string]issue
	used    map[string]int
}

type issue struct {
	Issue
	author  peer.ID
	deleted bool
}

// NewRoster evaluates the membership and invite records of a mesh, deleted ones
// included. It starts from what the mesh key signed and adds whoever is proven
// by those already in, so that no ring of members can vouch for itself.
func NewRoster(mesh MeshID, records []record.Record) *Roster {
	r := &Roster{mesh: mesh, members: map[peer.ID]Member{}, issues: map[string]issue{}, used: map[string]int{}}
	grants := map[peer.ID]Grant{}
	for _, rec := range records {
		switch rec.Kind {
		case KindMember:
			var g Grant
			if !rec.Deleted && record.Unmarshal(rec.Payload, &g) == nil {
				grants[rec.Author] = g
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
			member, verdict := r.judge(id, g)
			if verdict == record.Allowed {
				r.members[id] = member
				delete(grants, id)
				grown = true
			}
		}
	}
	for _, m := range r.members {
		if m.Invite != "" {
			r.used[m.Invite]++
		}
	}
	return r
}

// judge works out what a grant makes of a peer: Unknown while a record that it
// leans on has not arrived.
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
	i, known := r.issues[g.Invite]
	if !known {
		return Member{}, record.Unknown
	}
	admitter, err := peer.Decode(g.Admitter)
	if err != nil || !i.SignedByInvite(r.mesh, id, g.InviteSig) || !verifiedBy(admitter, admitClaim(r.mesh, id, g.Invite, g.Stamp), g.AdmitSig) {
		return Member{}, record.Denied
	}
	if r.members[i.author].Role != RoleAdmin {
		return Member{}, record.Unknown
	}
	if _, in := r.members[admitter]; !in {
		return Member{}, record.Unknown
	}
	return Member{ID: id, Name: g.Name, Role: i.Role, Trust: i.Trust, Invite: g.Invite}, record.Allowed
}

// Admit says whether a membership record proves what it claims.
func (r *Roster) Admit(rec record.Record) record.Verdict {
	if rec.Deleted { // Leaving needs no proof, only its own signature.
		_, in := r.members[rec.Author]
		return known(in)
	}
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
	if !ok || r.members[found.author].Role != RoleAdmin {
		return Issue{}, false, 0, false
	}
	return found.Issue, found.deleted, r.used[id], true
}

// Chain lists the keys of the records that prove a member, the mesh key's own
// grant first and the member's record last: what a machine that knows nothing
// needs in order to believe it. It is empty for a peer that is no member.
func (r *Roster) Chain(id peer.ID, grant func(peer.ID) (Grant, bool)) []string {
	var keys []string
	seen := map[string]bool{}
	var visit func(peer.ID) bool
	visit = func(id peer.ID) bool {
		key := KindMember + "/" + id.String()
		if seen[key] {
			return true
		}
		seen[key] = true
		g, ok := grant(id)
		if !ok {
			return false
		}
		if len(g.Root) == 0 {
			i, known := r.issues[g.Invite]
			admitter, err := peer.Decode(g.Admitter)
			if !known || err != nil || !visit(i.author) || !visit(admitter) {
				return false
			}
			if inviteKey := KindInvite + "/" + g.Invite; !seen[inviteKey] {
				seen[inviteKey] = true
				keys = append(keys, inviteKey)
			}
		}
		keys = append(keys, key)
		return true
	}
	if !visit(id) {
		return nil
	}
	return keys
}
