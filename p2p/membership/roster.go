package membership

import (
	"cmp"
	"slices"
	"strings"

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
	judges  *Judge
	members map[peer.ID]Member
	// proven are the members and those who left: who they let in stays.
	proven map[peer.ID]Member
	// proofs are the grants that hold, each proven by those before it.
	proofs []proof
	issues map[string]issue
	// joiners are, by invite, who came by it or was countersigned to.
	joiners map[string]map[peer.ID]bool
	// withdrawn are the ids of admissions that were taken back.
	withdrawn map[string]bool
	// revoked are the peers that are out for ever, with what of theirs stands.
	revoked map[peer.ID]stands
	// counted are the ids of the revocations that count.
	counted     map[string]bool
	claims      []claimed
	revocations []revocation
	// depth is how many admissions lie between the mesh key and a peer.
	depth map[peer.ID]int
}

// proof is a membership record that holds.
type proof struct {
	key    string
	holder peer.ID
	leans  []peer.ID // On these being proven; empty for the mesh key's own.
}

// issue is an invite as the mesh's records have it now.
type issue struct {
	Issue
	author  peer.ID
	deleted bool
}

// claimed is a membership record, read and its signatures checked.
type claimed struct {
	record.Record
	facts
}

// NewRoster evaluates the membership, admission, revocation and invite records of
// a mesh, deleted ones included. It starts from what the mesh key signed and adds
// whoever is proven by those already in, so that no ring of members can vouch
// for itself. Records only ever add to who is proven, but for revocations, and
// for a countersignature that its own author takes back: no right ends with the
// act that it allows.
func NewRoster(mesh MeshID, records []record.Record) *Roster {
	return NewJudge(mesh).Roster(records)
}

// Roster is NewRoster by a judge that remembers which signatures it has checked.
func (j *Judge) Roster(records []record.Record) *Roster {
	r := &Roster{judges: j, issues: map[string]issue{}, withdrawn: map[string]bool{}, revoked: map[peer.ID]stands{}, counted: map[string]bool{}}
	var admissions []record.Record
	for _, rec := range records {
		switch rec.Kind {
		case KindMember:
			if f := j.facts(rec); f.good {
				r.claims = append(r.claims, claimed{rec, f})
			}
		case KindAdmission:
			admissions = append(admissions, rec)
			if rec.Deleted {
				r.withdrawn[rec.ID] = true
			}
		case KindRevocation:
			if v, ok := readRevocation(rec); ok {
				r.revocations = append(r.revocations, v)
			}
		case KindInvite:
			var i Issue
			if record.Unmarshal(rec.Payload, &i) == nil {
				r.issues[rec.ID] = issue{i, rec.Author, rec.Deleted}
			}
		}
	}
	// One order on every peer: the order of proofs is that of the records' keys.
	slices.SortFunc(r.claims, func(a, b claimed) int { return strings.Compare(a.ID, b.ID) })
	r.close()
	r.revoke(r.revocations)
	for _, rec := range admissions {
		r.noteAdmission(rec)
	}
	return r
}

// close works out who is proven, from the mesh key outwards.
func (r *Roster) close() {
	r.members, r.proven, r.proofs = map[peer.ID]Member{}, map[peer.ID]Member{}, nil
	r.joiners, r.depth = map[string]map[peer.ID]bool{}, map[peer.ID]int{}
	left := slices.Clone(r.claims)
	for grown := true; grown; {
		grown = false
		left = slices.DeleteFunc(left, func(c claimed) bool {
			verdict := r.judge(c)
			if verdict == record.Allowed {
				r.prove(c)
				grown = true
			}
			return verdict != record.Unknown
		})
	}
}

func (r *Roster) noteAdmission(rec record.Record) {
	parts := strings.Split(rec.ID, "/")
	if len(parts) != 3 {
		return
	}
	joiner, err := peer.Decode(parts[2])
	switch {
	case err == nil && !rec.Deleted:
		r.joined(parts[1], joiner)
	}
}

func (r *Roster) joined(invite string, joiner peer.ID) {
	if r.joiners[invite] == nil {
		r.joiners[invite] = map[peer.ID]bool{}
	}
	r.joiners[invite][joiner] = true
}

// prove takes a grant in. Of several grants of one peer each counts for what it
// gives.
func (r *Roster) prove(c claimed) {
	r.proofs = append(r.proofs, proof{record.Key(KindMember, c.ID), c.Author, c.leans})
	depth := 0
	for _, id := range c.leans {
		depth = max(depth, r.depth[id]+1)
	}
	if _, known := r.proven[c.Author]; !known || depth < r.depth[c.Author] {
		r.depth[c.Author] = depth
	}
	r.proven[c.Author] = greater(r.proven[c.Author], c.member)
	if c.member.Invite != "" && !c.Deleted {
		r.joined(c.member.Invite, c.Author)
	}
	if _, out := r.revoked[c.Author]; !out && !c.Deleted && !r.withdrawn[c.admission] {
		r.members[c.Author] = greater(r.members[c.Author], c.member)
	}
}

// greater joins two memberships of one peer: the higher role, the higher trust.
func greater(a, b Member) Member {
	switch {
	case a.ID == "":
		return b
	case a.Role != RoleAdmin && b.Role == RoleAdmin:
		a.Role = RoleAdmin
	}
	trusts := []Trust{TrustClient, TrustShardOnly, TrustReplicas}
	if slices.Index(trusts, b.Trust) > slices.Index(trusts, a.Trust) {
		a.Trust = b.Trust
	}
	return a
}

// judge says whether a grant holds beside those that are proven so far: Unknown
// while the membership of somebody whom it leans on has not arrived.
func (r *Roster) judge(c claimed) record.Verdict {
	if kept, out := r.revoked[c.Author]; !c.good || out && !kept.proofs[c.ID] {
		return record.Denied
	}
	for i, lean := range c.leans {
		m, in := r.proven[lean]
		if !in || i == leanAuthor && m.Role != RoleAdmin {
			return record.Unknown
		}
		if kept, out := r.revoked[lean]; out && !kept.adopted[c.Author] {
			return record.Unknown // Another revocation may have adopted it.
		}
	}
	return record.Allowed
}

// Admit says whether a membership or revocation record proves what it claims.
func (r *Roster) Admit(rec record.Record) record.Verdict {
	if rec.Kind == KindRevocation {
		v, ok := readRevocation(rec)
		return known(ok && r.wouldCount(v))
	}
	return r.judge(claimed{rec, r.judges.facts(rec)})
}

// May says whether a peer may write records of a kind: the rule of record.Rights.
func (r *Roster) May(author peer.ID, rule record.Rule, _, _ string) record.Verdict {
	if _, out := r.revoked[author]; out {
		return record.Denied
	}
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

// Issue looks an invite up by its id, with how many peers it has been used for,
// not counting but.
func (r *Roster) Issue(id string, but peer.ID) (i Issue, deleted bool, used int, ok bool) {
	found, ok := r.issues[id]
	if _, out := r.revoked[found.author]; !ok || out || r.proven[found.author].Role != RoleAdmin {
		return Issue{}, false, 0, false
	}
	used = len(r.joiners[id])
	if r.joiners[id][but] {
		used--
	}
	return found.Issue, found.deleted, used, true
}

// Chain lists the keys of the membership records that prove a peer, in an order
// in which each is proven by those before it: what a machine that knows nothing
// needs in order to believe it. It is empty for a peer that is not proven.
func (r *Roster) Chain(ids ...peer.ID) []string {
	needed := map[peer.ID]bool{}
	for _, id := range ids {
		needed[id] = true
	}
	var keys []string
	for i := len(r.proofs) - 1; i >= 0; i-- {
		p := r.proofs[i]
		if !needed[p.holder] {
			continue
		}
		keys = append(keys, p.key)
		for _, id := range p.leans {
			needed[id] = true
		}
	}
	slices.Reverse(keys)
	return keys
}
