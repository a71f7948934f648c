// Package keys holds the API keys of a mesh: what one looks like, the record in
// which the mesh knows it by its hash alone, and whether a secret opens a door.
//
// A key's text exists only where it was made. Records carry its sha256; nothing
// in this package logs or stores a secret.
package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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
)

// What a key record may hold.
const (
	// MaxName bounds a key's name, and MaxModelName that of a model, in bytes.
	MaxName      = 64
	MaxModelName = 256
	// MaxModels is how many models a key may be kept to.
	MaxModels = 256
	// MaxRequestsPerMinute, MaxTokensPerDay and MaxConcurrency bound the limits.
	MaxRequestsPerMinute = 1_000_000
	MaxTokensPerDay      = 1_000_000_000_000
	MaxConcurrency       = 100_000
)

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// Priority says whose requests come first where not all can be served.
type Priority string

const (
	// Normal is the priority of a key of which nothing is said.
	Normal Priority = "normal"
	// Batch is for work that can wait.
	Batch Priority = "batch"
)

// Key is the payload of a key record. A release that knows fewer fields keeps and
// passes on those that it does not know, and opens the door as if they were not
// there.
type Key struct {
	Name string `cbor:"1,keyasint"`
	// Hash is the sha256 of the secret's text.
	Hash []byte `cbor:"2,keyasint"`
	// Created is in Unix seconds, for display.
	Created int64 `cbor:"3,keyasint,omitempty"`
	// Models are the names of the models that it is for; none is all.
	Models []string `cbor:"4,keyasint,omitempty"`
	// Expires is in Unix seconds, judged by the clock of the peer whose door is
	// asked; 0 is never.
	Expires int64 `cbor:"5,keyasint,omitempty"`
	// The limits are for the whole mesh; 0 is none.
	RequestsPerMinute int   `cbor:"6,keyasint,omitempty"`
	TokensPerDay      int64 `cbor:"7,keyasint,omitempty"`
	Concurrency       int   `cbor:"8,keyasint,omitempty"`
	// Priority is Normal where it is empty. A word that is not known counts as
	// Normal.
	Priority Priority `cbor:"9,keyasint,omitempty"`
	// Former is the hash of the secret from before the last rotation, which opens
	// the door until FormerUntil, in Unix seconds by the clock of that door's peer.
	Former      []byte `cbor:"10,keyasint,omitempty"`
	FormerUntil int64  `cbor:"11,keyasint,omitempty"`
}

// Check says in words what no key may be.
func (k Key) Check() error {
	switch {
	case CheckName(k.Name) != nil:
		return CheckName(k.Name)
	case len(k.Hash) != sha256.Size, len(k.Former) != 0 && len(k.Former) != sha256.Size:
		return errors.New("the hash of a key's secret has 32 bytes")
	case len(k.Models) > MaxModels:
		return fmt.Errorf("a key is for %d models at most", MaxModels)
	case slices.ContainsFunc(k.Models, func(m string) bool { return m == "" || len(m) > MaxModelName }):
		return fmt.Errorf("the name of a model has 1 to %d bytes", MaxModelName)
	case k.Created < 0 || k.Expires < 0 || k.FormerUntil < 0:
		return errors.New("a time before 1970")
	case k.RequestsPerMinute < 0 || k.RequestsPerMinute > MaxRequestsPerMinute:
		return fmt.Errorf("requests per minute: 1 to %d are possible, or 0 for no limit", MaxRequestsPerMinute)
	case k.TokensPerDay < 0 || k.TokensPerDay > MaxTokensPerDay:
		return fmt.Errorf("tokens per day: 1 to %d are possible, or 0 for no limit", int64(MaxTokensPerDay))
	case k.Concurrency < 0 || k.Concurrency > MaxConcurrency:
		return fmt.Errorf("requests at once: 1 to %d are possible, or 0 for no limit", MaxConcurrency)
	case len(k.Priority) > MaxName:
		return errors.New("a priority is a word")
	}
	return nil
}

// CheckName says what cannot be the name of a key.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("the name of a key has 1 to %d printable characters", MaxName)
	}
	return nil
}

// grant is what the key of that id may do.
func (k Key) grant(id string) Grant {
	return Grant{ID: id, Name: k.Name, Models: k.Models, RequestsPerMinute: k.RequestsPerMinute, TokensPerDay: k.TokensPerDay, Concurrency: k.Concurrency, Batch: k.Priority == Batch}
}

// RecordKind registers the kind.
func RecordKind() record.Kind {
	return record.Kind{Name: Kind, Rule: record.Shared, Final: true, Check: func(r record.Record) error {
		var k Key
		if err := record.Unmarshal(r.Payload, &k); err != nil {
			return err
		}
		if len(r.ID) != idLength || !isID(r.ID) {
			return errors.New("the record does not have the form of an API key's")
		}
		return k.Check()
	}}
}

// New makes a key's id and its secret, rk-<id>-<secret>.
func New() (secret, id string, err error) {
	var random [5]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", "", err
	}
	id = encoding.EncodeToString(random[:])
	secret, _, err = NewSecret(id)
	return secret, id, err
}

// NewSecret makes another secret for the key of that id, and its hash.
func NewSecret(id string) (secret string, hash []byte, err error) {
	var random [secretBytes]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", nil, err
	}
	secret = prefix + id + "-" + encoding.EncodeToString(random[:])
	return secret, Hash(secret), nil
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
	return id, ok && cut && len(id) == idLength && isID(id) && len(tail) == encoding.EncodedLen(secretBytes)
}
