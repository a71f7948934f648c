package p2p

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// still makes two members that are connected and do nothing by themselves: they
// answer, but are not run.
func still(t *testing.T) (attic, den *Node) {
	t.Helper()
	key, err := membership.NewMeshKey()
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string, mesh membership.MeshID, begin func(*Node, *machine) error) *Node {
		m := newMachine(t)
		n, err := New(m.options(t, mesh, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		if err := begin(n, m); err != nil {
			t.Fatal(err)
		}
		return n
	}
	attic = open("attic", key.ID(), func(n *Node, _ *machine) error { return n.Found(key, "mesh") })
	inv, _, err := attic.Invite(InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: 1, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	inv.Peers = []peer.AddrInfo{{ID: attic.Self(), Addrs: attic.Addrs()}}
	den = open("den", key.ID(), func(n *Node, m *machine) error {
		admission, err := Join(t.Context(), m.key, inv, "den", "relay/test")
		if err != nil {
			return err
		}
		return n.Adopt(admission)
	})
	if err := den.host.Connect(t.Context(), peer.AddrInfo{ID: attic.Self(), Addrs: attic.Addrs()}); err != nil {
		t.Fatal(err)
	}
	// Each writes something new when it has compared with somebody for the first time.
	eventually(t, 10*time.Second, "compared", func() bool {
		_, err := den.compare(t.Context(), attic.Self())
		return err == nil && den.Table().Root() == attic.Table().Root()
	})
	return attic, den
}

// TestTheCostOfComparing: who was away is whole after one exchange, whose bytes
// are in proportion to what changed.
func TestTheCostOfComparing(t *testing.T) {
	const all = 5000
	attic, den := still(t)
	id := attic.Self()
	write := func(i int, version uint64, to ...*Node) (size int) {
		s := sealAs(t, attic.Identity, record.Record{Kind: "junk", ID: fmt.Sprintf("%s/bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgt%07d", id, i), Version: record.Version{version, 0, 0}, Payload: make([]byte, 40)})
		for _, n := range to {
			if out, err := n.Table().Offer(s); out != record.Fresh {
				t.Fatal(out, err)
			}
		}
		return len(s.Raw)
	}
	for i := range all {
		write(i, 1, attic, den)
	}
	cost := func(changed int, version uint64) (bytes int64, factor float64) {
		own := 0
		for i := range changed {
			own += write(i*(all/changed), version, attic)
		}
		stats, err := den.compare(t.Context(), attic.Self())
		if err != nil || stats.Kept != changed || den.Table().Root() != attic.Table().Root() {
			t.Fatalf("%d changes: %+v, %v", changed, stats, err)
		}
		bytes = stats.BytesIn + stats.BytesOut
		factor = float64(bytes) / float64(own)
		t.Logf("%d of %d changed: %d bytes, %.0f for each, %.2f times the records' own size", changed, all, bytes, float64(bytes)/float64(changed), factor)
		return bytes, factor
	}
	many, factor := cost(1000, 2)
	if factor > 4 {
		t.Errorf("1,000 changes cost %.2f times what changed", factor)
	}
	if few, _ := cost(10, 3); few > many/20 {
		t.Errorf("10 changes cost %d bytes, 1,000 cost %d", few, many)
	}
	if none, err := den.compare(t.Context(), attic.Self()); err != nil || !none.Equal || none.BytesIn+none.BytesOut > 100 {
		t.Errorf("no changes cost %+v, %v", none, err)
	}
}

// TestInStep says how far behind the other is, and brings it up to date.
func TestInStep(t *testing.T) {
	attic, den := still(t)
	for i := range 7 {
		if err := attic.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: fmt.Sprint("name ", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := attic.PutOwned(KindContact, attic.Self().String(), Contact{Name: "attic again"}); err != nil {
		t.Fatal(err)
	}
	if err := den.PutOwned(KindContact, den.Self().String(), Contact{Name: "den again"}); err != nil {
		t.Fatal(err)
	}
	if behind, err := attic.InStep(t.Context(), den.Self()); err != nil || behind != 2 {
		t.Errorf("two behind: %d, %v", behind, err)
	}
	if den.Table().Root() != attic.Table().Root() {
		t.Error("they differ afterwards")
	}
	if behind, err := attic.InStep(t.Context(), den.Self()); err != nil || behind != 0 {
		t.Errorf("in step: %d, %v", behind, err)
	}
	for n, id := range map[*Node]peer.ID{attic: den.Self(), den: attic.Self()} {
		if ago, ok := n.LastInStep(id); !ok || ago < 0 || ago > time.Minute {
			t.Errorf("last in step %s ago, %v", ago, ok)
		}
	}
	if behind, err := attic.InStep(t.Context(), attic.Self()); err != nil || behind != 0 {
		t.Errorf("with itself: %d, %v", behind, err)
	}
	stranger, _, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := peer.IDFromPrivateKey(stranger)
	if _, err := attic.InStep(t.Context(), id); reasonOf(err) != "not_member" {
		t.Errorf("with a stranger: %v", err)
	}
	if _, ok := attic.LastInStep(id); ok {
		t.Error("in step with a stranger")
	}
	den.Close()
	eventually(t, 5*time.Second, "not connected", func() bool { return len(attic.host.Network().ConnsToPeer(den.Self())) == 0 })
	began := time.Now()
	if _, err := attic.InStep(t.Context(), den.Self()); reasonOf(err) != "peer_gone" || time.Since(began) > time.Second {
		t.Errorf("with one that is gone: %v after %s", err, time.Since(began))
	}
}

// TestComparisonsAreShared: many who ask at once wait for two at most, the one
// that runs and the next.
func TestComparisonsAreShared(t *testing.T) {
	attic, den := still(t)
	end, err := den.accounts.beginComparison(t.Context(), attic.Self()) // Den answers none meanwhile.
	if err != nil {
		t.Fatal(err)
	}
	first := attic.compares.ask(den.Self())
	eventually(t, 5*time.Second, "begun", func() bool {
		attic.compares.mu.Lock()
		defer attic.compares.mu.Unlock()
		return attic.compares.with[den.Self()].next == nil
	})
	next := attic.compares.ask(den.Self())
	if next == first {
		t.Error("a comparison that runs is shared with those who come later")
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if attic.compares.ask(den.Self()) != next {
				t.Error("a third comparison was begun")
			}
			if behind, err := attic.InStep(t.Context(), den.Self()); err != nil || behind != 0 {
				t.Errorf("%d, %v", behind, err)
			}
		})
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := attic.InStep(short, den.Self()); err == nil {
		t.Error("answered while den does not answer")
	}
	end(0)
	all.Wait()
}

// TestInStepIsAnsweredHoweverOftenItIsAsked: a status that is looked at twice a
// second does not name a healthy peer as one that did not answer.
func TestInStepIsAnsweredHoweverOftenItIsAsked(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	eventually(t, 10*time.Second, "alive", func() bool { return seesAlive(attic, 2)() && sameState(attic, den)() })
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for i := range 40 {
		<-tick.C
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := attic.InStep(ctx, den.Self())
		cancel()
		if err != nil {
			t.Fatalf("look %d: %v", i, err)
		}
	}
}

// TestAFloodOfProbes is cut off.
func TestAFloodOfProbes(t *testing.T) {
	attic, den := still(t)
	eventually(t, 20*time.Second, "attic is on den's account", func() bool {
		s := attic.links.openProbe(t.Context(), den.Self())
		if s != nil {
			_ = s.SetDeadline(time.Now().Add(time.Second))
			var batch []byte
			for i := range 512 {
				batch = binary.BigEndian.AppendUint64(append(batch, probeEcho), uint64(i))
			}
			go func() { _, _ = io.Copy(io.Discard, s) }()
			_, _ = s.Write(batch)
			defer s.Reset()
		}
		for _, b := range den.Blamed() {
			if b.Peer == attic.Self() && b.Until > 0 {
				return true
			}
		}
		return false
	})
}
