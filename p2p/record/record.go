package record

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// MaxSize is the largest marshalled record, in bytes.
	MaxSize = 64 << 10
	// MaxKind and MaxID are the longest kind and id, in bytes.
	MaxKind = 32
	MaxID   = 256
	// MaxCount bounds the counting parts of a version from above (they are
	// lower than it): incarnations, sequences, shared versions and epochs. The
	// second part of a placement's version is a hash and has no bound.
	MaxCount = 1 << 48
)

// Version orders the records of one key; it is compared part by part. Owned
// kinds use (incarnation, sequence, 0), shared ones (n, 0, 0), placements
// (epoch, rank, sequence).
type Version [3]uint64

// Compare returns -1, 0 or +1 as v is lower than, equal to or higher than o.
func (v Version) Compare(o Version) int {
	for i := range v {
		if c := cmp.Compare(v[i], o[i]); c != 0 {
			return c
		}
	}
	return 0
}

// Less says whether v is lower than o.
func (v Version) Less(o Version) bool { return v.Compare(o) < 0 }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Record is one piece of mesh state.
type Record struct {
	// Kind is 1 to MaxKind bytes: a lower-case letter, then lower-case letters,
	// digits and hyphens.
	Kind string
	// ID is 1 to MaxID bytes of letters, digits and . _ ~ : = + @ -, in parts
	// separated by single slashes.
	ID string
	// Author signed the record; always the id of an ed25519 key.
	Author  peer.ID
	Version Version
	// Deleted says that the key is gone; such a record keeps its payload.
	Deleted bool
	// Payload means what its kind says; nil where empty.
	Payload []byte
}

// Key names what the record is about: kind, slash, id.
func (r Record) Key() string { return Key(r.Kind, r.ID) }

// Key joins a kind and an id.
func Key(kind, id string) string { return kind + "/" + id }

// Signed is a record with its proof. It is made by Seal and Open only, and
// neither its slices nor those of the Record are to be changed: the table
// hands out what it keeps.
type Signed struct {
	Record
	// Raw is the marshalled envelope: what is stored and sent.
	Raw []byte
	// Hash is the sha256 of Raw. One record has exactly one Raw.
	Hash [32]byte

	checked bool // set by Seal and Open: signature and form are right
}

// beats says whether s replaces o at their common key, on every peer alike.
func (s *Signed) beats(o *Signed) bool {
	if c := s.Version.Compare(o.Version); c != 0 {
		return c > 0
	}
	if c := cmp.Compare(s.Author, o.Author); c != 0 {
		return c > 0
	}
	return bytes.Compare(s.Hash[:], o.Hash[:]) > 0
}

// checkName checks the form of a key's two parts.
func checkName(kind, id string) error {
	if !validKind(kind) {
		return fmt.Errorf("kind %.40q: %w", kind, ErrInvalid)
	}
	if !validID(id) {
		return fmt.Errorf("id %.80q of kind %s: %w", id, kind, ErrInvalid)
	}
	return nil
}

func validKind(s string) bool {
	if len(s) == 0 || len(s) > MaxKind || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
		default:
			return false
		}
	}
	return true
}

func validID(s string) bool {
	if len(s) == 0 || len(s) > MaxID || s[0] == '/' || s[len(s)-1] == '/' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '~', c == ':', c == '=', c == '+', c == '@', c == '-':
		case c == '/' && s[i-1] != '/':
		default:
			return false
		}
	}
	return true
}
