package membership

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// InvitePrefix starts every invite that a person copies.
	InvitePrefix = "relay1:"
	// MaxInviteLength bounds an invite's text, in characters.
	MaxInviteLength = 500
	// MaxInvitePeers bounds how many peers an invite names.
	MaxInvitePeers = 4

	inviteVersion = 1
	checksumBytes = 4
	maxAddrBytes  = 64
	// DefaultInviteTTL is how long an invite holds when nothing else is asked.
	DefaultInviteTTL = 24 * time.Hour
)

// Role is what a member may decide.
type Role string

// The roles.
const (
	RoleAdmin  Role = "admin"
	RoleMember Role = "member"
)

// Trust is what a member may see and run.
type Trust string

// The trusts, most trusted first.
const (
	TrustReplicas  Trust = "replicas"
	TrustShardOnly Trust = "shard-only"
	TrustClient    Trust = "client"
)

// trusts are all of them, least first.
var trusts = []Trust{TrustClient, TrustShardOnly, TrustReplicas}

// Lower says whether a trust is less than another.
func (t Trust) Lower(than Trust) bool { return slices.Index(trusts, t) < slices.Index(trusts, than) }

// Invite is what the text of an invite says. Its seed is a secret: whoever has
// it may join.
type Invite struct {
	Mesh  MeshID
	Peers []peer.AddrInfo
	key   ed25519.PrivateKey
}

// NewInvite makes an invite with a fresh key.
func NewInvite(mesh MeshID) (Invite, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return Invite{Mesh: mesh, key: key}, err
}

// Public is the invite's public key, 32 bytes, as its record carries it.
func (i Invite) Public() []byte { return i.key.Public().(ed25519.PublicKey) }

// ID names the invite and its record.
func (i Invite) ID() string { return InviteID(i.Public()) }

// InviteID is the id of the invite with that public key: 16 base32 characters
// of its sha256.
func InviteID(public []byte) string {
	sum := sha256.Sum256(public)
	return lowerBase32.EncodeToString(sum[:rawIDBytes])
}

// Sign proves to an admitting member that the peer holds the invite.
func (i Invite) Sign(id peer.ID) []byte { return ed25519.Sign(i.key, inviteClaim(i.Mesh, id)) }

// String is the text to hand over: at most MaxInviteLength characters. Peers
// and addresses that do not fit are left out, the first ones stay.
func (i Invite) String() string {
	peers := i.Peers[:min(len(i.Peers), MaxInvitePeers)]
	// One address of each peer before the second of any.
	counts := make([]int, len(peers))
	text := i.encode(peers, counts)
	for round := range 8 {
		for p := range peers {
			if len(peers[p].Addrs) <= round {
				continue
			}
			counts[p]++
			if longer := i.encode(peers, counts); len(longer) <= MaxInviteLength {
				text = longer
			} else {
				counts[p]--
			}
		}
	}
	return text
}

func (i Invite) encode(peers []peer.AddrInfo, counts []int) string {
	var b bytes.Buffer
	b.WriteByte(inviteVersion)
	b.Write(i.Mesh.raw())
	b.Write(i.key.Seed())
	var body bytes.Buffer
	named := 0
	for p, info := range peers {
		key, err := info.ID.ExtractPublicKey()
		if err != nil || key.Type() != crypto.Ed25519 {
			continue
		}
		raw, err := key.Raw()
		if err != nil {
			continue
		}
		var addrs [][]byte
		for _, a := range info.Addrs[:min(counts[p], len(info.Addrs))] {
			if data := a.Bytes(); len(data) <= maxAddrBytes {
				addrs = append(addrs, data)
			}
		}
		named++
		body.Write(raw)
		body.WriteByte(byte(len(addrs)))
		for _, data := range addrs {
			body.WriteByte(byte(len(data)))
			body.Write(data)
		}
	}
	b.WriteByte(byte(named))
	b.Write(body.Bytes())
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:checksumBytes])
	return InvitePrefix + lowerBase32.EncodeToString(b.Bytes())
}

// ParseInvite reads an invite as a person pasted it. Everything that is not
// exactly one is an error that wraps ErrInviteInvalid.
func ParseInvite(text string) (Invite, error) {
	text = strings.TrimSpace(text)
	if len(text) > MaxInviteLength || !strings.HasPrefix(strings.ToLower(text), InvitePrefix) {
		return Invite{}, ErrInviteInvalid
	}
	plain := strings.ToLower(text[len(InvitePrefix):])
	data, err := lowerBase32.DecodeString(plain)
	if err != nil || lowerBase32.EncodeToString(data) != plain || len(data) < 1+checksumBytes {
		return Invite{}, ErrInviteInvalid
	}
	if data[0] != inviteVersion {
		return Invite{}, fmt.Errorf("%w, or it was made by a newer relay (version %d): update relay here", ErrInviteInvalid, data[0])
	}
	body, tail := data[:len(data)-checksumBytes], data[len(data)-checksumBytes:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:checksumBytes], tail) {
		return Invite{}, ErrInviteInvalid
	}
	r := reader{body[1:]}
	i := Invite{Mesh: MeshID(lowerBase32.EncodeToString(r.take(rawIDBytes)))}
	if seed := r.take(ed25519.SeedSize); seed != nil {
		i.key = ed25519.NewKeyFromSeed(seed)
	}
	count := r.length()
	if count > MaxInvitePeers {
		return Invite{}, ErrInviteInvalid
	}
	for range count {
		info, err := r.peer()
		if err != nil {
			return Invite{}, fmt.Errorf("%w (%v)", ErrInviteInvalid, err)
		}
		i.Peers = append(i.Peers, info)
	}
	if i.key == nil || r.short() || len(r.rest) != 0 {
		return Invite{}, ErrInviteInvalid
	}
	return i, nil
}

// reader takes fields off the front; once it ran short it stays short.
type reader struct{ rest []byte }

func (r *reader) short() bool { return r.rest == nil }

func (r *reader) take(n int) []byte {
	if r.rest == nil || len(r.rest) < n {
		r.rest = nil
		return nil
	}
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func (r *reader) length() int {
	if b := r.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (r *reader) peer() (peer.AddrInfo, error) {
	raw := r.take(ed25519.PublicKeySize)
	if raw == nil {
		return peer.AddrInfo{}, ErrInviteInvalid
	}
	key, err := crypto.UnmarshalEd25519PublicKey(raw)
	if err != nil {
		return peer.AddrInfo{}, err
	}
	id, err := peer.IDFromPublicKey(key)
	if err != nil {
		return peer.AddrInfo{}, err
	}
	info := peer.AddrInfo{ID: id}
	for range r.length() {
		n := r.length()
		if n == 0 || n > maxAddrBytes {
			return info, ErrInviteInvalid
		}
		data := r.take(n)
		if data == nil {
			return info, ErrInviteInvalid
		}
		addr, err := ma.NewMultiaddrBytes(data)
		if err != nil {
			return info, err
		}
		info.Addrs = append(info.Addrs, addr)
	}
	return info, nil
}
