package membership

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// revocation is a revocation record, read.
type revocation struct {
	id             string // Of the record.
	author, target peer.ID
	stands
}

// stands is what stays of a revoked peer's.
type stands struct {
	by      map[peer.ID]bool // Who revoked it.
	proofs  map[string]bool  // Ids of its own membership records.
	adopted map[peer.ID]bool // Whom it let in.
}

func readRevocation(rec record.Record) (revocation, bool) {
	var v Revocation
	_, target, _ := strings.Cut(rec.ID, "/")
	id, err := peer.Decode(target)
	if err != nil || record.Unmarshal(rec.Payload, &v) != nil {
		return revocation{}, false
	}
	r := revocation{rec.ID, rec.Author, id, stands{map[peer.ID]bool{rec.Author: true}, map[string]bool{}, map[peer.ID]bool{}}}
	for _, p := range v.Proofs {
		r.proofs[p] = true
	}
	for _, a := range v.Adopted {
		if id, err := peer.Decode(a); err == nil {
			r.adopted[id] = true
		}
	}
	return r, true
}

// revoke counts revocations and takes out whom they name. Those by peers nearest
// to the mesh key are heard first, so that whom they put out, and whoever leans
// on those, is not heard any more. What was heard counts, whatever becomes of
// its author; and who is revoked may still revoke its revoker: of two that
// revoke one another both are out.
func (r *Roster) revoke(list []revocation) {
	depth := r.depth
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b revocation) int {
		return cmp.Or(cmp.Compare(depth[a.author], depth[b.author]), cmp.Compare(a.author, b.author), cmp.Compare(a.target, b.target))
	})
	for _, v := range list {
		if !r.mayRevoke(v) {
			continue
		}
		r.counted[v.id] = true
		kept, again := r.revoked[v.target]
		if !again {
			kept = stands{map[peer.ID]bool{}, map[string]bool{}, map[peer.ID]bool{}}
			r.revoked[v.target] = kept
		}
		maps.Copy(kept.by, v.by)
		maps.Copy(kept.proofs, v.proofs)
		maps.Copy(kept.adopted, v.adopted)
		r.close()
	}
}

// mayRevoke says whether a revocation counts that is heard now.
func (r *Roster) mayRevoke(v revocation) bool {
	if r.proven[v.author].Role != RoleAdmin || v.author == v.target {
		return false
	}
	out, revoked := r.revoked[v.author]
	return !revoked || out.by[v.target]
}

// wouldCount says whether a revocation counts beside all the others.
func (r *Roster) wouldCount(v revocation) bool {
	if r.counted[v.id] {
		return true
	}
	with := &Roster{judges: r.judges, withdrawn: r.withdrawn, claims: r.claims, revoked: map[peer.ID]stands{}, counted: map[string]bool{}}
	with.close()
	with.revoke(append(slices.Clone(r.revocations), v))
	return with.counted[v.id]
}

// Revoked says whether a peer is out for ever.
func (r *Roster) Revoked(id peer.ID) bool {
	_, out := r.revoked[id]
	return out
}

// AnyRevoked says whether anybody is.
func (r *Roster) AnyRevoked() bool { return len(r.revoked) > 0 }

// Void says whether a record does not stand, because its author was revoked:
// everything but the proofs that others lean on, revocations that count, and
// placements, whose epochs must not be counted anew and which the next leader
// overrules.
func (r *Roster) Void(rec record.Record, placement string) bool {
	kept, out := r.revoked[rec.Author]
	if !out {
		return false
	}
	switch rec.Kind {
	case KindMember:
		return !kept.proofs[rec.ID]
	case KindRevocation:
		return !r.counted[rec.ID]
	}
	return rec.Kind != placement
}

// Standing works out what is to stand of a peer's when it is revoked: its proofs,
// and the members that lean on it.
func (r *Roster) Standing(target peer.ID) Revocation {
	var v Revocation
	leaning := map[string]bool{}
	for _, p := range r.proofs {
		if p.holder == target {
			v.Proofs = append(v.Proofs, strings.TrimPrefix(p.key, KindMember+"/"))
		}
		if slices.Contains(p.leans, target) {
			leaning[p.holder.String()] = true
		}
	}
	for id := range leaning {
		v.Adopted = append(v.Adopted, id)
	}
	slices.Sort(v.Proofs)
	slices.Sort(v.Adopted)
	return v
}
