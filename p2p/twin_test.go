package p2p

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p/record"
)

// run starts a node of a machine's and says with what it ends.
func (m *machine) run(t *testing.T, mesh *machine, name string) (*Node, <-chan error) {
	t.Helper()
	n, err := New(m.options(t, mesh.Mesh, name))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Run(t.Context()) }()
	return n, ended
}

// copied is a machine with a copy of another one's state folder.
func copied(t *testing.T, m *machine) *machine {
	t.Helper()
	c := newMachine(t)
	c.key = m.key
	var writes []record.Write
	err := m.storage.Scan(nil, func(key, value []byte) error {
		writes = append(writes, record.Write{Key: append([]byte{}, key...), Value: append([]byte{}, value...)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.storage.Apply(writes); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestACopiedStateFolderStepsAside: of two machines with one identity the one
// that came later ends, whether the copy was taken a moment ago or long before.
func TestACopiedStateFolderStepsAside(t *testing.T) {
	for _, c := range []struct {
		name     string
		restarts int // Of the first machine, after the copy was taken.
	}{{"a fresh copy", 0}, {"an old copy", 3}} {
		t.Run(c.name, func(t *testing.T) {
			attic := found(t, "attic")
			den := join(t, invite(t, attic, 1), "den")
			eventually(t, 10*time.Second, "both alive", func() bool { return seesAlive(attic, 2)() && seesAlive(den, 2)() && sameState(attic, den)() })
			twin := copied(t, den)
			for range c.restarts {
				den.stop()
				den.open(t, attic.Mesh, "den", func(*Node) error { return nil })
				eventually(t, 10*time.Second, "den is back", func() bool { return seesAlive(attic, 2)() && seesAlive(den, 2)() })
			}
			eventually(t, 15*time.Second, "den has looked around", func() bool { return den.Surveyed() && sameState(attic, den)() })
			twin.listen = []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}
			_, ended := twin.run(t, attic, "den")
			select {
			case err := <-ended:
				if !errors.Is(err, ErrTwin) {
					t.Fatalf("the copy ended with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the copy goes on")
			}
			eventually(t, 15*time.Second, "den is in the mesh as before", func() bool {
				c, ok := attic.contactRecord(den.Self())
				return ok && string(c.Instance) == string(den.life.instance) && seesAlive(attic, 2)() && seesAlive(den, 2)() && sameState(attic, den)()
			})
		})
	}
}

// TestADatabaseThatWasSetBackIsNoTwin: records of an earlier life come back, and
// the machine goes on.
func TestADatabaseThatWasSetBackIsNoTwin(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "both alive", func() bool { return seesAlive(attic, 2)() && sameState(attic, den)() })
	old := copied(t, den)
	for range 3 {
		den.stop()
		den.open(t, attic.Mesh, "den", func(*Node) error { return nil })
		eventually(t, 10*time.Second, "den is back", func() bool { return seesAlive(attic, 2)() && sameState(attic, den)() })
	}
	den.stop()
	again, ended := old.run(t, attic, "den")
	eventually(t, 15*time.Second, "its own contact is the one that counts", func() bool {
		c, ok := attic.contactRecord(again.Self())
		return ok && string(c.Instance) == string(again.life.instance) && seesAlive(attic, 2)() && again.Table().Root() == attic.Table().Root()
	})
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	default:
	}
}

// TestACopyThatBeginsOfflineStepsAside: the one that came to the mesh later is the
// copy, whatever it saw while it was alone.
func TestACopyThatBeginsOfflineStepsAside(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "both alive", func() bool { return seesAlive(attic, 2)() && seesAlive(den, 2)() && sameState(attic, den)() })
	twin := copied(t, den)
	for range 3 {
		den.stop()
		den.open(t, attic.Mesh, "den", func(*Node) error { return nil })
		eventually(t, 10*time.Second, "den is back", func() bool { return seesAlive(attic, 2)() && seesAlive(den, 2)() })
	}
	den.stop()
	n, first := den.run(t, attic, "den")
	eventually(t, 15*time.Second, "den has looked around", func() bool { return n.Surveyed() && attic.Table().Root() == n.Table().Root() })

	c, err := New(twin.options(t, attic.Mesh, "den"))
	if err != nil {
		t.Fatal(err)
	}
	var offline atomic.Bool
	offline.Store(true)
	c.gate.cut = func(peer.ID) bool { return offline.Load() }
	second := make(chan error, 1)
	go func() { second <- c.Run(t.Context()) }()
	eventually(t, 2*surveyPatience, "it has looked around alone", c.Surveyed)
	offline.Store(false)
	select {
	case err := <-first:
		t.Errorf("the machine that ran all the time ended: %v", err)
	case err := <-second:
		if !errors.Is(err, ErrTwin) {
			t.Errorf("the copy ended: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("neither")
	}
}
