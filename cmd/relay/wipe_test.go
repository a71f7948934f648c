package main

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	exchange "github.com/ipfs/boxo/exchange/offline"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p"
	"relay/p2p/membership"
	"relay/store"
	"relay/store/content"
)

// fill gives a machine all that a wipe is about: a pulled model, one in its
// owner's place, records, and what engines and requests leave behind.
func fill(t *testing.T, m *machine, dir string) (pulled, own string) {
	t.Helper()
	if err := m.found("a mesh"); err != nil {
		t.Fatal(err)
	}
	id, err := m.mesh()
	if err != nil {
		t.Fatal(err)
	}
	node, err := m.newNode(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	node.Close()
	if err := m.db.Space(auditSpace(id)).Apply([]store.Write{{Key: []byte("12345678"), Value: []byte("a row")}}); err != nil {
		t.Fatal(err)
	}
	if err := m.db.Space(schedulerSpace(id)).Apply([]store.Write{{Key: []byte("fence/x"), Value: []byte("a fence")}}); err != nil {
		t.Fatal(err)
	}
	from, err := content.New(content.Options{Space: m.db.Space("of another machine"), Dir: filepath.Join(dir, "elsewhere")})
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	held, err := from.Add(t.Context(), []string{write(filepath.Join(dir, "model"), "the bytes of a model")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.content.Pull(t.Context(), content.PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m", Swarm: singles{exchange.Exchange(from.Blocks())}})
	if err != nil {
		t.Fatal(err)
	}
	own = write(filepath.Join(dir, "own"), "the bytes of another")
	if _, err := m.content.Add(t.Context(), []string{own}, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{m.enginesDir() + "/x/log", m.kernelsDir() + "/k", m.shareKernelsDir() + "/k", m.tree.RPC() + "/t", m.tree.Log() + "/relay.log", m.tree.Log() + "/relay.log.1"} {
		write(path, "left behind")
	}
	return got.Path, own
}

// checkWiped holds a machine to what is to be left of it.
func checkWiped(t *testing.T, m *machine, id membership.MeshID, pulled, own string) {
	t.Helper()
	for _, path := range []string{pulled, m.enginesDir(), m.kernelsDir(), m.shareKernelsDir(), m.tree.RPC() + "/t", m.tree.Log() + "/relay.log.1"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if data, err := os.ReadFile(m.tree.Log() + "/relay.log"); err != nil || len(data) > 0 {
		t.Errorf("in the log: %q %v", data, err)
	}
	for _, path := range []string{own, m.tree.IdentityKey(), m.tree.MeshKey(), m.tree.RPC()} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for _, space := range []string{meshSpace(id), schedulerSpace(id), auditSpace(id)} {
		if err := m.db.Space(space).Scan(nil, func(key, _ []byte) error { return errors.New(string(key)) }); err != nil {
			t.Errorf("in %s: %v", space, err)
		}
	}
	if list := m.content.List(); len(list) != 1 || list[0].Path != own {
		t.Errorf("content: %+v", list)
	}
}

// A wipe is noted before anything is erased, and gone on with by the next start
// whatever was done of it when the machine died.
func TestWipeGoesOn(t *testing.T) {
	for name, begin := range map[string]func(*machine, membership.MeshID) error{
		"nothing was done":  func(*machine, membership.MeshID) error { return nil },
		"files were erased": func(m *machine, _ membership.MeshID) error { _, err := m.content.Erase(); return err },
		"all was erased":    func(m *machine, id membership.MeshID) error { _, err := m.erase(id); return err },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := settings{stateDir: filepath.Join(dir, "state"), apiKey: "rk-x"}
			s.Name = "attic"
			m := openTestMachine(t, s)
			pulled, own := fill(t, m, dir)
			id, _ := m.mesh()
			if err := m.save(keyWipe, wipeOrder{Mesh: id, Revoked: true, Peers: []peer.AddrInfo{deadPeer(t)}}); err != nil {
				t.Fatal(err)
			}
			if err := begin(m, id); err != nil {
				t.Fatal(err)
			}
			m.close()

			m = openTestMachine(t, s)
			defer m.close()
			var out bytes.Buffer
			if revoked, err := m.finishWipe(t.Context(), &out, false); err != nil || !revoked {
				t.Fatalf("%v, %v", revoked, err)
			}
			checkWiped(t, m, id, pulled, own)
			if !strings.Contains(out.String(), "the records of mesh "+string(id)) || !strings.Contains(out.String(), "kept: "+own) {
				t.Errorf("said: %s", &out)
			}
			if current, err := m.mesh(); err != nil || current != "" {
				t.Errorf("in mesh %q, %v", current, err)
			}
			// The mesh was not reached: that is tried once more, and then left be.
			var order wipeOrder
			if err := m.load(keyWipe, &order); err != nil || !order.Erased {
				t.Errorf("%+v, %v", order, err)
			}
			if revoked, err := m.finishWipe(t.Context(), &out, true); err != nil || revoked {
				t.Errorf("%v, %v", revoked, err)
			}
			order = wipeOrder{}
			if err := m.load(keyWipe, &order); err != nil || order.Mesh != "" {
				t.Errorf("once it is over: %+v, %v", order, err)
			}
		})
	}
}

// deadPeer is a member that cannot be reached.
func deadPeer(t *testing.T) peer.AddrInfo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	id, err := peer.Decode("12D3KooWQgmNLoZYvGmMVHtVYhYUBUsTpGKJ8RqVxGvFz2sYT1jw")
	if err != nil {
		t.Fatal(err)
	}
	port := strings.TrimPrefix(l.Addr().String(), "127.0.0.1:")
	return peer.AddrInfo{ID: id, Addrs: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/" + port)}}
}

// Started again in the middle of an order by an admin, a machine finishes it and
// stays down; after one of its own it goes on.
func TestUpFinishesAWipe(t *testing.T) {
	for _, revoked := range []bool{true, false} {
		dir := t.TempDir()
		s := settings{stateDir: filepath.Join(dir, "state"), apiKey: "rk-x", listen: "nonsense"} // So that it ends where a start begins.
		s.Name, s.Sandbox = "attic", "off"
		m := openTestMachine(t, s)
		pulled, own := fill(t, m, dir)
		id, _ := m.mesh()
		if err := m.save(keyWipe, wipeOrder{Mesh: id, Revoked: revoked}); err != nil {
			t.Fatal(err)
		}
		m.close()
		var out, warn bytes.Buffer
		err := up(t.Context(), s, "", &out, &warn)
		if err == nil || errors.Is(err, p2p.ErrRevoked) != revoked {
			t.Errorf("revoked %v: %v", revoked, err)
		}
		if !strings.Contains(out.String(), "erased: 1 pulled model") {
			t.Errorf("said: %s", &out)
		}
		m = openTestMachine(t, s)
		if _, err := os.Stat(pulled); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the pulled model is still there")
		}
		if _, err := os.Stat(own); err != nil {
			t.Error(err)
		}
		m.close()
	}
}

// A machine that has erased itself and has only to tell the mesh so is free to
// start, and to join another.
func TestUpGoesOnOnceErased(t *testing.T) {
	s := settings{stateDir: t.TempDir(), listen: "nonsense"} // So that it ends where a start begins.
	s.Name, s.Sandbox = "attic", "off"
	invite, err := membership.NewInvite("aaaaaaaaaaaaaaaa")
	if err != nil {
		t.Fatal(err)
	}
	invite.Peers = []peer.AddrInfo{deadPeer(t)}
	m := openTestMachine(t, s)
	if err := m.save(keyWipe, wipeOrder{Mesh: "bbbbbbbbbbbbbbbb", Revoked: true, Erased: true, Peers: []peer.AddrInfo{deadPeer(t)}}); err != nil {
		t.Fatal(err)
	}
	m.close()
	var out, warn bytes.Buffer
	if err := up(t.Context(), s, invite.String(), &out, &warn); err == nil || errors.Is(err, p2p.ErrRevoked) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%v", err)
	}
}

// Logs are emptied in this state folder alone, whatever its name matches, and not
// through links.
func TestEraseLogs(t *testing.T) {
	dir := t.TempDir()
	s := settings{stateDir: filepath.Join(dir, "relay[1]")}
	m := openTestMachine(t, s)
	defer m.close()
	write := func(path string) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("a line"), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	current, older := write(filepath.Join(m.tree.Log(), "relay.log")), write(filepath.Join(m.tree.Log(), "relay.log.1"))
	kept := []string{
		write(filepath.Join(dir, "relay1", "log", "relay.log")),
		write(filepath.Join(dir, "mine.log")),
		write(filepath.Join(m.tree.Log(), "mine.log")),
	}
	link := filepath.Join(m.tree.Log(), "relay.log.2")
	if err := os.Symlink(kept[1], link); err != nil {
		t.Fatal(err)
	}
	if err := m.eraseLogs(); err != nil {
		t.Fatal(err)
	}
	for _, path := range kept {
		if data, err := os.ReadFile(path); err != nil || string(data) != "a line" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	for _, path := range []string{older, link} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if data, err := os.ReadFile(current); err != nil || len(data) > 0 {
		t.Errorf("in the log: %q, %v", data, err)
	}
}

// singles is a swarm without holders: all comes block by block.
type singles struct{ content.BlockGetter }

func (singles) Holders() []content.Holder { return nil }
