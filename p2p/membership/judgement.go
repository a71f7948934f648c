package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

const (
	// KindRevocation: one per admin and revoked peer, written by the admin; the
	// payload is a Revocation, the id JudgementID. It cannot be taken back.
	KindRevocation = "revocation"
	// KindPolicy: one per admin and member, written by the admin; the payload is
	// a Policy, the id JudgementID.
	KindPolicy = "policy"
)

// Revocation is the payload of a revocation: what stands of the target's. All
// else by the target is void for ever, whenever it was written: a stolen key can
// put any date on what it signs.
type Revocation struct {
	// Adopted are the peers who were let in by the target and stay.
	Adopted []string `cbor:"2,keyasint,omitempty"`
	// Wipe orders the machine to erase what it pulled.
	Wipe bool `cbor:"3,keyasint,omitempty"`
}

// Policy is the payload of a policy: what a member may decide, see and run from
// now on, whatever it was let in with.
type Policy struct {
	// Round orders the policies about one member: one more than the highest that
	// the author knew, at least 1 and below record.MaxCount.
	Round uint64 `cbor:"1,keyasint"`
	Role  Role   `cbor:"2,keyasint"`
	Trust Trust  `cbor:"3,keyasint"`
	// Adopted are the peers who came by an invite of the member and stay, now
	// that it is no admin.
	Adopted []string `cbor:"4,keyasint,omitempty"`
	// Raised says that the author has made the member an admin, now or earlier:
	// what it did as one may still be on its way.
	Raised bool `cbor:"5,keyasint,omitempty"`
}

// JudgementID is the id of the record by which an admin revokes a peer, or sets
// a policy for it.
func JudgementID(author, target peer.ID) string { return author.String() + "/" + target.String() }

// JudgementTarget is the peer that the id of a judgement, or of an erasure, is
// about.
func JudgementTarget(id string) (peer.ID, error) {
	_, target, _ := strings.Cut(id, "/")
	return record.OwnerIsID(target)
}

// judgement is a revocation or a policy, read.
type judgement struct {
	key            string // Of the record.
	author, target peer.ID
	revokes        bool
	wipe           bool
	policy         Policy // Where it does not revoke.
	adopted        map[peer.ID]bool
}

// limits says whether the target is no admin by it.
func (j *judgement) limits() bool { return j.revokes || j.policy.Role != RoleAdmin }

// raises says whether the target is, or once was, an admin by it.
func (j *judgement) raises() bool {
	return !j.revokes && j.author != j.target && (j.policy.Role == RoleAdmin || j.policy.Raised)
}

// outranks says whether a policy is about the same member as o and later.
func (j *judgement) outranks(o *judgement) bool {
	return cmp.Or(cmp.Compare(j.policy.Round, o.policy.Round), cmp.Compare(j.author, o.author)) > 0
}

func readJudgement(rec record.Record) (judgement, bool) {
	target, err := JudgementTarget(rec.ID)
	if err != nil || rec.Deleted {
		return judgement{}, false
	}
	j := judgement{key: rec.Key(), author: rec.Author, target: target, adopted: map[peer.ID]bool{}}
	var adopted []string
	if rec.Kind == KindRevocation {
		var v Revocation
		err = record.Unmarshal(rec.Payload, &v)
		j.revokes, j.wipe, adopted = true, v.Wipe, v.Adopted
	} else {
		err = record.Unmarshal(rec.Payload, &j.policy)
		adopted = j.policy.Adopted
	}
	for _, a := range adopted {
		if id, err := peer.Decode(a); err == nil {
			j.adopted[id] = true
		}
	}
	return j, err == nil
}

// checkTarget checks the id of a judgement.
func checkTarget(r record.Record) (peer.ID, error) {
	id, err := JudgementTarget(r.ID)
	if err == nil && r.Deleted {
		err = fmt.Errorf("%w: it cannot be taken back", errForm)
	}
	return id, err
}

func checkRevocation(r record.Record) error {
	var v Revocation
	if err := record.Unmarshal(r.Payload, &v); err != nil {
		return err
	}
	id, err := checkTarget(r)
	if err == nil && id == r.Author {
		err = fmt.Errorf("%w: nobody revokes itself", errForm)
	}
	return err
}

func checkPolicy(r record.Record) error {
	var p Policy
	if err := record.Unmarshal(r.Payload, &p); err != nil {
		return err
	}
	id, err := checkTarget(r)
	switch {
	case err != nil:
		return err
	case p.Round < 1 || p.Round >= record.MaxCount:
		return fmt.Errorf("%w: the round is out of range", errForm)
	case id == r.Author && p.Role != RoleAdmin:
		return fmt.Errorf("%w: nobody takes its own role away", errForm)
	}
	return checkRank(p.Role, p.Trust)
}

// checkRank checks a role and a trust.
func checkRank(role Role, trust Trust) error {
	switch {
	case role != RoleAdmin && role != RoleMember:
		return fmt.Errorf("%w: unknown role", errForm)
	case !slices.Contains(trusts, trust):
		return fmt.Errorf("%w: unknown trust", errForm)
	}
	return nil
}
