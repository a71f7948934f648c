package p2p

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/boxo/blockstore"
	cid "github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

const agent = "relay/test"

// machine is one peer of a test, with all that survives its restart.
type machine struct {
	*Node
	key     crypto.PrivKey
	storage *recordtest.Memory
	blocks  blockstore.Blockstore
	files   Files
	listen  []ma.Multiaddr
	kinds   []record.Kind
	sim     []libp2p.Option // On a simulated network.
	stop    func()
	apart   func(peer.ID) bool // No connection to these stands.
	serves  http.Handler       // What its hop handler is; nil is none.

	admission *Admission
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	m, err := bareMachine()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bareMachine() (*machine, error) {
	key, _, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	return &machine{key: key, listen: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}, storage: recordtest.NewMemory(), blocks: blockstore.NewBlockstore(dssync.MutexWrap(datastore.NewMapDatastore()))}, nil
}

func testLog(t testing.TB, name string) *slog.Logger {
	if !testing.Verbose() {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("peer", name)
}

func (m *machine) options(t testing.TB, mesh membership.MeshID, name string) Options {
	return Options{
		Identity: m.key, Mesh: mesh, Storage: m.storage, Name: name, Agent: agent, Blocks: m.blocks, Files: m.files, Kinds: m.kinds,
		MayHave: func(_ peer.ID, trust membership.Trust, _ cid.Cid, _, _ int64) bool {
			return trust == membership.TrustReplicas
		},
		Listen: m.listen,
		host:   m.sim,
		Log:    testLog(t, name),
	}
}

// open makes the machine's node on loopback, and starts it once ready has run.
func (m *machine) open(t testing.TB, mesh membership.MeshID, name string, ready func(*Node) error) {
	t.Helper()
	n, err := New(m.options(t, mesh, name))
	if err != nil {
		t.Fatal(err)
	}
	n.gate.cut = m.apart
	if m.serves != nil {
		n.Serve(m.serves, http.NotFoundHandler())
	}
	if err := ready(n); err != nil {
		n.Close()
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	var once sync.Once
	m.Node = n
	m.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, ErrRevoked) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	t.Cleanup(m.stop)
}

func found(t testing.TB, name string) *machine {
	t.Helper()
	return foundOn(t, name, "/ip4/127.0.0.1/tcp/0")
}

func foundOn(t testing.TB, name, listen string) *machine {
	t.Helper()
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.listen = []ma.Multiaddr{ma.StringCast(listen)}
	m.open(t, key.ID(), name, func(n *Node) error { return n.Found(key, name+"'s mesh") })
	return m
}

func invite(t testing.TB, m *machine, uses int) membership.Invite {
	t.Helper()
	inv, _, err := m.Invite(InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: uses, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := membership.ParseInvite(inv.String())
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func join(t testing.TB, inv membership.Invite, name string) *machine {
	t.Helper()
	m := newMachine(t)
	admission, err := Join(t.Context(), m.key, inv, name, "relay/test")
	if err != nil {
		t.Fatal(err)
	}
	m.open(t, admission.Mesh, name, func(n *Node) error { return n.Adopt(admission) })
	return m
}

// eventually waits for a condition to hold.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %s", within, what)
		case <-tick.C:
		}
	}
}

func seesAlive(m *machine, want int) func() bool {
	return func() bool {
		alive := 0
		for _, p := range m.Peers() {
			if p.State == liveness.Alive {
				alive++
			}
		}
		return alive == want
	}
}

func sameState(machines ...*machine) func() bool {
	return func() bool {
		for _, m := range machines[1:] {
			if m.Table().Root() != machines[0].Table().Root() {
				return false
			}
		}
		return true
	}
}
