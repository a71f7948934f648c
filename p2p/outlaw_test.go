package p2p

import (
	"context"
	"encoding/binary"

	"testing"
	"time"

	pubsubpb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

// outlaw is a member that keeps to nothing: its host has none of relay's own
// protocols and says what it likes on others'.
type outlaw struct {
	host host.Host
	key  crypto.PrivKey
}

// join makes a member of the outlaw, and has the machines know it.
func joinOutlaw(t *testing.T, via *machine, known ...*machine) *outlaw {
	t.Helper()
	key, _, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), key, invite(t, via, 1), "outlaw", "relay/test"); err != nil {
		t.Fatal(err)
	}
	h, err := newHost(key, "relay/test", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, m := range known {
		eventually(t, 10*time.Second, "the outlaw is a member", func() bool { return m.isMember(h.ID()) })
		h.Peerstore().AddAddrs(m.Self(), m.Addrs(), time.Hour)
	}
	return &outlaw{h, key}
}

// seal signs a record of a kind that no release knows; any member may write it.
func (o *outlaw) seal(t testing.TB, id string, version uint64) record.Signed {
	t.Helper()
	return sealAs(t, o.key, record.Record{Kind: "junk", ID: id, Version: record.Version{version, 0, 0}, Payload: make([]byte, 100)})
}

func sealAs(t testing.TB, key crypto.PrivKey, r record.Record) record.Signed {
	t.Helper()
	s, err := record.Seal(r, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forge spoils a record's signature.
func forge(s record.Signed) []byte {
	raw := append([]byte(nil), s.Raw...)
	raw[len(raw)-1] ^= 1
	return raw
}

// gossip sends records to a machine until it is cut off, and says how many went.
func (o *outlaw) gossip(ctx context.Context, m *machine, raws [][]byte) (sent int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := o.host.NewStream(ctx, m.Self(), "/meshsub/1.1.0")
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
	topic := m.gossip.name()
	for _, raw := range raws {
		body, err := proto.Marshal(&pubsubpb.RPC{Publish: []*pubsubpb.Message{{Data: raw, Topic: &topic}}})
		if err != nil {
			return sent, err
		}
		if _, err := s.Write(append(binary.AppendUvarint(nil, uint64(len(body))), body...)); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// sync compares a table of the outlaw's own with a machine's.
func (o *outlaw) sync(t testing.TB, m *machine, table *record.Table) error {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := o.host.NewStream(ctx, m.Self(), ProtocolSync)
	if err != nil {
		return err
	}
	defer s.Reset()
	_, err = record.Sync(ctx, s, table, true, record.SyncOptions{})
	return err
}

// table makes one in which everybody may write everything without bound.
func (o *outlaw) table(t testing.TB) *record.Table {
	t.Helper()
	table, err := record.NewTable(record.Options{Storage: recordtest.NewMemory(), Key: o.key, Rights: lax{}, Shares: 1})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

type lax struct{}

func (lax) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

func (o *outlaw) connected(m *machine) bool {
	return m.host.Network().Connectedness(o.host.ID()) == network.Connected
}

// blamed is what a machine has against a peer.
func blamed(m *machine, id peer.ID) Blame {
	for _, b := range m.Blamed() {
		if b.Peer == id {
			return b
		}
	}
	return Blame{Peer: id}
}

// onlyBlames fails if a machine has anything against somebody else.
func onlyBlames(t *testing.T, m *machine, outlaws ...*outlaw) {
	t.Helper()
	for _, b := range m.Blamed() {
		known := false
		for _, o := range outlaws {
			known = known || o.host.ID() == b.Peer
		}
		if !known {
			t.Errorf("%s has %d things against %s, which did nothing", short(m.Self()), b.Dropped, short(b.Peer))
		}
	}
}

// three makes a mesh of three that are alive to one another.
func three(t *testing.T) (attic, den, cellar *machine) {
	t.Helper()
	attic = found(t, "attic")
	inv := invite(t, attic, 2)
	den, cellar = join(t, inv, "den"), join(t, inv, "cellar")
	for _, m := range []*machine{attic, den, cellar} {
		eventually(t, 10*time.Second, "three alive", seesAlive(m, 3))
	}
	eventually(t, 10*time.Second, "one state", sameState(attic, den, cellar))
	return attic, den, cellar
}

func numbered(n int, make func(i int) []byte) [][]byte {
	var raws [][]byte
	for i := range n {
		raws = append(raws, make(i))
	}
	return raws
}
