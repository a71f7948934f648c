package membership

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// rawIDBytes is the length of a mesh id before it is written in base32.
const rawIDBytes = 10

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// MeshID names a mesh: base32 of the first 10 bytes of the sha256 of its public
// key, 16 characters.
type MeshID string

// IDOf is the id of the mesh whose root is the ed25519 public key given.
func IDOf(root ed25519.PublicKey) MeshID {
	sum := sha256.Sum256(root)
	return MeshID(lowerBase32.EncodeToString(sum[:rawIDBytes]))
}

// ParseMeshID takes 16 base32 characters.
func ParseMeshID(s string) (MeshID, error) {
	raw, err := lowerBase32.DecodeString(s)
	if err != nil || len(raw) != rawIDBytes || lowerBase32.EncodeToString(raw) != s {
		return "", fmt.Errorf("%q is not the id of a mesh", s)
	}
	return MeshID(s), nil
}

func (id MeshID) raw() []byte {
	raw, err := lowerBase32.DecodeString(string(id))
	if err != nil || len(raw) != rawIDBytes {
		return make([]byte, rawIDBytes) // Matches no mesh that anybody can found.
	}
	return raw
}

// MeshKey is the root of a mesh. It signs the first admin, and can make a new
// one when the last is lost.
type MeshKey struct{ private ed25519.PrivateKey }

// NewMeshKey founds a mesh.
func NewMeshKey() (MeshKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return MeshKey{private}, err
}

// MeshKeyFromSeed restores a key from the 32 bytes that Seed gave.
func MeshKeyFromSeed(seed []byte) (MeshKey, error) {
	if len(seed) != ed25519.SeedSize {
		return MeshKey{}, fmt.Errorf("a mesh key has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	return MeshKey{ed25519.NewKeyFromSeed(seed)}, nil
}

// Seed is the 32 bytes from which the key can be made again: a secret.
func (k MeshKey) Seed() []byte { return k.private.Seed() }

// ID is the id of the mesh.
func (k MeshKey) ID() MeshID { return IDOf(k.private.Public().(ed25519.PublicKey)) }

// RecoveryCode is the key for a person to write down: 13 groups of four
// characters, a secret.
func (k MeshKey) RecoveryCode() string {
	text := strings.ToUpper(lowerBase32.EncodeToString(k.Seed()))
	var groups []string
	for len(text) > 4 {
		groups = append(groups, text[:4])
		text = text[4:]
	}
	return strings.Join(append(groups, text), "-")
}

// MeshKeyFromCode reads what RecoveryCode wrote; case, blanks and dashes do not
// matter. Anything else is ErrCodeInvalid.
func MeshKeyFromCode(code string) (MeshKey, error) {
	plain := strings.NewReplacer("-", "", " ", "", "\n", "", "\t", "").Replace(strings.ToLower(code))
	if len(plain) > 64 {
		return MeshKey{}, ErrCodeInvalid
	}
	seed, err := lowerBase32.DecodeString(plain)
	if err != nil || len(seed) != ed25519.SeedSize {
		return MeshKey{}, ErrCodeInvalid
	}
	return MeshKeyFromSeed(seed)
}

// GrantAdmin is the membership that makes a peer the mesh's admin by the mesh
// key itself.
func (k MeshKey) GrantAdmin(id peer.ID, name string) Grant {
	return Grant{
		Mesh:    k.ID(),
		Name:    name,
		Root:    k.private.Public().(ed25519.PublicKey),
		RootSig: ed25519.Sign(k.private, rootClaim(k.ID(), id)),
	}
}

// Each signature is over its purpose, the mesh and the peer, each ended by a
// zero byte or of fixed length, so that none can be taken for another.

func rootClaim(mesh MeshID, id peer.ID) []byte { return claim("relay-root/1", mesh, id) }

func inviteClaim(mesh MeshID, id peer.ID) []byte { return claim("relay-invite/1", mesh, id) }

func admitClaim(mesh MeshID, id peer.ID, invite string, stamp int64) []byte {
	return fmt.Appendf(claim("relay-admit/1", mesh, id), "\x00%s\x00%d", invite, stamp)
}

func claim(purpose string, mesh MeshID, id peer.ID) []byte {
	return bytes.Join([][]byte{[]byte(purpose), []byte(mesh), []byte(id)}, []byte{0})
}

func verifiedBy(id peer.ID, data, sig []byte) bool {
	key, err := id.ExtractPublicKey()
	if err != nil || key.Type() != crypto.Ed25519 {
		return false
	}
	ok, err := key.Verify(data, sig)
	return err == nil && ok
}
