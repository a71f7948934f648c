package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// TestConsequencesGrowAndAreForgiven, by a clock of its own.
func TestConsequencesGrowAndAreForgiven(t *testing.T) {
	now := time.Unix(1000, 0)
	cuts := 0
	a := newAccounts(slog.New(slog.DiscardHandler), func(peer.ID) { cuts++ })
	a.now = func() time.Time { return now }
	bad := errors.New("bad")
	misbehave := func(n int) {
		for range n {
			a.blame("p", ofBadRecord, bad)
		}
	}
	misbehave(7)
	if a.keptOut("p") || cuts != 0 {
		t.Fatal("cut off for seven")
	}
	now = now.Add(time.Minute)
	misbehave(7)
	if a.keptOut("p") {
		t.Fatal("the seven of a minute ago were not forgiven")
	}
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		misbehave(8)
		misbehave(100) // What was on its way does not count twice.
		if !a.keptOut("p") || cuts != i+1 {
			t.Fatalf("not cut off the %dth time; %d cuts", i+1, cuts)
		}
		now = now.Add(want - time.Millisecond)
		if !a.keptOut("p") {
			t.Fatalf("back before %s", want)
		}
		now = now.Add(time.Millisecond)
		if a.keptOut("p") {
			t.Fatalf("kept out longer than %s", want)
		}
	}
	now = now.Add(7 * cutForgivenIn)
	a.sweep()
	if len(a.peers) != 0 {
		t.Error("nothing is forgotten")
	}
	misbehave(8)
	now = now.Add(firstKeptOut)
	if a.keptOut("p") {
		t.Error("the cuts of long ago count")
	}
	now = now.Add(cutForgivenIn / 2)
	a.sweep()
	if misbehave(8); !a.keptOut("p") || a.peers["p"].until.Sub(now) != 2*firstKeptOut {
		t.Error("the cut of five minutes ago does not count")
	}
}

// TestBadRecordsCutOff: forged, oversized and malformed ones in gossip, and bad
// frames and records in comparisons, count on one account; then nobody is there
// for the sender until its time is over.
func TestBadRecordsCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		send func(o *outlaw, m *machine) error
	}{
		{"forged", func(o *outlaw, m *machine) error {
			_, err := o.gossip(t.Context(), m, numbered(8, func(i int) []byte { return forge(o.seal(t, fmt.Sprint(i), 1)) }))
			return err
		}},
		{"oversized", func(o *outlaw, m *machine) error {
			_, err := o.gossip(t.Context(), m, numbered(8, func(i int) []byte { return []byte(strings.Repeat(fmt.Sprint(i), record.MaxSize+1)) }))
			return err
		}},
		{"no records", func(o *outlaw, m *machine) error {
			_, err := o.gossip(t.Context(), m, numbered(8, func(i int) []byte { return []byte{byte(i)} }))
			return err
		}},
		{"bad frames", func(o *outlaw, m *machine) error {
			for range 2 {
				s, err := o.host.NewStream(t.Context(), m.Self(), ProtocolSync)
				if err != nil {
					return err
				}
				if _, err := s.Write([]byte{0, 0, 0, 2, 0xff, 0xff}); err != nil {
					return err
				}
				_ = s.SetReadDeadline(time.Now().Add(5 * time.Second))
				_, _ = s.Read(make([]byte, 1))
				_ = s.Reset()
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			attic := newMachine(t)
			key, err := membership.NewMeshKey()
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var later time.Duration
			attic.open(t, key.ID(), "attic", func(n *Node) error {
				n.accounts.now = func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Now().Add(later)
				}
				return n.Found(key, "mesh")
			})
			o := joinOutlaw(t, attic, attic)
			records := attic.Table().Len()
			if err := c.send(o, attic); err != nil {
				t.Logf("cut off while it sent: %v", err)
			}
			eventually(t, 10*time.Second, "cut off", func() bool { return blamed(attic, o.host.ID()).Until > 0 && !o.connected(attic) })
			if b := blamed(attic, o.host.ID()); b.Dropped < 2 || b.Until > firstKeptOut {
				t.Errorf("%+v", b)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if s, err := o.host.NewStream(ctx, attic.Self(), ProtocolProbe); err == nil {
				_ = s.SetDeadline(time.Now().Add(time.Second))
				_, _ = s.Write(append([]byte{probeEcho}, make([]byte, echoBytes)...))
				if _, err := s.Read(make([]byte, 1)); err == nil {
					t.Error("it was answered while it is kept out")
				}
			}
			if attic.Table().Len() != records {
				t.Errorf("%d records became %d", records, attic.Table().Len())
			}
			mu.Lock()
			later = firstKeptOut
			mu.Unlock()
			eventually(t, 10*time.Second, "back after its time", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				return o.host.Connect(ctx, peer.AddrInfo{ID: attic.Self(), Addrs: attic.Addrs()}) == nil && o.connected(attic)
			})
		})
	}
}

// TestNobodyIsBlamedForOthers: records by authors whom nobody knows count for
// nothing, in any number, and neither does passing on what is old or known.
func TestNobodyIsBlamedForOthers(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	o := joinOutlaw(t, attic, attic)
	var raws [][]byte
	for i := range 1500 {
		key, _, err := NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, sealAs(t, key, record.Record{Kind: "junk", ID: fmt.Sprint(i), Version: record.Version{1}}).Raw)
	}
	mine := o.seal(t, "mine", 2)
	raws = append(raws, mine.Raw, o.seal(t, "mine", 1).Raw)
	if _, err := o.gossip(t.Context(), attic, raws); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the last record is there", func() bool { _, ok := attic.Table().Get("junk", "mine"); return ok })
	if held := attic.Table().Held(); held == 0 || held > strangeBurst+200 {
		t.Errorf("%d are held", held)
	}
	onlyBlames(t, attic)
}

// TestReplayedRecordsCutOff: old records change nothing, and in numbers that no
// reordering explains count.
func TestReplayedRecordsCutOff(t *testing.T) {
	t.Parallel()
	attic, den, _ := three(t)
	o := joinOutlaw(t, attic, attic)
	const keys = 8
	for i := range keys {
		if out, err := attic.Table().Offer(o.seal(t, fmt.Sprint(i), 1_000_000)); out != record.Fresh {
			t.Fatal(out, err)
		}
	}
	old := sealAs(t, den.key, record.Record{Kind: KindContact, ID: den.Self().String(), Version: record.Version{1, 0, 0}, Payload: mustMarshal(t, Contact{Name: "old"})})
	raws := numbered(3000, func(i int) []byte { return o.seal(t, fmt.Sprint(i%keys), uint64(i+1)).Raw })
	before := attic.Table().Len()
	_, _ = o.gossip(t.Context(), attic, append([][]byte{old.Raw}, raws...))
	eventually(t, 20*time.Second, "cut off", func() bool { return blamed(attic, o.host.ID()).Until > 0 })
	if attic.Table().Len() != before || attic.NameOf(den.Self()) != "den" {
		t.Errorf("%d records became %d, den is called %s", before, attic.Table().Len(), attic.NameOf(den.Self()))
	}
	onlyBlames(t, attic, o)
	onlyBlames(t, den)
}

// TestAFloodReachesNobody: while one member floods the others with valid records
// and another one with bad ones, they take each other's within a second, and
// neither their tables nor their memory grow beyond bounds.
func TestAFloodReachesNobody(t *testing.T) {
	const n = 10_000
	attic, den, cellar := three(t)
	flooder, forger := joinOutlaw(t, attic, den, cellar), joinOutlaw(t, attic, den, cellar)
	eventually(t, 10*time.Second, "one state", sameState(attic, den, cellar))
	valid := numbered(n, func(i int) []byte { return flooder.seal(t, fmt.Sprint("k", i), 1).Raw })
	bad := numbered(n, func(i int) []byte { return forge(forger.seal(t, fmt.Sprint("k", i), 1)) })

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines, most := runtime.NumGoroutine(), 0
	var floods sync.WaitGroup
	flooding, stop := context.WithCancel(t.Context())
	defer func() {
		stop()
		floods.Wait()
	}()
	for _, m := range []*machine{den, cellar} {
		for o, raws := range map[*outlaw][][]byte{flooder: valid, forger: bad} {
			floods.Go(func() {
				for flooding.Err() == nil { // It comes again and again.
					_, _ = o.gossip(flooding, m, raws)
				}
			})
		}
	}
	var slowest time.Duration
	began := time.Now()
	for i := 0; time.Since(began) < 8*time.Second; i++ {
		from, to := den, cellar
		if i%2 == 1 {
			from, to = cellar, den
		}
		id := membership.AdmissionID(from.Self(), fmt.Sprintf("aaaaaaaaaaaaaa%02d", i%100), to.Self())
		if i >= 100 {
			break
		}
		at := time.Now()
		if err := from.PutOwned(membership.KindAdmission, id, membership.Countersign{Stamp: 1}); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "the other has it", func() bool { _, ok := to.Table().Get(membership.KindAdmission, id); return ok })
		slowest = max(slowest, time.Since(at))
		most = max(most, runtime.NumGoroutine())
	}
	eventually(t, 20*time.Second, "both are kept out of both", func() bool {
		for _, m := range []*machine{den, cellar} {
			if blamed(m, flooder.host.ID()).Until == 0 || blamed(m, forger.host.ID()).Until == 0 {
				return false
			}
		}
		return true
	})
	stop()
	floods.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("slowest %s; heap grew by %d KiB, goroutines from %d to at most %d; tables of %d and %d KiB; %+v",
		slowest, grown>>10, goroutines, most, den.Table().Bytes()>>10, cellar.Table().Bytes()>>10, den.Blamed())
	if slowest >= time.Second {
		t.Errorf("a record took %s", slowest)
	}
	if grown > 32<<20 || most > goroutines+validations {
		t.Errorf("the heap grew by %d MiB, goroutines from %d to %d", grown>>20, goroutines, most)
	}
	for _, m := range []*machine{attic, den, cellar} {
		if s, most := m.Table().Share(flooder.host.ID()), m.Table().MaxShare(); s.Records > most.Records || s.Bytes > most.Bytes || m.Table().Bytes() > most.Bytes {
			t.Errorf("the flooder has %+v of %+v, all have %d bytes", s, most, m.Table().Bytes())
		}
		if m.Table().Share(forger.host.ID()).Records != 1 { // Its membership.
			t.Errorf("the forger has %+v", m.Table().Share(forger.host.ID()))
		}
		onlyBlames(t, m, flooder, forger)
	}
}

// TestAShareByComparison: who brings more than its share by a comparison fills
// it, is cut off, and those it came to are in step with the others all the same.
func TestAShareByComparison(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	den := join(t, invite(t, attic, 1), "den")
	o := joinOutlaw(t, attic, attic, den)
	eventually(t, 10*time.Second, "one state", func() bool { return seesAlive(den, 3)() || sameState(attic, den)() })
	full := func(prefix string) *record.Table {
		table := o.table(t)
		most := attic.Table().MaxShare().Records
		for i := range most + 500 {
			if out, err := table.Offer(o.seal(t, fmt.Sprintf("%s%05d", prefix, i), 1)); out != record.Fresh {
				t.Fatal(out, err)
			}
		}
		return table
	}
	_ = o.sync(t, attic, full("a"))
	_ = o.sync(t, den, full("b"))
	for _, m := range []*machine{attic, den} {
		eventually(t, 20*time.Second, "cut off", func() bool { return blamed(m, o.host.ID()).Until > 0 })
		if s, most := m.Table().Share(o.host.ID()), m.Table().MaxShare(); s.Records > most.Records || s.Bytes > most.Bytes {
			t.Errorf("%+v of %+v", s, most)
		}
	}
	eventually(t, 30*time.Second, "in step with one another", func() bool {
		behind, err := attic.InStep(t.Context(), den.Self())
		return err == nil && behind == 0 && sameState(attic, den)()
	})
	if err := attic.PutShared(membership.KindMesh, membership.SettingsID, membership.Settings{Name: "room for others"}); err != nil {
		t.Error(err)
	}
	onlyBlames(t, attic, o)
	onlyBlames(t, den, o)
}

// TestComparisonsBegunTooOften are refused and count.
func TestComparisonsBegunTooOften(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	o := joinOutlaw(t, attic, attic)
	table := o.table(t)
	refused := 0
	for i := 0; blamed(attic, o.host.ID()).Until == 0; i++ {
		if err := o.sync(t, attic, table); err != nil {
			refused++
		}
		if i > 1000 {
			t.Fatal("a thousand comparisons at once")
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
	eventually(t, 5*time.Second, "cut off", func() bool { return !o.connected(attic) })
}

// TestOneComparisonAtATime for each peer: the others wait, and those that
// nobody waits for are refused.
func TestOneComparisonAtATime(t *testing.T) {
	t.Parallel()
	attic := found(t, "attic")
	o := joinOutlaw(t, attic, attic)
	var open []network.Stream
	ended := make(chan struct{}, 10)
	for range 5 {
		s, err := o.host.NewStream(t.Context(), attic.Self(), ProtocolSync)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{0, 0}); err != nil { // Half a frame; then silence.
			t.Fatal(err)
		}
		open = append(open, s)
		go func() {
			_, _ = s.Read(make([]byte, 1))
			ended <- struct{}{}
		}()
	}
	for range len(open) - comparisonsWaiting {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatal("more wait than may")
		}
	}
	select {
	case <-ended:
		t.Error("fewer wait than may")
	case <-time.After(100 * time.Millisecond):
	}
	for _, s := range open {
		_ = s.Reset()
	}
	eventually(t, 5*time.Second, "answered again", func() bool { return o.sync(t, attic, o.table(t)) == nil })
}
