package p2p

import (
	"context"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// mesh3 is an admin that founded it, an admin that joined, and a member that the
// second one invited.
func mesh3(t *testing.T) (attic, den, cellar *machine) {
	t.Helper()
	attic = found(t, "attic")
	den = join(t, inviteAs(t, attic, membership.RoleAdmin), "den")
	eventually(t, 10*time.Second, "den is known", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	cellar = join(t, inviteAs(t, den, membership.RoleMember), "cellar")
	eventually(t, 10*time.Second, "three alive", func() bool {
		return seesAlive(attic, 3)() && seesAlive(den, 3)() && seesAlive(cellar, 3)() && sameState(attic, den, cellar)()
	})
	return attic, den, cellar
}

func everyoneSays(target *machine, role membership.Role, trust membership.Trust, machines ...*machine) func() bool {
	return func() bool {
		for _, m := range machines {
			if got, in := m.Member(target.Self()); !in || got.Role != role || got.Trust != trust {
				return false
			}
		}
		return true
	}
}

// TestLoweringTrust: what began under the rights that a member had ends
// everywhere within two seconds, and it goes on as what it is now.
func TestLoweringTrust(t *testing.T) {
	attic, den, cellar := mesh3(t)
	block := blocks.NewBlock([]byte("a block of a model"))
	if err := den.blocks.Put(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := cellar.Fetch(ctx).GetBlock(ctx, block.Cid()); err != nil {
		t.Fatalf("a trusted member gets no block: %v", err)
	}
	stream, err := cellar.host.NewStream(ctx, den.Self(), ProtocolProbe)
	if err != nil {
		t.Fatal(err)
	}
	if err := cellar.SetPolicy(cellar.Self(), "", membership.TrustClient); reasonOf(err) != "not_allowed" {
		t.Errorf("a policy by one who is no admin: %v", err)
	}
	began := time.Now()
	if err := attic.SetPolicy(cellar.Self(), "", membership.TrustClient); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Second, "cellar is a client everywhere", everyoneSays(cellar, membership.RoleMember, membership.TrustClient, attic, den, cellar))
	_ = stream.SetReadDeadline(began.Add(2 * time.Second))
	if _, err := stream.Read(make([]byte, 1)); err == nil || time.Since(began) >= 2*time.Second {
		t.Errorf("its stream is open after %s: %v", time.Since(began), err)
	}
	second := blocks.NewBlock([]byte("another block"))
	if err := den.blocks.Put(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "it is connected again", func() bool { return seesAlive(cellar, 3)() && seesAlive(den, 3)() })
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	if _, err := cellar.Fetch(short).GetBlock(short, second.Cid()); err == nil {
		t.Error("a client got a block")
	}
	eventually(t, 10*time.Second, "one state", sameState(attic, den, cellar))
	if err := den.SetPolicy(cellar.Self(), "", membership.TrustReplicas); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "cellar is trusted again", everyoneSays(cellar, membership.RoleMember, membership.TrustReplicas, attic, den, cellar))
	if _, err := cellar.Fetch(ctx).GetBlock(ctx, second.Cid()); err != nil {
		t.Errorf("trusted again, it gets no block: %v", err)
	}
}

// TestTakingARoleAway: what an admin wrote for all stays when it is one no more,
// and what it writes from then on is nobody's.
func TestTakingARoleAway(t *testing.T) {
	attic, den, cellar := mesh3(t)
	if err := den.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: "den named it"}); err != nil {
		t.Fatal(err)
	}
	spare := invite(t, den, 1)
	if err := attic.SetPolicy(cellar.Self(), membership.RoleAdmin, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Second, "cellar is an admin everywhere", everyoneSays(cellar, membership.RoleAdmin, membership.TrustReplicas, attic, den, cellar))
	byCellar := join(t, invite(t, cellar, 1), "by-cellar") // Whose chain goes by a policy.
	eventually(t, 10*time.Second, "four alive", func() bool { return seesAlive(attic, 4)() && seesAlive(byCellar, 4)() })
	if err := den.SetPolicy(den.Self(), membership.RoleMember, ""); reasonOf(err) != "invalid_request" {
		t.Errorf("an admin that takes its own role away: %v", err)
	}
	eventually(t, 5*time.Second, "one state", sameState(attic, den, cellar, byCellar))
	for _, m := range []*machine{den, cellar} {
		if err := attic.SetPolicy(m.Self(), membership.RoleMember, ""); err != nil {
			t.Fatal(err)
		}
		eventually(t, 2*time.Second, "an admin less", everyoneSays(m, membership.RoleMember, membership.TrustReplicas, attic, den, cellar, byCellar))
	}
	eventually(t, 5*time.Second, "one state", sameState(attic, den, cellar, byCellar))
	if r, ok := cellar.Table().Get(membership.KindMesh, membership.SettingsID); !ok || r.Author != attic.Self() {
		t.Error("what den wrote for all was not taken over")
	}
	if len(attic.Roster().Members()) != 4 {
		t.Error("whom an admin had let in fell out with its role")
	}
	if err := den.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: "mine"}); err == nil {
		t.Error("it still writes for all")
	}
	forged, err := record.Seal(record.Record{Kind: membership.KindMesh, ID: membership.SettingsID, Version: record.Version{1000},
		Payload: mustMarshal(t, membership.Settings{Name: "mine again"})}, den.key)
	if err != nil {
		t.Fatal(err)
	}
	if outcome, _ := cellar.Table().Offer(forged); outcome == record.Fresh {
		t.Error("a record of one who is no admin was kept")
	}
	if err := attic.SetPolicy(attic.Self(), membership.RoleMember, ""); reasonOf(err) != "not_allowed" {
		t.Errorf("the last admin: %v", err)
	}
	late := join(t, spare, "late") // The invite is attic's now.
	eventually(t, 10*time.Second, "five alive", func() bool { return seesAlive(late, 5)() && seesAlive(attic, 5)() })
}

// TestAMachineThatIsToEraseItself: one that was away learns it at its next
// contact, and is pending until it has said so.
func TestAMachineThatIsToEraseItself(t *testing.T) {
	attic, den, cellar := mesh3(t)
	cellar.stop()
	eventually(t, 10*time.Second, "cellar is away", func() bool { return seesAlive(attic, 2)() })
	if err := attic.Revoke(cellar.Self(), true); err != nil {
		t.Fatal(err)
	}
	pending := func() bool { w := den.Wiping(); return len(w) == 1 && w[0] == cellar.Self() }
	eventually(t, 5*time.Second, "den knows that cellar is to erase itself", pending)

	ended := make(chan error, 1)
	again, err := New(cellar.options(t, attic.Mesh, "cellar"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- again.Run(t.Context()) }()
	select {
	case err := <-ended:
		if reasonOf(err) != "not_member" || !again.WipeOrdered() {
			t.Fatalf("it ended with %v, told to erase itself: %v", err, again.WipeOrdered())
		}
	case <-time.After(15 * time.Second):
		t.Fatal("it was not told")
	}
	if !pending() {
		t.Error("not pending any more before it has said so")
	}
	if err := ReportWiped(t.Context(), attic.key, attic.Mesh, []peer.AddrInfo{{ID: den.Self(), Addrs: den.Addrs()}}); reasonOf(err) == "" {
		t.Errorf("one who was never told says that it erased itself: %v", err)
	}
	if err := ReportWiped(t.Context(), cellar.key, attic.Mesh, []peer.AddrInfo{{ID: den.Self(), Addrs: den.Addrs()}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "nothing is pending", func() bool { return len(attic.Wiping()) == 0 && len(den.Wiping()) == 0 })
}
