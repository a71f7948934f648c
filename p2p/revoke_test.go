package p2p

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
)

func inviteAs(t *testing.T, m *machine, role membership.Role) membership.Invite {
	t.Helper()
	inv, _, err := m.Invite(InviteOptions{Role: role, Trust: membership.TrustReplicas, Uses: 1, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// TestRevoking: the target is out everywhere within two seconds, its streams
// ended; whom it let in and what it wrote for all stays; what it signs later, or
// signed and nobody saw, is void.
func TestRevoking(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, inviteAs(t, attic, membership.RoleAdmin), "den")
	eventually(t, 10*time.Second, "den is known", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	toCellar := inviteAs(t, den, membership.RoleMember)
	cellar := join(t, toCellar, "cellar") // Invited by den.
	eventually(t, 10*time.Second, "three alive", func() bool {
		return seesAlive(attic, 3)() && seesAlive(den, 3)() && seesAlive(cellar, 3)() && sameState(attic, den, cellar)()
	})
	if err := den.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: "den named it"}); err != nil {
		t.Fatal(err)
	}
	spare := inviteAs(t, den, membership.RoleMember)
	eventually(t, 5*time.Second, "one state", sameState(attic, den, cellar))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream, err := den.host.NewStream(ctx, cellar.Self(), ProtocolProbe)
	if err != nil {
		t.Fatal(err)
	}

	if err := cellar.Revoke(den.Self(), false); reasonOf(err) != "not_allowed" {
		t.Errorf("revoked by one who is no admin: %v", err)
	}
	if err := attic.Revoke(attic.Self(), false); err == nil {
		t.Error("revoked itself")
	}
	began := time.Now()
	if err := attic.Revoke(den.Self(), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Second, "den is out everywhere", func() bool {
		_, a := attic.Member(den.Self())
		_, c := cellar.Member(den.Self())
		return !a && !c
	})
	_ = stream.SetReadDeadline(time.Now().Add(2*time.Second - time.Since(began)))
	if _, err := stream.Read(make([]byte, 1)); err == nil || time.Since(began) > 2*time.Second {
		t.Errorf("den's stream is open after %s: %v", time.Since(began), err)
	}
	eventually(t, 2*time.Second-time.Since(began), "nobody gossips with it, or finds peers by it", func() bool {
		for _, m := range []*machine{attic, cellar} {
			if slices.Contains(m.gossip.topic.ListPeers(), den.Self()) || m.dht.RoutingTable().Find(den.Self()) != "" {
				return false
			}
		}
		return true
	})
	if _, in := attic.Member(cellar.Self()); !in {
		t.Error("whom den invited fell out with it")
	}
	eventually(t, 5*time.Second, "the two who are left agree", sameState(attic, cellar))
	if r, ok := cellar.Table().Get(membership.KindMesh, membership.SettingsID); !ok || r.Author != attic.Self() {
		t.Error("what den wrote for all was not taken over")
	}
	if _, ok := cellar.Table().Get(KindContact, den.Self().String()); ok {
		t.Error("den's own records are still there")
	}

	// Its stolen key signs on: an invite of its own, a record, and a way in.
	for _, m := range []*machine{attic, cellar} {
		forged, err := record.Seal(record.Record{Kind: membership.KindMesh, ID: membership.SettingsID, Version: record.Version{1000},
			Payload: mustMarshal(t, membership.Settings{Name: "mine again"})}, den.key)
		if err != nil {
			t.Fatal(err)
		}
		if outcome, _ := m.Table().Offer(forged); outcome == record.Fresh {
			t.Error("a record of the revoked was kept")
		}
		if _, in := m.Roster().Member(den.Self()); in {
			t.Error("den is back")
		}
	}
	if _, err := Join(t.Context(), den.key, spare, "den", "relay/test"); err == nil {
		t.Error("the revoked joined again by an invite of its own")
	}
	block := blocks.NewBlock([]byte("a block of a model"))
	if err := attic.blocks.Put(ctx, block); err != nil {
		t.Fatal(err)
	}
	if stateOf(den, attic) == liveness.Alive {
		eventually(t, 10*time.Second, "den has lost the mesh", func() bool { return stateOf(den, attic) != liveness.Alive })
	}
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	if _, err := den.Fetch(short).GetBlock(short, block.Cid()); err == nil {
		t.Error("the revoked got a block")
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := record.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheLastAdminAndTheRecoveryCode(t *testing.T) {
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	attic := newMachine(t)
	attic.open(t, key.ID(), "attic", func(n *Node) error { return n.Found(key, "attic's mesh") })
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "both alive", seesAlive(den, 2))
	if err := attic.Leave(); reasonOf(err) != "not_allowed" {
		t.Errorf("the last admin left: %v", err)
	}
	if _, _, err := den.Invite(InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: 1, TTL: time.Hour}); err == nil {
		t.Error("a member that is no admin made an invite")
	}
	other, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := den.Recover(other); err == nil {
		t.Error("another mesh's code made an admin")
	}
	restored, err := membership.MeshKeyFromCode(key.RecoveryCode())
	if err != nil {
		t.Fatal(err)
	}
	if err := den.Recover(restored); err != nil {
		t.Fatal(err)
	}
	invite(t, den, 1)
	eventually(t, 5*time.Second, "attic sees two admins", func() bool { return attic.Roster().Admins() == 2 })
	if err := attic.Leave(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "attic is out", func() bool { return len(den.Roster().Members()) == 1 })
}

// TestRevokingAnAdminThatFilledItsShare takes over what leaves room for the one
// who revokes, live records before deleted ones.
func TestRevokingAnAdminThatFilledItsShare(t *testing.T) {
	t.Parallel()
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	attic := newMachine(t)
	attic.kinds = []record.Kind{{Name: "thing", Rule: record.Shared}}
	attic.open(t, key.ID(), "attic", func(n *Node) error { return n.Found(key, "mesh") })
	den := newMachine(t)
	if _, err := Join(t.Context(), den.key, inviteAs(t, attic, membership.RoleAdmin), "den", "relay/test"); err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(den.key)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "den is an admin", func() bool { m, ok := attic.Member(id); return ok && m.Role == membership.RoleAdmin })
	most := attic.Table().MaxShare()
	for i := range most.Records - 10 {
		s := sealAs(t, den.key, record.Record{Kind: "thing", ID: fmt.Sprintf("t%05d", i), Version: record.Version{1}, Deleted: i%2 == 0})
		if out, err := attic.Table().Offer(s); out != record.Fresh {
			t.Fatal(out, err)
		}
	}
	if err := attic.Revoke(id, false); err != nil {
		t.Fatal(err)
	}
	if s := attic.Table().Share(attic.Self()); s.Records < most.Records/2 || s.Records > most.Records/4*3+20 {
		t.Errorf("%d records are the revoker's, of %d", s.Records, most.Records)
	}
	if live := len(attic.Table().List("thing")); live != most.Records/2-5 {
		t.Errorf("%d live records were taken over", live)
	}
	if s := attic.Table().Share(id); s.Records > 5 { // What proves its membership.
		t.Errorf("%d records are left of the revoked", s.Records)
	}
	if err := attic.PutShared("thing", "next", 1); err != nil {
		t.Error(err)
	}
}
