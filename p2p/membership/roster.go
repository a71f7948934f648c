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
	*closure
	judges  *Judge
	members map[peer.ID]Member
	issues  map[string]issue
	// joiners are, by invite, who came by it or was countersigned to.
	joiners map[string]map[peer.ID]bool
	// withdrawn are the ids of admissions that were taken back.
	withdrawn map[string]bool
	// erased are the revoked that have said that they erased themselves.
	erased map[peer.ID]bool
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

// NewRoster evaluates the membership, admission, invite, revocation, policy and
// erased records of a mesh, deleted ones included. It starts from what the mesh
// key signed and adds whoever is proven by those already in, so that no ring of
// members can vouch for itself. Records only ever add to who is proven, but for
// judgements, and for a countersignature that its own author takes back: no right
// ends with the act that it allows.
func NewRoster(mesh MeshID, records []record.Record) *Roster {
	return NewJudge(mesh).Roster(records)
}

// Roster is NewRoster by a judge that remembers which signatures it has checked.
func (j *Judge) Roster(records []record.Record) *Roster {
	r := &Roster{judges: j, members: map[peer.ID]Member{}, issues: map[string]issue{}, joiners: map[string]map[peer.ID]bool{},
		withdrawn: map[string]bool{}, erased: map[peer.ID]bool{}}
	var claims []claimed
	var judgements []judgement
	var admissions []record.Record
	for _, rec := range records {
		switch rec.Kind {
		case KindMember:
			if f := j.facts(rec); f.good {
				claims = append(claims, claimed{rec, f})
			}
		case KindAdmission:
			admissions = append(admissions, rec)
			if rec.Deleted {
				r.withdrawn[rec.ID] = true
			}
		case KindRevocation, KindPolicy:
			if v, ok := readJudgement(rec); ok {
				judgements = append(judgements, v)
			}
		case KindErased:
			if id, err := JudgementTarget(rec.ID); err == nil && !rec.Deleted {
				r.erased[id] = true
			}
		case KindInvite:
			var i Issue
			if record.Unmarshal(rec.Payload, &i) == nil {
				r.issues[rec.ID] = issue{i, rec.Author, rec.Deleted}
			}
		}
	}
	// One order on every peer: the order of proofs is that of the records' keys.
	slices.SortFunc(claims, func(a, b claimed) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(judgements, func(a, b judgement) int { return strings.Compare(a.key, b.key) })
	r.closure = newDispute(claims, judgements).settle()
	for _, c := range claims {
		r.enter(c)
	}
	for _, rec := range admissions {
		r.noteAdmission(rec)
	}
	return r
}

// enter makes a member of whoever is proven, is not out, and has not left.
func (r *Roster) enter(c claimed) {
	if verdict, _ := r.judge(c); c.Deleted || verdict != record.Allowed {
		return
	}
	if c.member.Invite != "" {
		r.joined(c.member.Invite, c.Author)
	}
	if r.withdrawn[c.admission] || r.revoked(c.Author) {
		return
	}
	m := greater(r.members[c.Author], c.member)
	switch is, by := r.admin(c.Author); {
	case !is:
		m.Role = RoleMember
	case by != none:
		m.Role = RoleAdmin
	}
	if p, ok := r.policy(c.Author); ok {
		m.Trust = p.Trust
	}
	r.members[c.Author] = m
}

func (r *Roster) noteAdmission(rec record.Record) {
	if invite, joiner, _, ok := r.Admission(rec); ok && !rec.Deleted {
		r.joined(invite, joiner)
	}
}

// Admission reads an admission that is what it says: its joiner, or somebody who
// has the invite, asked for it. stamp is in Unix milliseconds by the admitter's
// clock.
func (r *Roster) Admission(rec record.Record) (invite string, joiner peer.ID, stamp int64, ok bool) {
	var c Countersign
	parts := strings.Split(rec.ID, "/")
	if len(parts) != 3 || record.Unmarshal(rec.Payload, &c) != nil {
		return "", "", 0, false
	}
	joiner, err := peer.Decode(parts[2])
	if err != nil {
		return "", "", 0, false
	}
	found, known := r.issues[parts[1]]
	ok = known && r.judges.asked(found.Issue, joiner, c.InviteSig)
	return parts[1], joiner, c.Stamp, ok
}

func (r *Roster) joined(invite string, joiner peer.ID) {
	if r.joiners[invite] == nil {
		r.joiners[invite] = map[peer.ID]bool{}
	}
	r.joiners[invite][joiner] = true
}

// greater joins two memberships of one peer: the higher role, the higher trust.
func greater(a, b Member) Member {
	switch {
	case a.ID == "":
		return b
	case a.Role != RoleAdmin && b.Role == RoleAdmin:
		a.Role = RoleAdmin
	}
	if slices.Index(trusts, b.Trust) > slices.Index(trusts, a.Trust) {
		a.Trust = b.Trust
	}
	return a
}

// Admit says whether a membership or a judgement may be kept: whether it was
// ever right, by all that is known. Whether it counts depends on the other
// judgements, and all of them have to be known to say so.
func (r *Roster) Admit(rec record.Record) record.Verdict {
	if rec.Kind == KindMember {
		verdict, _ := r.any.judge(claimed{rec, r.judges.facts(rec)})
		return verdict
	}
	return known(r.any.ever[rec.Author])
}

// May says whether a peer may write records of a kind: the rule of record.Rights.
// Who has left by itself may have written before it did.
func (r *Roster) May(author peer.ID, rule record.Rule, _, _ string) record.Verdict {
	if r.revoked(author) {
		return record.Denied
	}
	m, in := r.proven[author]
	switch rule {
	case record.Shared:
		is, _ := r.admin(author)
		return known(is)
	case record.Placement:
		if p, ok := r.policy(author); ok {
			m.Trust = p.Trust
		}
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

// Stranded says whether a peer is out only by those whom it put out itself. Which
// of them was in the right cannot be told, so that what they had written for all
// stands until an admin that is left takes it over.
func (r *Roster) Stranded(id peer.ID) bool {
	out := false
	for _, i := range r.about[id] {
		if j := &r.judgements[i]; j.revokes && r.verdicts[i] == counts {
			answered := slices.ContainsFunc(r.about[j.author], func(o int) bool {
				return r.judgements[o].author == id && r.judgements[o].revokes && r.verdicts[o] == counts
			})
			if !answered {
				return false
			}
			out = true
		}
	}
	return out
}

// AnyStranded says whether anybody is.
func (r *Roster) AnyStranded() bool {
	for id := range r.about {
		if r.Stranded(id) {
			return true
		}
	}
	return false
}

// Stands says whether a record that was taken is still one that would be. Rights
// only ever grow but by judgements; placements stay, since their epochs must not
// be counted anew and the next leader overrules them.
func (r *Roster) Stands(rec record.Record, rule record.Rule) bool {
	switch {
	case rule == record.Placement:
		return true
	case rec.Kind == KindMember, rec.Kind == KindRevocation, rec.Kind == KindPolicy:
		return r.Admit(rec) == record.Allowed
	case rule == record.Shared && r.Stranded(rec.Author):
		return true
	}
	return r.May(rec.Author, rule, rec.Kind, rec.ID) == record.Allowed
}

// Judged says whether anybody's rights were changed since it came.
func (r *Roster) Judged() bool { return len(r.judgements) > 0 }

// Revoked says whether a peer is out for ever.
func (r *Roster) Revoked(id peer.ID) bool { return r.revoked(id) }

// Revocations lists the keys of the records by which a peer is out.
func (r *Roster) Revocations(id peer.ID) (keys []string) {
	for _, i := range r.about[id] {
		if r.judgements[i].revokes && r.verdicts[i] == counts {
			keys = append(keys, r.judgements[i].key)
		}
	}
	return keys
}

// Wiping lists the revoked peers that were ordered to erase themselves and have
// not said that they did, by id.
func (r *Roster) Wiping() (ids []peer.ID) {
	for id := range r.about {
		if r.WipeOrdered(id) && !r.erased[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// WipeOrdered says whether a peer was revoked with the order to erase itself.
func (r *Roster) WipeOrdered(id peer.ID) bool {
	return slices.ContainsFunc(r.about[id], func(i int) bool { return r.judgements[i].wipe && r.verdicts[i] == counts })
}

// Proven says whether a peer is a member, or was one and has left.
func (r *Roster) Proven(id peer.ID) bool {
	_, in := r.proven[id]
	return in
}

// Standing is the revocation of a peer: who leans on it stays.
func (r *Roster) Standing(target peer.ID) Revocation {
	return Revocation{Adopted: r.leaning(target, false)}
}

// NextPolicy is the policy that says of a member what holds now, to be changed
// and written by one admin: who leans on its invites stays. What is by the peer
// except, which is about to be no admin any more, is not to be outdone.
func (r *Roster) NextPolicy(by, target, except peer.ID) Policy {
	m, in := r.members[target]
	if !in {
		m = r.proven[target]
		if is, _ := r.admin(target); !is {
			m.Role = RoleMember
		}
	}
	p := Policy{Role: m.Role, Trust: m.Trust, Adopted: r.leaning(target, true)}
	if now, ok := r.policy(target); ok {
		p.Trust = now.Trust
	}
	for _, i := range r.about[target] {
		j := &r.judgements[i]
		if r.verdicts[i] == counts && j.author != except {
			p.Round = max(p.Round, j.policy.Round)
		}
		p.Raised = p.Raised || j.raises() && (j.author == by || r.verdicts[i] == counts)
	}
	p.Round = min(p.Round+1, record.MaxCount-1)
	return p
}

// maxAdopted bounds the peers that one judgement lists, so that its record fits.
const maxAdopted = 1000

// leaning lists who leans on a peer: on its invites alone, or on its
// countersignature too; of each invite no more than it allows, the earliest.
func (r *Roster) leaning(target peer.ID, invites bool) (ids []string) {
	var by []claimed
	for _, c := range r.order {
		leans := slices.Contains(c.leans, target)
		if invites && c.member.Role != RoleAdmin {
			leans = len(c.leans) > 0 && c.leans[leanAuthor] == target
		}
		if leans && !r.withdrawn[c.admission] {
			by = append(by, c)
		}
	}
	slices.SortFunc(by, func(a, b claimed) int {
		return cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.Author, b.Author))
	})
	used := map[string]map[peer.ID]bool{}
	listed := map[peer.ID]bool{}
	for _, c := range by {
		invite := c.member.Invite
		if used[invite] == nil {
			used[invite] = map[peer.ID]bool{}
		}
		if len(used[invite]) >= c.uses && !used[invite][c.Author] || len(listed) >= maxAdopted {
			continue
		}
		used[invite][c.Author], listed[c.Author] = true, true
	}
	for id := range listed {
		ids = append(ids, id.String())
	}
	slices.Sort(ids)
	return ids
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
	if is, _ := r.admin(found.author); !ok || !is {
		return Issue{}, false, 0, false
	}
	used = len(r.joiners[id])
	if r.joiners[id][but] {
		used--
	}
	return found.Issue, found.deleted, used, true
}

// Chain lists the keys of the records that prove peers, as far as can be in an
// order in which each is proven by those before it: what a machine that knows
// nothing needs in order to believe them. It is empty for a peer that is not
// proven.
func (r *Roster) Chain(ids ...peer.ID) []string {
	b := chainBuilder{r: r, seen: map[peer.ID]bool{}, listed: map[string]bool{}}
	for _, id := range ids {
		b.add(id)
	}
	return b.keys
}

type chainBuilder struct {
	r      *Roster
	seen   map[peer.ID]bool
	listed map[string]bool
	keys   []string
}

func (b *chainBuilder) add(id peer.ID) {
	if b.seen[id] {
		return
	}
	b.seen[id] = true
	for _, p := range b.enough(id) {
		for _, on := range p.leans {
			b.add(on)
		}
		for _, i := range p.grounds {
			b.add(b.r.judgements[i].author)
			b.list(b.r.judgements[i].key)
		}
		b.list(p.key)
	}
	if is, by := b.r.admin(id); is && by != none { // What it may, it may by that.
		b.add(b.r.judgements[by].author)
		b.list(b.r.judgements[by].key)
	}
}

// enough are the proofs of a peer that are needed to believe it: the first, the
// first as an admin, and the first by which it is a member now. The first ones
// lean only on those who were proven before, by their first ones.
func (b *chainBuilder) enough(id peer.ID) (list []proof) {
	var one, admin, live bool
	for _, p := range b.r.proofs {
		if p.holder != id {
			continue
		}
		needed := !one || !admin && p.admin || !live && p.live && !b.r.withdrawn[p.admission]
		one, admin, live = true, admin || p.admin, live || p.live && !b.r.withdrawn[p.admission]
		if needed {
			list = append(list, p)
		}
	}
	return list
}

func (b *chainBuilder) list(key string) {
	if !b.listed[key] {
		b.listed[key] = true
		b.keys = append(b.keys, key)
	}
}
