package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"relay/p2p/liveness"
	"relay/p2p/membership"
)

func TestThreeMachinesBecomeOneMesh(t *testing.T) {
	attic := found(t, "attic")
	inv := invite(t, attic, 2)
	den, cellar := join(t, inv, "den"), join(t, inv, "cellar")
	all := []*machine{attic, den, cellar}
	for _, m := range all {
		eventually(t, 10*time.Second, "three alive", seesAlive(m, 3))
	}
	eventually(t, 10*time.Second, "one state everywhere", sameState(all...))
	if role := memberOf(t, cellar, attic.Self()).Role; role != membership.RoleAdmin {
		t.Errorf("the founder is %s to the last who joined", role)
	}
	if role := memberOf(t, attic, cellar.Self()).Role; role != membership.RoleMember {
		t.Errorf("a joiner is %s", role)
	}
	if err := den.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: "mine"}); err == nil {
		t.Error("a member that is no admin changed the mesh's name")
	}
}

func memberOf(t *testing.T, m *machine, id peer.ID) membership.Member {
	t.Helper()
	member, ok := m.Member(id)
	if !ok {
		t.Fatalf("%s is no member", id)
	}
	return member
}

func TestAnyMemberHonoursAnInvite(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "attic can name den", func() bool {
		_, ok := attic.contact(den.Self())
		return ok && seesAlive(attic, 2)()
	})
	inv := invite(t, attic, 1)
	if len(inv.Peers) != 2 {
		t.Fatalf("the invite names %d peers, not both that are up", len(inv.Peers))
	}
	eventually(t, 10*time.Second, "den has the invite", sameState(attic, den))
	attic.stop()
	cellar := join(t, inv, "cellar")
	eventually(t, 10*time.Second, "cellar and den see one another", seesAlive(cellar, 2))
}

func TestInvitesThatAreRefused(t *testing.T) {
	attic := found(t, "attic")
	other := found(t, "other")
	good := invite(t, attic, 1)
	join(t, good, "den")
	expired, _, err := attic.Invite(InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: 1, TTL: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	revoked := invite(t, attic, 1)
	if _, err := attic.Table().DeleteShared(membership.KindInvite, revoked.ID()); err != nil {
		t.Fatal(err)
	}
	unknown, err := membership.NewInvite(attic.Mesh)
	if err != nil {
		t.Fatal(err)
	}
	unknown.Peers = good.Peers
	foreign := invite(t, other, 1)
	foreign.Peers = good.Peers
	away := invite(t, other, 1)
	other.stop()
	for _, c := range []struct {
		name string
		inv  membership.Invite
		want error
	}{
		{"spent", good, membership.ErrInviteSpent},
		{"expired", expired, membership.ErrInviteExpired},
		{"revoked", revoked, membership.ErrInviteRevoked},
		{"unknown", unknown, membership.ErrInviteUnknown},
		{"foreign", foreign, membership.ErrInviteForeign},
		{"nobody there", away, ErrUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(attic.Roster().Members())
			_, err := Join(t.Context(), newMachine(t).key, c.inv, "mallory", "relay/test")
			if reasonOf(err) != reasonOf(c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if after := len(attic.Roster().Members()); after != before {
				t.Errorf("%d members became %d", before, after)
			}
		})
	}
}

func reasonOf(err error) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) {
		return r.Reason()
	}
	return fmt.Sprint(err)
}

func TestJoiningAgainSpendsNothing(t *testing.T) {
	attic := found(t, "attic")
	inv := invite(t, attic, 1)
	m := newMachine(t)
	for range 3 {
		if _, err := Join(t.Context(), m.key, inv, "den", "relay/test"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(attic.Roster().Members()); n != 2 {
		t.Errorf("%d members", n)
	}
}

func TestAPeerOfAnotherProtocolVersionIsToldSo(t *testing.T) {
	attic := found(t, "attic")
	if err := attic.answerGreeting(nil, attic.Self(), greeting{Version: Version + 1, Mesh: attic.Mesh, Name: "den"}); reasonOf(err) != "protocol_mismatch" {
		t.Errorf("got %v", err)
	} else if !strings.Contains(err.Error(), "den speaks version 2") {
		t.Errorf("the sentence is %q", err)
	}
}

func TestStrangersReachOnlyTheJoinProtocol(t *testing.T) {
	attic := found(t, "attic")
	stranger, err := libp2p.New(libp2p.NoListenAddrs)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := stranger.Connect(ctx, peer.AddrInfo{ID: attic.Self(), Addrs: attic.Addrs()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "identified", func() bool {
		p, _ := stranger.Peerstore().GetProtocols(attic.Self())
		return len(p) > 0
	})
	told, _ := stranger.Peerstore().GetProtocols(attic.Self())
	if len(told) != 1 || told[0] != ProtocolJoin {
		t.Errorf("identify tells a stranger of %v", told)
	}
	if agent, _ := stranger.Peerstore().Get(attic.Self(), "AgentVersion"); agent != nil && agent != "" {
		t.Errorf("identify tells a stranger the agent %v", agent)
	}
	opened := make(chan string)
	protocols := attic.host.Mux().Protocols()
	for _, id := range protocols {
		go func() {
			s, err := stranger.NewStream(ctx, attic.Self(), id)
			if err != nil {
				opened <- ""
				return
			}
			defer s.Reset()
			_ = s.SetDeadline(time.Now().Add(5 * time.Second))
			_, err = s.Write([]byte{0})
			if err == nil {
				_, err = s.Read(make([]byte, 1))
			}
			if err == nil && id != ProtocolJoin && id != protocolIdentify {
				opened <- string(id)
				return
			}
			opened <- ""
		}()
	}
	for range protocols {
		if id := <-opened; id != "" {
			t.Errorf("a stranger was answered on %s", id)
		}
	}
	if n := len(attic.Table().All()); n == 0 {
		t.Error("no records")
	}
}

func TestEveryHandlerIsInTheTable(t *testing.T) {
	attic := found(t, "attic")
	seen := map[protocol.ID]bool{}
	for _, id := range attic.host.Mux().Protocols() {
		seen[id] = true
		if _, ok := accessTo(attic.Mesh, id); !ok {
			t.Errorf("%s has a handler, but no line in the table of who may open it", id)
		}
	}
	for _, id := range []protocol.ID{ProtocolJoin, ProtocolSync, ProtocolProbe, ProtocolHTTP, ProtocolCrowd, ProtocolControl, ProtocolBlocks} {
		if !seen[id] {
			t.Errorf("%s has no handler", id)
		}
	}
}

func TestAPeerThatStopsIsGoneAndComesBack(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	inv := invite(t, attic, 1)
	den := join(t, inv, "den")
	eventually(t, 10*time.Second, "both alive", seesAlive(attic, 2))
	den.stop()
	eventually(t, 2*time.Second, "den is suspect", func() bool { return stateOf(attic, den) != liveness.Alive })
	eventually(t, 3*time.Second, "den is gone: its port is closed", func() bool { return stateOf(attic, den) == liveness.Gone })
	if err := attic.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: "new name"}); err != nil {
		t.Fatal(err)
	}
	den.open(t, attic.Mesh, "den", func(*Node) error { return nil }) // At another port, which it tells.
	eventually(t, 15*time.Second, "den is back", seesAlive(attic, 2))
	eventually(t, 10*time.Second, "den caught up", sameState(attic, den))
}

func stateOf(m, other *machine) liveness.State {
	for _, p := range m.Peers() {
		if p.ID == other.Self() {
			return p.State
		}
	}
	return ""
}

func TestHTTPBetweenPeersPassesCancellationOn(t *testing.T) {
	attic := found(t, "attic")
	cancelled := make(chan struct{})
	asked := make(chan peer.ID, 1)
	den := newMachine(t)
	admission, err := Join(t.Context(), den.key, invite(t, attic, 1), "den", "relay/test")
	if err != nil {
		t.Fatal(err)
	}
	den.open(t, admission.Mesh, "den", func(n *Node) error {
		n.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			from, _ := RemotePeer(r.Context())
			asked <- from
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(cancelled)
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
	if from := <-asked; from != attic.Self() {
		t.Errorf("asked by %s", from)
	}
	cancel()
	select {
	case <-cancelled:
	case <-time.After(time.Second):
		t.Error("the other side did not see the cancellation within a second")
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}

func TestBlocksComeFromTheMemberThatHasThem(t *testing.T) {
	attic := found(t, "attic")
	inv := invite(t, attic, 2)
	join(t, inv, "den")
	cellar := join(t, inv, "cellar")
	eventually(t, 10*time.Second, "three alive", seesAlive(cellar, 3))
	block := blocks.NewBlock([]byte("a block of a model"))
	if err := attic.blocks.Put(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := cellar.Fetch(ctx).GetBlock(ctx, block.Cid())
	if err != nil {
		t.Fatal(err)
	}
	if string(got.RawData()) != string(block.RawData()) {
		t.Errorf("got %q", got.RawData())
	}
}

func TestClientsGetNoBlocks(t *testing.T) {
	attic := found(t, "attic")
	inv, _, err := attic.Invite(InviteOptions{Role: membership.RoleMember, Trust: membership.TrustClient, Uses: 1, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	phone := join(t, inv, "phone")
	eventually(t, 10*time.Second, "both alive", seesAlive(phone, 2))
	block := blocks.NewBlock([]byte("a block of a model"))
	if err := attic.blocks.Put(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := phone.Fetch(ctx).GetBlock(ctx, block.Cid()); err == nil {
		t.Error("a client got a block")
	}
}

// TestCutOffFromOneOtherIsNotGone: den and cellar lose each other, attic hears
// both; so neither is gone to the other, and both are alive again when the cut
// ends.
func TestCutOffFromOneOtherIsNotGone(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	inv := invite(t, attic, 2)
	var cut atomic.Bool
	machines := []*machine{newMachine(t), newMachine(t)}
	for i, m := range machines {
		admission, err := Join(t.Context(), m.key, inv, fmt.Sprintf("m%d", i), "relay/test")
		if err != nil {
			t.Fatal(err)
		}
		m.open(t, admission.Mesh, fmt.Sprintf("m%d", i), func(n *Node) error {
			n.gate.cut = func(id peer.ID) bool { return cut.Load() && id != attic.Self() }
			return n.Adopt(admission)
		})
	}
	den, cellar := machines[0], machines[1]
	for _, m := range []*machine{attic, den, cellar} {
		eventually(t, 10*time.Second, "three alive", seesAlive(m, 3))
	}
	cut.Store(true)
	if err := den.host.Network().ClosePeer(cellar.Self()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Second, "suspect", func() bool { return stateOf(den, cellar) == liveness.Suspect })
	until := time.NewTimer(2 * liveness.GoneAfter)
	defer until.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for passed := false; !passed; {
		select {
		case <-until.C:
			passed = true
		case <-look.C:
			if a, b := stateOf(den, cellar), stateOf(cellar, den); a != liveness.Suspect || b != liveness.Suspect {
				t.Fatalf("cut off from one another they are %s and %s", a, b)
			}
		}
	}
	cut.Store(false)
	eventually(t, 20*time.Second, "alive again", seesAlive(den, 3))
}
