package p2p

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// sides are the two sides of a cut.
type sides struct {
	cut atomic.Bool
	of  sync.Map // Side by peer.
}

// put says on which side a machine is, before it is started.
func (s *sides) put(t *testing.T, m *machine, side int) {
	t.Helper()
	self, err := peer.IDFromPrivateKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	s.of.Store(self, side)
	m.apart = func(id peer.ID) bool {
		there, _ := s.of.Load(id)
		return s.cut.Load() && there != side
	}
}

// sever ends the connections between the sides.
func (s *sides) sever(machines ...*machine) {
	s.cut.Store(true)
	for _, m := range machines {
		for _, id := range m.host.Network().Peers() {
			if m.apart(id) {
				_ = m.host.Network().ClosePeer(id)
			}
		}
	}
}

// TestACutMeshHealsToOneState: three and four machines go on apart; both sides
// let a machine in, write for all, change a trust, and take a machine out, one
// of its own and one of the other side. Within five seconds of the end of the
// cut there is one state, with all that was acknowledged in it.
func TestACutMeshHealsToOneState(t *testing.T) {
	thing := record.Kind{Name: "thing", Rule: record.Shared}
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	var mesh sides
	start := func(inv membership.Invite, name string, side int) *machine {
		t.Helper()
		m := newMachine(t)
		m.kinds = []record.Kind{thing}
		mesh.put(t, m, side)
		a, err := Join(t.Context(), m.key, inv, name, "relay/test")
		if err != nil {
			t.Fatal(err)
		}
		m.open(t, a.Mesh, name, func(n *Node) error { return n.Adopt(a) })
		return m
	}
	attic := newMachine(t)
	attic.kinds = []record.Kind{thing}
	mesh.put(t, attic, 0)
	attic.open(t, key.ID(), "attic", func(n *Node) error { return n.Found(key, "attic's mesh") })
	den := start(inviteAs(t, attic, membership.RoleAdmin), "den", 1)
	left, right := []*machine{attic}, []*machine{den}
	for _, name := range []string{"left-1", "left-2"} {
		left = append(left, start(invite(t, attic, 1), name, 0))
	}
	for _, name := range []string{"right-1", "right-2", "right-3"} {
		right = append(right, start(invite(t, attic, 1), name, 1))
	}
	all := append(append([]*machine{}, left...), right...)
	eventually(t, 20*time.Second, "seven alive", func() bool {
		for _, m := range all {
			if !seesAlive(m, 7)() {
				return false
			}
		}
		return sameState(all...)()
	})

	mesh.sever(all...)
	eventually(t, 20*time.Second, "each side is alone", func() bool { return seesAlive(attic, 3)() && seesAlive(den, 4)() })
	for i, admin := range []*machine{attic, den} {
		side := []string{"left", "right"}[i]
		if err := admin.PutShared("thing", side, side); err != nil {
			t.Fatal(err)
		}
		if err := admin.PutShared("thing", "both", side); err != nil {
			t.Fatal(err)
		}
	}
	// By the admins themselves: what a peer did that the other side took out meanwhile is lost.
	byAttic, byDen := invite(t, attic, 1), invite(t, den, 1)
	byAttic.Peers, byDen.Peers = byAttic.Peers[:1], byDen.Peers[:1]
	newLeft, newRight := start(byAttic, "new-left", 0), start(byDen, "new-right", 1)
	for _, err := range []error{
		attic.SetPolicy(left[1].Self(), "", membership.TrustShardOnly),
		attic.SetPolicy(right[1].Self(), "", membership.TrustClient), // Of the other side.
		den.SetPolicy(right[1].Self(), "", membership.TrustShardOnly),
		attic.Revoke(left[2].Self(), false),
		attic.Revoke(right[2].Self(), false), // Of the other side.
		den.Revoke(right[3].Self(), false),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	inThe := []*machine{attic, den, left[1], right[1], newLeft, newRight}
	out := []*machine{left[2], right[2], right[3]}

	began := time.Now()
	mesh.cut.Store(false)
	eventually(t, 15*time.Second, "one state", sameState(inThe...))
	took := time.Since(began)
	t.Logf("one state %s after the cut ended", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("one state after %s", took)
	}
	for _, m := range inThe {
		for _, side := range []string{"left", "right", "both"} {
			if _, ok := m.Table().Get("thing", side); !ok {
				t.Errorf("%s lacks what was written on the side %s", m.Name, side)
			}
		}
		for _, o := range out {
			if _, in := m.Member(o.Self()); in {
				t.Errorf("%s is a member to %s", o.Name, m.Name)
			}
		}
		for _, o := range inThe {
			if _, in := m.Member(o.Self()); !in {
				t.Errorf("%s is no member to %s", o.Name, m.Name)
			}
		}
	}
	if !everyoneSays(left[1], membership.RoleMember, membership.TrustShardOnly, inThe...)() {
		t.Error("a trust that was changed on one side")
	}
	if got, _ := attic.Member(right[1].Self()); !everyoneSays(right[1], membership.RoleMember, got.Trust, inThe...)() || got.Trust == membership.TrustReplicas {
		t.Errorf("a trust that was changed on both sides: %s", got.Trust)
	}
	for _, o := range out { // It is told, and ends.
		eventually(t, 30*time.Second, o.Name+" knows that it is out", func() bool { return o.Roster().Revoked(o.Self()) })
	}
}

// TestOfTwoThatPutOneAnotherOutTheWorkStays: an admin that is left takes over what
// either had written for all.
func TestOfTwoThatPutOneAnotherOutTheWorkStays(t *testing.T) {
	thing := record.Kind{Name: "thing", Rule: record.Shared}
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	var mesh sides
	start := func(side int, open func(m *machine) error) *machine {
		t.Helper()
		m := newMachine(t)
		m.kinds = []record.Kind{thing}
		mesh.put(t, m, side)
		if err := open(m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	attic := start(0, func(m *machine) error {
		m.open(t, key.ID(), "attic", func(n *Node) error { return n.Found(key, "attic's mesh") })
		return nil
	})
	joins := func(name string, side int) *machine {
		inv := inviteAs(t, attic, membership.RoleAdmin)
		return start(side, func(m *machine) error {
			a, err := Join(t.Context(), m.key, inv, name, "relay/test")
			if err == nil {
				m.open(t, a.Mesh, name, func(n *Node) error { return n.Adopt(a) })
			}
			return err
		})
	}
	den, shed := joins("den", 1), joins("shed", 1)
	eventually(t, 20*time.Second, "three alive", func() bool {
		return seesAlive(attic, 3)() && seesAlive(den, 3)() && seesAlive(shed, 3)() && sameState(attic, den, shed)()
	})
	for i, m := range []*machine{attic, den} {
		if err := m.PutShared("thing", []string{"attic", "den"}[i], i); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Second, "one state", sameState(attic, den, shed))
	mesh.sever(attic, den, shed)
	if err := attic.Revoke(den.Self(), false); err != nil {
		t.Fatal(err)
	}
	if err := den.Revoke(attic.Self(), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "shed knows", func() bool { return shed.Roster().Revoked(attic.Self()) })
	// Den is out on attic's side only; shed hears of it from attic's record.
	mesh.cut.Store(false)
	for _, s := range attic.Table().List(membership.KindRevocation) {
		if _, err := shed.Table().Offer(s); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "both are out", func() bool {
		r := shed.Roster()
		return r.Revoked(attic.Self()) && r.Revoked(den.Self())
	})
	eventually(t, 10*time.Second, "their work is shed's", func() bool {
		for _, id := range []string{"attic", "den"} {
			if s, ok := shed.Table().Get("thing", id); !ok || s.Author != shed.Self() {
				return false
			}
		}
		return true
	})
}
