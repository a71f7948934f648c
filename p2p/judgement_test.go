package p2p

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// puppet is a member whose records are signed by the test.
type puppet struct {
	*machine
	id peer.ID
}

func newPuppet(t *testing.T) puppet {
	m := newMachine(t)
	id, err := peer.IDFromPrivateKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	return puppet{m, id}
}

func (p puppet) seal(t *testing.T, kind, id string, v record.Version, deleted bool, payload any) record.Signed {
	t.Helper()
	s, err := record.Seal(record.Record{Kind: kind, ID: id, Version: v, Deleted: deleted, Payload: mustMarshal(t, payload)}, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func offer(t *testing.T, m *machine, s record.Signed) {
	t.Helper()
	if out, err := m.Table().Offer(s); out != record.Fresh {
		t.Fatalf("%s: %s %v", s.Key(), out, err)
	}
}

// grantOf makes p a member by an invite, admitted by m.
func grantOf(t *testing.T, m *machine, p puppet, inv membership.Invite, issued []byte, admitter puppet, stamp int64) (record.Signed, membership.Grant) {
	t.Helper()
	sig, err := membership.Admit(admitter.key, m.Mesh, p.id, inv.ID(), stamp)
	if err != nil {
		t.Fatal(err)
	}
	g := membership.Grant{Mesh: m.Mesh, Name: "p", Invite: issued, InviteSig: inv.Sign(p.id), Admitter: admitter.id.String(), Stamp: stamp, AdmitSig: sig}
	id, err := membership.GrantID(p.id, g)
	if err != nil {
		t.Fatal(err)
	}
	return p.seal(t, membership.KindMember, id, record.Version{1, 0, 0}, false, g), g
}

func self(m *machine) puppet { return puppet{m, m.Self()} }

func (p puppet) joins(t *testing.T, m *machine, role membership.Role) (record.Signed, membership.Grant, membership.Invite, []byte) {
	t.Helper()
	inv := inviteAs(t, m, role)
	issued, _ := m.Table().Get(membership.KindInvite, inv.ID())
	s, g := grantOf(t, m, p, inv, issued.Raw, self(m), 1)
	offer(t, m, s)
	return s, g, inv, issued.Raw
}

// TestNoRoundKeepsAnAdminIn: an admin that used up the rounds about a member can be
// taken out all the same.
func TestNoRoundKeepsAnAdminIn(t *testing.T) {
	attic := found(t, "attic")
	thief, m := newPuppet(t), newPuppet(t)
	thief.joins(t, attic, membership.RoleAdmin)
	m.joins(t, attic, membership.RoleMember)
	offer(t, attic, thief.seal(t, membership.KindPolicy, membership.JudgementID(thief.id, m.id), record.Version{1, 1, 0}, false,
		membership.Policy{Round: record.MaxCount - 1, Role: membership.RoleMember, Trust: membership.TrustReplicas}))
	if err := attic.Revoke(thief.id, false); err != nil {
		t.Fatal("cannot be revoked:", err)
	}
	if err := attic.SetPolicy(m.id, "", membership.TrustClient); err != nil {
		t.Error(err)
	}
	if got, _ := attic.Member(m.id); got.Trust != membership.TrustClient {
		t.Errorf("m is %s", got.Trust)
	}
}

// TestNoVersionKeepsAnAdminIn: nor one that used up the versions of a key, which
// is free again then.
func TestNoVersionKeepsAnAdminIn(t *testing.T) {
	attic := found(t, "attic")
	thief := newPuppet(t)
	thief.joins(t, attic, membership.RoleAdmin)
	offer(t, attic, thief.seal(t, membership.KindMesh, membership.SettingsID, record.Version{record.MaxCount - 1, 0, 0}, false, membership.Settings{Name: "mine"}))
	if err := attic.Revoke(thief.id, false); err != nil {
		t.Error("cannot be revoked:", err)
	}
}

// TestNoCrowdKeepsAMemberIn: nor a member that has let in more than one record
// can list.
func TestNoCrowdKeepsAMemberIn(t *testing.T) {
	attic := found(t, "attic")
	m := newPuppet(t)
	_, _, inv, issued := m.joins(t, attic, membership.RoleMember)
	for range 1300 { // All in the roster of the next look, which takes a while for each alone.
		s, _ := grantOf(t, attic, newPuppet(t), inv, issued, m, 1)
		offer(t, attic, s)
	}
	if err := attic.Revoke(m.id, false); err != nil {
		t.Error("a plain member cannot be revoked:", err)
	}
}

// TestOneThatLeftCanBeRevoked: it could come back.
func TestOneThatLeftCanBeRevoked(t *testing.T) {
	attic := found(t, "attic")
	thief := newPuppet(t)
	s, g, _, _ := thief.joins(t, attic, membership.RoleAdmin)
	offer(t, attic, thief.seal(t, membership.KindMember, s.ID, record.Version{2, 0, 0}, true, g))
	if err := attic.Revoke(thief.id, false); err != nil {
		t.Error("cannot be revoked:", err)
	}
	if out, _ := attic.Table().Offer(thief.seal(t, membership.KindMesh, membership.SettingsID, record.Version{7, 0, 0}, false, membership.Settings{Name: "mine"})); out == record.Fresh {
		t.Error("it writes for all")
	}
	offer(t, attic, thief.seal(t, membership.KindMember, s.ID, record.Version{3, 0, 0}, false, g))
	if _, in := attic.Member(thief.id); in {
		t.Error("it came back")
	}
}

// TestAPolicyOutlivesItsAuthor: also about one that has left, and comes back.
func TestAPolicyOutlivesItsAuthor(t *testing.T) {
	attic := found(t, "attic")
	den, m := newPuppet(t), newPuppet(t)
	den.joins(t, attic, membership.RoleAdmin)
	s, g, _, _ := m.joins(t, attic, membership.RoleAdmin)
	offer(t, attic, den.seal(t, membership.KindPolicy, membership.JudgementID(den.id, m.id), record.Version{1, 1, 0}, false,
		membership.Policy{Round: 1, Role: membership.RoleMember, Trust: membership.TrustClient}))
	offer(t, attic, m.seal(t, membership.KindMember, s.ID, record.Version{2, 0, 0}, true, g))
	if err := attic.Revoke(den.id, false); err != nil {
		t.Fatal(err)
	}
	offer(t, attic, m.seal(t, membership.KindMember, s.ID, record.Version{3, 0, 0}, false, g))
	if got, _ := attic.Member(m.id); got.Role == membership.RoleAdmin {
		t.Errorf("the demoted is %s %s again", got.Role, got.Trust)
	}
}

// TestAdmissionsOfNobodyCountForNothing: a member that writes admissions without
// having seen the invite turns nobody out, and uses nothing up.
func TestAdmissionsOfNobodyCountForNothing(t *testing.T) {
	attic := found(t, "attic")
	evil := newPuppet(t)
	evil.joins(t, attic, membership.RoleMember)
	den := join(t, invite(t, attic, 1), "den")
	id := ""
	for _, s := range attic.Table().List(membership.KindAdmission) {
		if s.Author == attic.Self() {
			id = s.ID
		}
	}
	invID := id[len(attic.Self().String())+1:][:16]
	offer(t, attic, evil.seal(t, membership.KindAdmission, membership.AdmissionID(evil.id, invID, newPuppet(t).id), record.Version{1, 1, 0}, false, membership.Countersign{Stamp: 1}))
	attic.withdrawExtra(time.Now())
	if _, _, used, _ := attic.Roster().Issue(invID, ""); used != 1 {
		t.Errorf("the invite was used %d times", used)
	}
	if _, in := attic.Member(den.Self()); !in {
		t.Error("den was turned out by a plain member")
	}
}

// TestInvitesOfTheRevokedAreVoid: who has its machine may have them.
func TestInvitesOfTheRevokedAreVoid(t *testing.T) {
	attic := found(t, "attic")
	den := join(t, inviteAs(t, attic, membership.RoleAdmin), "den")
	eventually(t, 10*time.Second, "den is known", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	spare := inviteAs(t, den, membership.RoleAdmin) // By the stolen key.
	eventually(t, 10*time.Second, "one state", sameState(attic, den))
	if err := attic.Revoke(den.Self(), false); err != nil {
		t.Fatal(err)
	}
	spare.Peers = []peer.AddrInfo{{ID: attic.Self(), Addrs: attic.Addrs()}}
	again := newMachine(t)
	if _, err := Join(t.Context(), again.key, spare, "again", "relay/test"); err == nil {
		id, _ := peer.IDFromPrivateKey(again.key)
		got, _ := attic.Member(id)
		t.Errorf("the thief is back as %s", got.Role)
	}
}

// TestTheNewsOfAnErasureOutlivesItsBearer: a machine that erased itself is not
// pending again when the member that it told is revoked.
func TestTheNewsOfAnErasureOutlivesItsBearer(t *testing.T) {
	attic := found(t, "attic")
	m, v := newPuppet(t), newPuppet(t)
	m.joins(t, attic, membership.RoleMember)
	v.joins(t, attic, membership.RoleMember)
	if err := attic.Revoke(v.id, true); err != nil {
		t.Fatal(err)
	}
	s, err := record.Seal(record.Record{Kind: membership.KindErased, ID: membership.JudgementID(m.id, v.id), Version: record.Version{1, 1, 0}}, m.key)
	if err != nil {
		t.Fatal(err)
	}
	offer(t, attic, s)
	if len(attic.Wiping()) != 0 {
		t.Fatal("not noted")
	}
	if err := attic.Revoke(m.id, false); err != nil {
		t.Fatal(err)
	}
	if len(attic.Wiping()) != 0 {
		t.Error("the news that it erased itself is gone with the one who took it")
	}
}

// TestNoFillKeepsAMemberIn: nor one that filled the table.
func TestNoFillKeepsAMemberIn(t *testing.T) {
	attic := found(t, "attic")
	m := newPuppet(t)
	m.joins(t, attic, membership.RoleMember)
	big := strings.Repeat("x", 60<<10)
	n := 0
	for ; n < 5000; n++ {
		if _, err := attic.Table().Offer(m.seal(t, "junk", fmt.Sprintf("a%d", n), record.Version{1, 0, 0}, false, big)); err != nil {
			break
		}
	}
	for i := 0; ; i++ {
		if _, err := attic.Table().Offer(m.seal(t, "junk", fmt.Sprintf("b%d", i), record.Version{1, 0, 0}, false, "")); err != nil {
			break
		}
	}
	if err := attic.Revoke(m.id, false); err != nil {
		t.Error("cannot be revoked:", err)
	}
}

// TestAVoidRevocationStopsNobody: a machine that was away hears of it before it
// hears that its author was revoked.
func TestAVoidRevocationStopsNobody(t *testing.T) {
	attic := found(t, "attic")
	thief := newPuppet(t)
	thief.joins(t, attic, membership.RoleAdmin)
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(den, 2)() && sameState(attic, den)() })
	den.stop()
	if err := attic.Revoke(thief.id, false); err != nil {
		t.Fatal(err)
	}
	n, err := New(den.options(t, den.Mesh, "den"))
	if err != nil {
		t.Fatal(err)
	}
	// What the thief signs after it was revoked, to one who has not heard of it.
	if o, err := n.Table().Offer(thief.seal(t, membership.KindRevocation, membership.JudgementID(thief.id, den.Self()), record.Version{9, 1, 0}, false, membership.Revocation{Wipe: true})); o != record.Fresh {
		t.Fatal(o, err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- n.Run(ctx) }()
	eventually(t, 2*revokedPatience, "it knows better", func() bool { return !n.Roster().Revoked(den.Self()) && !n.WipeOrdered() })
	eventually(t, 10*time.Second, "one state", func() bool { return n.Table().Root() == attic.Table().Root() })
	select {
	case err := <-ended:
		t.Errorf("it ended: %v", err)
	default:
	}
	cancel()
	<-ended
}
