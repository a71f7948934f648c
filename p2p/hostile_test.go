package p2p

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

// connectTo makes a stranger with a connection to a machine.
func connectTo(t *testing.T, m *machine) (host.Host, network.Conn) {
	t.Helper()
	h, err := libp2p.New(libp2p.NoListenAddrs, libp2p.ResourceManager(&network.NullResourceManager{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.Peerstore().AddAddrs(m.Self(), m.Addrs(), time.Hour)
	c, err := h.Network().DialPeer(t.Context(), m.Self())
	if err != nil {
		t.Fatal(err)
	}
	return h, c
}

// TestStrangersTakeNoRoomFromMembers: twenty of them hold what streams they get,
// silent, and members still open as many as they like.
func TestStrangersTakeNoRoomFromMembers(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "both alive", seesAlive(den, 2))
	for range 20 {
		_, c := connectTo(t, attic)
		for range heldPerPeer {
			if s, err := c.NewStream(t.Context()); err == nil {
				_, _ = s.Write([]byte{19})
			}
		}
	}
	for i := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		s, err := den.host.NewStream(ctx, attic.Self(), ProtocolProbe)
		cancel()
		if err != nil {
			t.Fatalf("stream %d of a member: %v", i, err)
		}
		defer s.Reset()
		_ = s.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := s.Write(binary.BigEndian.AppendUint64([]byte{probeEcho}, 1)); err != nil {
			t.Fatalf("stream %d of a member: %v", i, err)
		}
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Fatalf("stream %d of a member: %v", i, err)
		}
	}
}

// TestAnnouncedLengthsTakeNoMemory: a stranger opens many join streams and says
// on each that much is to come.
func TestAnnouncedLengthsTakeNoMemory(t *testing.T) {
	attic := found(t, "attic")
	_, c := connectTo(t, attic)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	hello := append(append(token("/multistream/1.0.0"), token(string(ProtocolJoin))...), 0, 0, 0xff, 0xff, 1)
	for range 500 {
		if s, err := c.NewStream(t.Context()); err == nil {
			_, _ = s.Write(hello)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("500 streams took %d MiB", grown>>20)
	}
}

// TestASingleUseStaysSingle: whoever takes the countersignature and goes without
// a word has used the invite, also at other members, and after a restart.
func TestASingleUseStaysSingle(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	inv := invite(t, attic, 1)
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	take := func(m *machine) error {
		key, _, err := NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		h, err := newHost(key, "relay/test", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		h.Peerstore().AddAddrs(m.Self(), m.Addrs(), time.Hour)
		c, err := h.Network().DialPeer(t.Context(), m.Self())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := openRaw(ctx, c, ProtocolJoin)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeFrame(s, greeting{Version: Version, Mesh: inv.Mesh, Name: "thief", Invite: inv.ID(), InviteSig: inv.Sign(h.ID())}); err != nil {
			t.Fatal(err)
		}
		a, _, err := readAnswer(s)
		if err == nil && len(a.AdmitSig) == 0 {
			t.Error("an answer without a signature")
		}
		return err
	}
	if err := take(attic); err != nil {
		t.Fatal(err)
	}
	if err := take(attic); reasonOf(err) != "invite_spent" {
		t.Errorf("a second time: %v", err)
	}
	eventually(t, 5*time.Second, "den knows", sameState(attic, den))
	if err := take(den); reasonOf(err) != "invite_spent" {
		t.Errorf("at another member: %v", err)
	}
	attic.stop()
	attic.open(t, attic.Mesh, "attic", func(*Node) error { return nil })
	if err := take(attic); reasonOf(err) != "invite_spent" {
		t.Errorf("after a restart: %v", err)
	}
}

// TestDoubleUseAcrossACutHealsToOneMember: the earlier stamp stands.
func TestDoubleUseAcrossACutHealsToOneMember(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	inv := invite(t, attic, 1)
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	den.stop()
	viaAttic := inv
	viaAttic.Peers = []peer.AddrInfo{{ID: attic.Self(), Addrs: attic.Addrs()}}
	first := join(t, viaAttic, "first")
	attic.stop()
	den.open(t, den.Mesh, "den", func(*Node) error { return nil })
	viaDen := inv
	viaDen.Peers = []peer.AddrInfo{{ID: den.Self(), Addrs: den.Addrs()}}
	second := newMachine(t)
	if _, err := Join(t.Context(), second.key, viaDen, "second", "relay/test"); err != nil {
		t.Fatal(err)
	}
	attic.open(t, attic.Mesh, "attic", func(n *Node) error {
		n.Remember(viaDen.Peers)
		return nil
	})
	secondID, err := peer.IDFromPrivateKey(second.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*machine{attic, den, first} {
		eventually(t, 20*time.Second, "only the first is left", func() bool {
			_, in := m.Member(secondID)
			_, stays := m.Member(first.Self())
			return !in && stays
		})
	}
}

// TestAMachineKilledRightAfterJoiningFindsTheMesh again, by what the admission
// told it.
func TestAMachineKilledRightAfterJoiningFindsTheMesh(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	den := newMachine(t)
	admission, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", "relay/test")
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(den.options(t, admission.Mesh, "den"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Adopt(admission); err != nil {
		t.Fatal(err)
	}
	n.Close() // Before it has met anybody.
	den.open(t, admission.Mesh, "den", func(*Node) error { return nil })
	eventually(t, 15*time.Second, "both alive", func() bool { return seesAlive(den, 2)() && seesAlive(attic, 2)() })
}

// TestJoiningAfterLosingEverythingButTheIdentity gives the member back what
// proves it, and spends nothing; by whichever member it comes.
func TestJoiningAfterLosingEverythingButTheIdentity(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	toCellar := invite(t, attic, 1)
	eventually(t, 10*time.Second, "den has the invite", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	toCellar.Peers = []peer.AddrInfo{{ID: den.Self(), Addrs: den.Addrs()}} // Let in by den.
	cellar := join(t, toCellar, "cellar")
	inv := invite(t, attic, 1)
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(cellar, 3)() && sameState(attic, den, cellar)() })
	den.stop()
	den.storage = recordtest.NewMemory()
	inv.Peers = []peer.AddrInfo{{ID: cellar.Self(), Addrs: cellar.Addrs()}}
	admission, err := Join(t.Context(), den.key, inv, "den", "relay/test")
	if err != nil {
		t.Fatal(err)
	}
	den.open(t, admission.Mesh, "den", func(n *Node) error { return n.Adopt(admission) })
	for _, m := range []*machine{attic, den, cellar} {
		eventually(t, 20*time.Second, "three alive again", seesAlive(m, 3))
	}
	if _, _, used, _ := attic.Roster().Issue(inv.ID(), ""); used != 0 {
		t.Errorf("it spent %d uses", used)
	}
}

// TestAMemberThatRefusesIsLeftInPeace: it is not dialled over and over.
func TestAMemberThatRefusesIsLeftInPeace(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "both alive and known", func() bool {
		_, ok := attic.contact(den.Self())
		return ok && seesAlive(attic, 2)()
	})
	addrs := den.ListenAddrs()
	den.stop()
	other, err := libp2p.New(libp2p.Identity(den.key), libp2p.ListenAddrs(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	dials := make(chan struct{}, 1000)
	other.SetStreamHandler(ProtocolJoin, func(s network.Stream) {
		dials <- struct{}{}
		_ = writeFrame(s, answer{Version: Version + 1, Name: "den"})
		_ = s.Close()
	})
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	<-timer.C
	if n := len(dials); n < 1 || n > 12 {
		t.Errorf("%d dials in ten seconds", n)
	}
}

// TestAClientThatLeavesEndsAWriteThatBlocks, on both transports.
func TestAClientThatLeavesEndsAWriteThatBlocks(t *testing.T) {
	for _, transport := range []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"} {
		t.Run(transport, func(t *testing.T) {
			attic := foundOn(t, "attic", transport)
			den := newMachine(t)
			admission, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", "relay/test")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			den.listen = addrs(transport)
			den.open(t, admission.Mesh, "den", func(n *Node) error {
				n.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					chunk := make([]byte, 64<<10)
					for {
						if _, err := w.Write(chunk); err != nil {
							ended <- err
							return
						}
					}
				}), http.NotFoundHandler())
				return n.Adopt(admission)
			})
			eventually(t, 10*time.Second, "both alive", seesAlive(attic, 2))
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://replica/x", nil)
			response, err := attic.HTTP(den.Self()).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := response.Body.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			cancel()
			_ = response.Body.Close()
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				t.Error("the other side writes on")
			}
		})
	}
}

// TestNothingOfANodeIsLeft once Run has returned, strangers at the gate or not.
func TestNothingOfANodeIsLeft(t *testing.T) {
	attic := found(t, "attic")
	_, c := connectTo(t, attic)
	for range 4 {
		if s, err := c.NewStream(t.Context()); err == nil {
			_, _ = s.Write(append(token("/multistream/1.0.0"), token(string(ProtocolSync))...))
		}
	}
	eventually(t, 5*time.Second, "the gate holds them", func() bool { return attic.gate.held.running() > 0 })
	attic.stop()
	if attic.work.begin() {
		t.Error("something could still begin")
	}
	buffer := make([]byte, 1<<20)
	stacks := string(buffer[:runtime.Stack(buffer, true)])
	for _, name := range []string{"p2p.(*gate).handle", "p2p.(*links).", "p2p.(*Node).handle"} {
		if n := strings.Count(stacks, name); n > 0 {
			t.Errorf("%d goroutines are still in %s", n, name)
		}
	}
}

// TestOneSpellingOfAPeer: a record about a peer has one key.
func TestOneSpellingOfAPeer(t *testing.T) {
	attic := found(t, "attic")
	other := peer.ToCid(attic.Self()).String()
	if _, err := peer.Decode(other); err != nil {
		t.Fatal(err)
	}
	if err := attic.PutOwned(KindContact, other, Contact{Name: "twin"}); err == nil {
		t.Error("a contact under another spelling was kept")
	}
	if _, err := record.OwnerIsFirst(other + "/x"); err == nil {
		t.Error("another spelling owns a key")
	}
	if _, err := record.OwnerIsFirst(fmt.Sprintf("%s/x", attic.Self())); err != nil {
		t.Error(err)
	}
}
