// Package keys holds the API keys of a mesh: what one looks like, the record in
// which the mesh knows it by its hash alone, and whether a secret opens a door.
//
// A key's text exists only where it was made. Records carry its sha256; nothing
// in this package logs or stores a secret.
package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"relay/p2p/record"
)

// Kind is the record kind of API keys; the id is the key's id.
const Kind = "key"

// DefaultName is the name of the key that founding a mesh makes.
const DefaultName = "default"

const (
	prefix      = "rk-"
	idLength    = 8
	secretBytes = 20 // 32 characters.
	maxName     = 64
)

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Key is the payload of a key record.
type Key struct {
	Name string `cbor:"1,keyasint"`
	// Hash is the sha256 of the secret's text.
	Hash []byte `cbor:"2,keyasint"`
	// Created is in Unix seconds, for display.
	Created int64 `cbor:"3,keyasint,omitempty"`
}

// RecordKind registers the kind.
func RecordKind() record.Kind {
	return record.Kind{Name: Kind, Rule: record.Shared, Check: func(r record.Record) error {
		var k Key
		if err := record.Unmarshal(r.Payload, &k); err != nil {
			return err
		}
		if len(k.Hash) != sha256.Size || k.Name == "" || len(k.Name) > maxName || len(r.ID) != idLength {
			return errors.New("the record does not have the form of an API key's")
		}
		return nil
	}}
}

// New makes a secret, rk-<id>-<secret>, and its id.
func New() (secret, id string, err error) {
	var random [5 + secretBytes]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", "", err
	}
	id = encoding.EncodeToString(random[:5])
	return prefix + id + "-" + encoding.EncodeToString(random[5:]), id, nil
}

// Hash is what a record holds of a secret.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// IDOf takes the id out of a secret; false for anything that is not one.
func IDOf(secret string) (string, bool) {
	rest, ok := strings.CutPrefix(secret, prefix)
	id, tail, cut := strings.Cut(rest, "-")
	return id, ok && cut && len(id) == idLength && len(tail) == encoding.EncodedLen(secretBytes)
}

// Ring says which secrets open one peer's door: those of the mesh's key
// records, and the one that the environment of this peer gives.
type Ring struct {
	table *record.Table
	local []byte // Hash of the environment's key; nil without one.
}

// LocalID is the id under which requests with the environment's key are counted.
const LocalID = "env"

// NewRing makes the ring of a peer; local is the value of RELAY_API_KEY or "".
func NewRing(table *record.Table, local string) *Ring {
	r := &Ring{table: table}
	if local != "" {
		r.local = Hash(local)
	}
	return r
}

// Check says whether a secret opens the door, and as which key. It takes the
// same time whatever of a known key's secret is wrong.
func (r *Ring) Check(secret string) (id string, ok bool) {
	hash := Hash(secret)
	if r.local != nil && subtle.ConstantTimeCompare(hash, r.local) == 1 {
		return LocalID, true
	}
	id, ok = IDOf(secret)
	if !ok {
		return "", false
	}
	rec, ok := r.table.Get(Kind, id)
	if !ok {
		return "", false
	}
	var k Key
	if err := record.Unmarshal(rec.Payload, &k); err != nil {
		return "", false
	}
	return id, subtle.ConstantTimeCompare(hash, k.Hash) == 1
}

// Any says whether there is any key with which the door could be opened.
func (r *Ring) Any() bool { return r.local != nil || len(r.table.List(Kind)) > 0 }

// Text says for people how the door is secured.
func (r *Ring) Text() string {
	n := len(r.table.List(Kind))
	switch {
	case r.local != nil && n == 0:
		return "the key in RELAY_API_KEY"
	case r.local != nil:
		return fmt.Sprintf("the key in RELAY_API_KEY and %d of the mesh", n)
	case n == 0:
		return "no key yet: set RELAY_API_KEY and start again"
	case n == 1:
		return "1 key of the mesh"
	}
	return fmt.Sprintf("%d keys of the mesh", n)
}
