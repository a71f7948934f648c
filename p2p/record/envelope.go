package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
)

const (
	// Domain separates these signatures from all others made with the same key.
	Domain = "relay-record/1"

	envelopeType = "/relay/record"
)

// body is the signed part of a record; the author is the envelope's key. Fields
// that this release does not know may stand beside these.
type body struct {
	Kind    string   `cbor:"1,keyasint"`
	ID      string   `cbor:"2,keyasint"`
	Version []uint64 `cbor:"3,keyasint"`
	Deleted bool     `cbor:"4,keyasint,omitempty"`
	Payload []byte   `cbor:"5,keyasint,omitempty"`
}

// enveloped is the body as libp2p's envelope wants to see it.
type enveloped struct{ encoded []byte }

func (*enveloped) Domain() string                      { return Domain }
func (*enveloped) Codec() []byte                       { return []byte(envelopeType) }
func (e *enveloped) MarshalRecord() ([]byte, error)    { return e.encoded, nil }
func (e *enveloped) UnmarshalRecord(data []byte) error { e.encoded = data; return nil }

// Seal signs a record. The author becomes the id of key, which must be an
// ed25519 key; r.Author is not looked at.
func Seal(r Record, key crypto.PrivKey) (Signed, error) {
	if key == nil || key.Type() != crypto.Ed25519 {
		return Signed{}, fmt.Errorf("signing needs an ed25519 key: %w", ErrInvalid)
	}
	if err := checkName(r.Kind, r.ID); err != nil {
		return Signed{}, err
	}
	encoded, err := encoding.Marshal(body{r.Kind, r.ID, r.Version[:], r.Deleted, r.Payload})
	if err != nil {
		return Signed{}, fmt.Errorf("record %s: %w: %w", r.Key(), ErrInvalid, err)
	}
	env, err := record.Seal(&enveloped{encoded}, key)
	if err != nil {
		return Signed{}, fmt.Errorf("record %s: %w", r.Key(), err)
	}
	raw, err := env.Marshal()
	if err != nil {
		return Signed{}, fmt.Errorf("record %s: %w", r.Key(), err)
	}
	s, err := decode(raw)
	if err != nil {
		return Signed{}, err
	}
	s.checked = true
	return s, nil
}

// Open checks a marshalled record that came from outside and decodes it: its
// size, its form, which must be the one form that Seal gives it, and its
// signature. Errors are ErrInvalid. Open keeps a copy of raw.
func Open(raw []byte) (Signed, error) {
	s, err := decode(raw)
	if err != nil {
		return Signed{}, err
	}
	if _, err := record.ConsumeTypedEnvelope(raw, new(enveloped)); err != nil {
		return Signed{}, fmt.Errorf("record %s: %w: %w", s.Key(), ErrInvalid, err)
	}
	s.checked = true
	return s, nil
}

// decode does all of Open but the signature.
func decode(raw []byte) (Signed, error) {
	if len(raw) > MaxSize {
		return Signed{}, fmt.Errorf("a record of %d bytes, at most %d are allowed: %w", len(raw), MaxSize, ErrInvalid)
	}
	raw = slices.Clone(raw)
	key, encoded, err := split(raw)
	if err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	author, err := authorOf(key)
	if err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := checkCanonical(encoded); err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	var b body
	if err := decoding.Unmarshal(encoded, &b); err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := checkName(b.Kind, b.ID); err != nil {
		return Signed{}, err
	}
	if len(b.Version) != len(Version{}) {
		return Signed{}, fmt.Errorf("record %s: a version of %d parts: %w", Key(b.Kind, b.ID), len(b.Version), ErrInvalid)
	}
	if len(b.Payload) == 0 {
		b.Payload = nil
	}
	return Signed{
		Record: Record{Kind: b.Kind, ID: b.ID, Author: author, Version: Version(b.Version), Deleted: b.Deleted,
			Payload: b.Payload},
		Raw:  raw,
		Hash: sha256.Sum256(raw),
	}, nil
}

var errLayout = errors.New("the envelope is not laid out as an ed25519 record's is")

// split takes the key and the signed body out of a marshalled envelope, and
// refuses every layout but one: protobuf allows fields in any order, doubled,
// unknown, with padded lengths, and each would be the same record under
// another hash.
//
//	0a 24 08 01 12 20 <key, 32 bytes>   public key, ed25519
//	12 <n> <type, n bytes>
//	1a <n> <body, n bytes>
//	2a 40 <signature, 64 bytes>
func split(raw []byte) (key, encoded []byte, err error) {
	rest, ok := bytes.CutPrefix(raw, []byte{0x0a, 0x24, 0x08, 0x01, 0x12, 0x20})
	if !ok || len(rest) < 32 {
		return nil, nil, errLayout
	}
	key, rest = rest[:32], rest[32:]
	rest, ok = bytes.CutPrefix(rest, append([]byte{0x12, byte(len(envelopeType))}, envelopeType...))
	if !ok || len(rest) < 1 || rest[0] != 0x1a {
		return nil, nil, errLayout
	}
	rest = rest[1:]
	size, n := binary.Uvarint(rest)
	if n <= 0 || n != len(binary.AppendUvarint(nil, size)) || size > uint64(len(rest)-n) {
		return nil, nil, errLayout
	}
	rest = rest[n:]
	encoded, rest = rest[:size], rest[size:]
	if len(rest) != 66 || rest[0] != 0x2a || rest[1] != 0x40 {
		return nil, nil, errLayout
	}
	return key, encoded, nil
}

func authorOf(key []byte) (peer.ID, error) {
	public, err := crypto.UnmarshalEd25519PublicKey(key)
	if err != nil {
		return "", err
	}
	return peer.IDFromPublicKey(public)
}
