package membership

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// The record kinds of this package.
const (
	// KindMember: one per peer and proof, written by the peer; the payload is a
	// Grant, the id GrantID. A peer that proves itself a second time adds a
	// record: no proof takes the place of another, so that nobody can pull away
	// the ground on which others stand.
	KindMember = "member"
	// KindAdmission: one per admitting member, invite and joiner, written by the
	// admitter before it countersigns; the payload is a Countersign. Deleting
	// it withdraws the countersignature.
	KindAdmission = "admission"
	// KindErased: one per member and revoked peer, written by a member that heard
	// it from that peer: it has erased what it was ordered to. It has no payload.
	KindErased = "erased"
	// KindInvite: one per invite, written by an admin; the payload is an Issue.
	KindInvite = "invite"
	// KindMesh: what the mesh is called; the payload is a Settings.
	KindMesh = "mesh"
	// SettingsID is the one id of KindMesh.
	SettingsID = "settings"
)

const (
	// MaxNameLength bounds names of peers and meshes, in bytes.
	MaxNameLength = 64
	// maxInviteRecord bounds the invite inside a membership, in bytes.
	maxInviteRecord = 1024
)

// Grant is the payload of a membership record: why its author is a member.
// Either the mesh key signed for it, or an invite and the member that honoured it.
type Grant struct {
	Mesh MeshID `cbor:"1,keyasint"`
	// Name is what the machine called itself when it joined.
	Name string `cbor:"2,keyasint,omitempty"`

	// Root is the mesh's public key, RootSig its signature for this peer.
	Root    []byte `cbor:"3,keyasint,omitempty"`
	RootSig []byte `cbor:"4,keyasint,omitempty"`

	// Invite is the marshalled invite record as an admin signed it: the right to
	// be a member must not rest on what becomes of that record later. InviteSig
	// is by the invite's key.
	Invite    []byte `cbor:"5,keyasint,omitempty"`
	InviteSig []byte `cbor:"6,keyasint,omitempty"`
	// Admitter honoured the invite at Stamp (Unix milliseconds by its clock) and
	// signed that.
	Admitter string `cbor:"7,keyasint,omitempty"`
	Stamp    int64  `cbor:"8,keyasint,omitempty"`
	AdmitSig []byte `cbor:"9,keyasint,omitempty"`
}

// Issue is the payload of an invite record. Deleting the record revokes the
// invite; who was admitted by it stays.
type Issue struct {
	Public []byte `cbor:"1,keyasint"`
	Role   Role   `cbor:"2,keyasint"`
	Trust  Trust  `cbor:"3,keyasint"`
	// Uses is how many peers may join with it, at least 1.
	Uses int `cbor:"4,keyasint"`
	// Expires is in Unix milliseconds; the admitting member's clock judges it.
	Expires int64  `cbor:"5,keyasint"`
	Label   string `cbor:"6,keyasint,omitempty"`
}

// Countersign is the payload of an admission.
type Countersign struct {
	// Stamp is in Unix milliseconds by the admitter's clock.
	Stamp int64 `cbor:"1,keyasint"`
	// InviteSig is the invite's signature for the joiner: nobody uses up an
	// invite that he has not seen.
	InviteSig []byte `cbor:"2,keyasint"`
}

// GrantID is the id of the record of a peer's grant: the peer's id, a slash, and
// 16 base32 characters of the hash of the proof, which the name is no part of.
func GrantID(id peer.ID, g Grant) (string, error) {
	g.Name = ""
	data, err := record.Marshal(g)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return id.String() + "/" + lowerBase32.EncodeToString(sum[:rawIDBytes]), nil
}

// AdmissionID is the id of the record of an admission.
func AdmissionID(admitter peer.ID, invite string, joiner peer.ID) string {
	return admitter.String() + "/" + invite + "/" + joiner.String()
}

// Settings is the payload of the record mesh/settings.
type Settings struct {
	Name string `cbor:"1,keyasint"`
}

// issued reads the invite inside a membership: what it allows, and which admin
// signed it.
func (g Grant) issued() (Issue, peer.ID, error) {
	s, err := record.Open(g.Invite)
	if err != nil {
		return Issue{}, "", err
	}
	if s.Kind != KindInvite {
		return Issue{}, "", fmt.Errorf("%w: a membership by what is no invite", errForm)
	}
	if err := checkIssue(s.Record); err != nil {
		return Issue{}, "", err
	}
	var i Issue
	return i, s.Author, record.Unmarshal(s.Payload, &i)
}

// Admit is an admitting member's signature under an invite, made for one peer at
// a stamp in Unix milliseconds.
func Admit(key crypto.PrivKey, mesh MeshID, joiner peer.ID, invite string, stamp int64) ([]byte, error) {
	return key.Sign(admitClaim(mesh, joiner, invite, stamp))
}

// SignedByInvite says whether sig is the invite's signature for the joiner.
func (i Issue) SignedByInvite(mesh MeshID, joiner peer.ID, sig []byte) bool {
	return len(i.Public) == ed25519.PublicKeySize && ed25519.Verify(i.Public, inviteClaim(mesh, joiner), sig)
}

// Usable says whether the invite admits one more peer: used is how many it has
// admitted, now the clock of the member that is asked.
func (i Issue) Usable(deleted bool, used int, now time.Time) error {
	switch {
	case deleted:
		return ErrInviteRevoked
	case now.UnixMilli() >= i.Expires:
		return ErrInviteExpired
	case used >= i.Uses:
		return ErrInviteSpent
	}
	return nil
}

// Kinds are the record kinds of this package, for registration; admit is
// Roster.Admit of the roster in force.
func Kinds(mesh MeshID, admit func(record.Record) record.Verdict) []record.Kind {
	return []record.Kind{
		{Name: KindRevocation, Rule: record.Owned, Reserved: true, Owner: record.OwnerIsFirst, Admit: admit, Check: checkRevocation},
		{Name: KindPolicy, Rule: record.Owned, Reserved: true, Owner: record.OwnerIsFirst, Admit: admit, Check: checkPolicy},
		{Name: KindMember, Rule: record.Owned, Owner: record.OwnerIsFirst, Admit: admit,
			Check: func(r record.Record) error { return checkGrant(mesh, r) }},
		{Name: KindAdmission, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checkAdmission},
		{Name: KindErased, Rule: record.Owned, Owner: record.OwnerIsFirst, Check: checkErased},
		{Name: KindInvite, Rule: record.Shared, Final: true, Check: checkIssue},
		{Name: KindMesh, Rule: record.Shared, Check: checkSettings},
	}
}

var errForm = errors.New("the record does not have the form of its kind")

func checkGrant(mesh MeshID, r record.Record) error {
	var g Grant
	if err := record.Unmarshal(r.Payload, &g); err != nil {
		return err
	}
	switch {
	case g.Mesh != mesh:
		return fmt.Errorf("%w: a membership of another mesh", errForm)
	case len(g.Name) > MaxNameLength || len(g.Invite) > maxInviteRecord || len(g.Admitter) > 128:
		return fmt.Errorf("%w: a field is too long", errForm)
	case len(g.Root) == 0 && len(g.Invite) == 0:
		return fmt.Errorf("%w: a membership without a proof", errForm)
	}
	if id, err := GrantID(r.Author, g); err != nil || id != r.ID {
		return fmt.Errorf("%w: the id is not that of the proof", errForm)
	}
	return nil
}

func checkAdmission(r record.Record) error {
	var c Countersign
	if err := record.Unmarshal(r.Payload, &c); err != nil {
		return err
	}
	parts := strings.Split(r.ID, "/")
	if len(parts) != 3 || len(parts[1]) != len(InviteID(nil)) {
		return fmt.Errorf("%w: the id is not that of an admission", errForm)
	}
	_, err := record.OwnerIsID(parts[2])
	return err
}

func checkErased(r record.Record) error {
	if _, err := JudgementTarget(r.ID); err != nil {
		return err
	}
	if len(r.Payload) > 0 {
		return fmt.Errorf("%w: it has no payload", errForm)
	}
	return nil
}

func checkIssue(r record.Record) error {
	var i Issue
	if err := record.Unmarshal(r.Payload, &i); err != nil {
		return err
	}
	switch {
	case len(i.Public) != ed25519.PublicKeySize || InviteID(i.Public) != r.ID:
		return fmt.Errorf("%w: the id is not that of the invite's key", errForm)
	case i.Uses < 1 || len(i.Label) > MaxNameLength:
		return fmt.Errorf("%w: a field is out of range", errForm)
	}
	return checkRank(i.Role, i.Trust)
}

func checkSettings(r record.Record) error {
	var s Settings
	if err := record.Unmarshal(r.Payload, &s); err != nil {
		return err
	}
	if r.ID != SettingsID {
		return fmt.Errorf("%w: mesh settings have one id", errForm)
	}
	return CheckName(s.Name)
}

// CheckName says whether a peer or a mesh may be called that: 1 to
// MaxNameLength bytes of printable text without leading or trailing blanks.
func CheckName(name string) error {
	if name == "" || len(name) > MaxNameLength || !utf8.ValidString(name) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("a name has 1 to %d printable characters", MaxNameLength)
	}
	return nil
}
