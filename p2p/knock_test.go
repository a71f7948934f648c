package p2p

import (
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"relay/p2p/liveness"
)

// byQUIC is a mesh of two with one connection, by QUIC, which ends with no
// process. The second listens on TCP as well.
func byQUIC(t *testing.T) (attic, den *machine) {
	t.Helper()
	attic = foundOn(t, "attic", "/ip4/127.0.0.1/udp/0/quic-v1")
	den = newMachine(t)
	den.listen = append(den.listen, ma.StringCast("/ip4/127.0.0.1/udp/0/quic-v1"))
	a, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", agent)
	if err != nil {
		t.Fatal(err)
	}
	den.open(t, a.Mesh, "den", func(n *Node) error { return n.Adopt(a) })
	eventually(t, 10*time.Second, "both alive", func() bool { return agree([]*machine{attic, den}, liveness.Alive, attic, den) })
	for _, p := range attic.Peers() {
		if !p.Self && p.Transport != "quic" {
			t.Fatalf("they are connected by %s", p.Transport)
		}
	}
	return attic, den
}

// fall makes a machine silent as a kill does: its connection by QUIC stands.
func fall(m *machine) {
	m.host.RemoveStreamHandler(ProtocolProbe)
	for _, c := range m.host.Network().Conns() {
		for _, s := range c.GetStreams() {
			if s.Protocol() == ProtocolProbe {
				_ = s.Reset()
			}
		}
	}
}

// shut closes a machine's TCP port, as a kill does too.
func shut(t *testing.T, m *machine) {
	t.Helper()
	for _, a := range m.ListenAddrs() {
		if transportOf(a) == "tcp" {
			m.host.Network().(*swarm.Swarm).ListenClose(a)
			return
		}
	}
	t.Fatal("it does not listen on TCP")
}

func doorsOf(m, at *machine) int {
	m.links.mu.Lock()
	defer m.links.mu.Unlock()
	return len(m.links.members[at.Self()].doors)
}

func silenceOf(m, at *machine) time.Duration {
	m.links.mu.Lock()
	defer m.links.mu.Unlock()
	silence, _ := m.links.members[at.Self()].silence(m.links.now())
	return silence
}

func TestAKilledPeerIsGoneThoughItsConnectionStands(t *testing.T) {
	t.Parallel()
	attic, den := byQUIC(t)
	eventually(t, 10*time.Second, "attic has found den's port", func() bool { return doorsOf(attic, den) == 1 })
	shut(t, den)
	if stateOf(attic, den) != liveness.Alive {
		t.Fatal("den is not alive, and answers")
	}
	fall(den)
	eventually(t, 10*time.Second, "den is gone", func() bool { return look(attic, den) == liveness.Gone })
	if silence := silenceOf(attic, den); silence < liveness.SuspectAfter || silence >= liveness.GoneAfter {
		t.Errorf("gone after a silence of %s", silence)
	}
	if attic.host.Network().Connectedness(den.Self()) != network.Connected {
		t.Error("the connection ended: that is not what is tested")
	}
}

// TestAPortThatWasNeverOpenSaysNothing: what refuses while its member answers is
// a firewall, not a machine whose process is dead.
func TestAPortThatWasNeverOpenSaysNothing(t *testing.T) {
	t.Parallel()
	attic, den := byQUIC(t)
	eventually(t, 10*time.Second, "attic knows where den is", func() bool {
		addrs, _ := attic.contact(den.Self())
		return len(addrs) == 2
	})
	shut(t, den)
	l := attic.links
	l.mu.Lock()
	k := l.members[den.Self()]
	l.mu.Unlock()
	if addrs, _ := attic.contact(den.Self()); len(addrs) != 2 {
		t.Fatalf("den says that it is at %v", addrs)
	}
	l.sound(t.Context(), den.Self(), k)
	if n := doorsOf(attic, den); n != 0 {
		t.Fatalf("%d ports were found open", n)
	}
	fall(den)
	eventually(t, 10*time.Second, "den is gone", func() bool { return look(attic, den) == liveness.Gone })
	if silence := silenceOf(attic, den); silence < liveness.GoneAfter {
		t.Errorf("gone after a silence of %s", silence)
	}
}
