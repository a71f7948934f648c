package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p/membership"
	"relay/scheduler"
)

func openTestMachine(t *testing.T, s settings) *machine {
	t.Helper()
	m, err := openMachine(s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What a start founds is shown by whichever start comes to that, once.
func TestSecretsAreShownOnce(t *testing.T) {
	s := settings{stateDir: t.TempDir()}
	m := openTestMachine(t, s)
	if err := m.found("home"); err != nil {
		t.Fatal(err)
	}
	id, err := m.mesh()
	if err != nil {
		t.Fatal(err)
	}
	key, mine := m.meshKey(id)
	if !mine {
		t.Fatal("the mesh's key is not there")
	}
	m.close() // This start ends before it has shown anything.

	m = openTestMachine(t, s)
	got, err := m.unshown(id)
	if err != nil || got.recovery != key.RecoveryCode() || !strings.HasPrefix(got.key, "rk-") || got.mesh != "home" {
		t.Errorf("%+v: %v", got, err)
	}
	if err := m.forget(keyUnshown); err != nil {
		t.Fatal(err)
	}
	m.close()

	m = openTestMachine(t, s)
	defer m.close()
	if got, err := m.unshown(id); err != nil || got != (secrets{}) {
		t.Errorf("shown again: %v", err)
	}
}

// The keys of a mesh that was left are kept beside those of the one that counts,
// and are told apart by themselves: the machine may die at any point in between.
func TestFormerKeysAreMovedAside(t *testing.T) {
	m := openTestMachine(t, settings{stateDir: t.TempDir()})
	defer m.close()
	if err := m.found(""); err != nil {
		t.Fatal(err)
	}
	first, _ := m.mesh()
	seed, err := os.ReadFile(m.tree.MeshKey())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.moveAsideKeys(first); err != nil {
		t.Fatal(err)
	}
	if _, mine := m.meshKey(first); !mine {
		t.Error("the key of this mesh was moved")
	}
	if err := m.found(""); err != nil { // As after a start that was killed while it founded.
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(m.tree.MeshKey() + "." + string(first)); err != nil || !bytes.Equal(kept, seed) {
		t.Errorf("the first key is lost: %v", err)
	}
	if _, err := os.Stat(m.tree.DefaultKey() + "." + string(first)); err != nil {
		t.Error(err)
	}
	second, _ := m.mesh()
	if _, mine := m.meshKey(second); !mine || second == first {
		t.Error("the second mesh has no key")
	}
	other, _ := membership.NewMeshKey()
	if err := m.moveAsideKeys(other.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.tree.MeshKey()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second key lies where that of another mesh belongs: %v", err)
	}
	if err := m.moveAsideKeys(other.ID()); err != nil { // Nothing to do is no error.
		t.Error(err)
	}
}

// A damaged identity says where it is and what to do.
func TestADamagedIdentity(t *testing.T) {
	s := settings{stateDir: t.TempDir()}
	m := openTestMachine(t, s)
	path := m.tree.IdentityKey()
	m.close()
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openMachine(s, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "invite") {
		t.Errorf("%v", err)
	}
}

// One join at a time; one that failed lets the next one try.
func TestOneJoinAtATime(t *testing.T) {
	m := openTestMachine(t, settings{stateDir: t.TempDir()})
	defer m.close()
	invite, err := membership.NewInvite("aaaaaaaaaaaaaaaa")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := "/ip4/127.0.0.1/tcp/" + strings.TrimPrefix(l.Addr().String(), "127.0.0.1:")
	if err := l.Close(); err != nil { // So that nobody listens there.
		t.Fatal(err)
	}
	id, err := peer.Decode("12D3KooWQgmNLoZYvGmMVHtVYhYUBUsTpGKJ8RqVxGvFz2sYT1jw")
	if err != nil {
		t.Fatal(err)
	}
	invite.Peers = []peer.AddrInfo{{ID: id, Addrs: []ma.Multiaddr{ma.StringCast(addr)}}}

	p := &program{m: m}
	var during error
	p.again = func(error) { t.Error("it changed its mesh") }
	p.models = func() []scheduler.Carried { // Called in the middle of a join.
		_, during = p.join(t.Context(), invite)
		return nil
	}
	_, err = p.join(t.Context(), invite)
	if scheduler.ReasonOf(err) != scheduler.Unreachable || scheduler.ReasonOf(during) != scheduler.Busy {
		t.Errorf("%v; meanwhile: %v", err, during)
	}
	p.models = func() []scheduler.Carried { return nil }
	if _, err := p.join(t.Context(), invite); scheduler.ReasonOf(err) != scheduler.Unreachable {
		t.Errorf("%v", err)
	}
}
