package record_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"relay/p2p/record"
)

// small makes a table in which one author has room for ten records, and for two
// judgements beside them.
func small(t testing.TB, name string, d *disk) *record.Table {
	t.Helper()
	return tableWith(t, record.Options{Storage: d, Key: keyOf(name), Kinds: append(kinds(), record.Kind{Name: "judgement", Rule: record.Owned, Owner: owner, Reserved: true}), Rights: everyone{},
		MaxRecords: 40, MaxBytes: 40 << 10, Shares: 4})
}

// counted says whether what the table counts for its authors is what it has.
func counted(tab *record.Table) error {
	want, reserved := map[string]record.Share{}, map[string]record.Share{}
	var sum record.Share
	for _, s := range tab.All() {
		of := want
		if s.Kind == "judgement" {
			of = reserved
		}
		w := of[string(s.Author)]
		cost := record.Cost(s)
		of[string(s.Author)] = record.Share{Records: w.Records + 1, Bytes: w.Bytes + cost}
		sum = record.Share{Records: sum.Records + 1, Bytes: sum.Bytes + cost}
	}
	for _, name := range []string{"mallory", "ann", "bob", "me"} {
		if got := tab.Share(idOf(name)); got != want[string(idOf(name))] {
			return fmt.Errorf("%s has %+v, %+v is counted", name, want[string(idOf(name))], got)
		}
		if got := tab.Reserved(idOf(name)); got != reserved[string(idOf(name))] {
			return fmt.Errorf("%s has %+v of what is reserved, %+v is counted", name, reserved[string(idOf(name))], got)
		}
	}
	for _, kind := range []string{"note", "judgement"} {
		if n := len(tab.List(kind)); tab.Live(kind) != n {
			return fmt.Errorf("%d live records of %s are counted, there are %d", tab.Live(kind), kind, n)
		}
	}
	if sum.Records != tab.Len() || sum.Bytes != tab.Bytes() {
		return fmt.Errorf("%+v are there, %d and %d are counted", sum, tab.Len(), tab.Bytes())
	}
	return nil
}

// TestOneAuthorHasAShare of the table and no more, by one record after the other
// and by many at once; who writes here is refused, and told whose share it is.
func TestOneAuthorHasAShare(t *testing.T) {
	d := newDisk()
	tab := small(t, "me", d)
	refused := 0
	for i := range 100 {
		out, err := tab.Offer(seal(t, "mallory", note(fmt.Sprintf("m%03d", i), 1, "")))
		if out == record.Refused {
			refused++
			if !errors.Is(err, record.ErrFull) || !strings.Contains(err.Error(), idOf("mallory").String()[44:]) {
				t.Fatal(err)
			}
		}
	}
	var flood []record.Signed
	for i := range 200 {
		flood = append(flood, seal(t, "mallory", note(fmt.Sprintf("k%03d", i), 1, ""))) // These come before the others.
	}
	if errs := tab.OfferAll(flood...); errs[9] != nil || !errors.Is(errs[10], record.ErrFull) {
		t.Errorf("at the bound: %v, %v", errs[9], errs[10])
	}
	if refused != 90 || tab.Share(idOf("mallory")).Records != 10 {
		t.Errorf("%d refused, %+v kept", refused, tab.Share(idOf("mallory")))
	}
	offer(t, tab, seal(t, "mallory", note("k000", 2, strings.Repeat("x", 20000))), record.Refused) // Grown past it.
	if got, ok := tab.Get("note", "k001"); ok {
		t.Errorf("%s stands after one before it that does not fit", got.ID)
	}
	for i := range 10 {
		offer(t, tab, seal(t, "ann", note(fmt.Sprintf("a%d", i), 1, "")), record.Fresh)
		if _, err := tab.PutShared("note", fmt.Sprintf("z%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.PutShared("note", "b", nil); !errors.Is(err, record.ErrFull) || !strings.Contains(err.Error(), idOf("me").String()[44:]) {
		t.Errorf("one more of this peer's own: %v", err)
	}
	if _, err := tab.PutShared("note", "z0", []byte("again")); err != nil {
		t.Errorf("one that is there, written again: %v", err)
	}
	if _, err := tab.DeleteShared("note", "z0"); err != nil {
		t.Errorf("one that is there, deleted: %v", err)
	}
	if _, err := tab.PutShared("note", "a0", nil); !errors.Is(err, record.ErrFull) {
		t.Errorf("another's, taken over: %v", err)
	}
	if err := counted(tab); err != nil {
		t.Error(err)
	}
	again := small(t, "me", d)
	sameTables(t, tab, again)
	if err := counted(again); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := again.Void(func(r record.Record) bool { return r.Author == idOf("me") }); err != nil {
		t.Fatal(err)
	}
	if err := counted(again); err != nil || again.Share(idOf("me")) != (record.Share{}) {
		t.Errorf("after Void: %v", err)
	}
}

// judgement is by's word about a peer, in a record of the reserved kind.
func judgement(t testing.TB, by, about string) record.Signed {
	t.Helper()
	return seal(t, by, record.Record{Kind: "judgement", ID: idOf(by).String() + "/" + about, Version: record.Version{1, 1, 0}})
}

// TestReservedRoom: what is reserved is there when table and shares are full, one
// author has his part of it and no more, and nothing else gets in by it.
func TestReservedRoom(t *testing.T) {
	d := newDisk()
	tab := small(t, "me", d)
	for i := range 10 {
		for _, name := range []string{"mallory", "ann", "bob"} {
			offer(t, tab, seal(t, name, note(fmt.Sprint(name, i), 1, "")), record.Fresh)
		}
		if _, err := tab.PutShared("note", fmt.Sprint("me", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	offer(t, tab, seal(t, "eve", note("more", 1, "")), record.Refused)

	var flood []record.Signed
	for i := range 50 {
		flood = append(flood, judgement(t, "mallory", fmt.Sprintf("m%02d", i)))
	}
	if errs := tab.OfferAll(flood...); errs[1] != nil || !errors.Is(errs[2], record.ErrShare) {
		t.Errorf("a flood by one: %v, %v", errs[1], errs[2])
	}
	for i := range 2 {
		offer(t, tab, judgement(t, "ann", fmt.Sprint(i)), record.Fresh)
		offer(t, tab, judgement(t, "bob", fmt.Sprint(i)), record.Fresh)
		if _, err := tab.PutOwned("judgement", idOf("me").String()+fmt.Sprint("/", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.PutOwned("judgement", idOf("me").String()+"/2", nil); !errors.Is(err, record.ErrShare) || !strings.Contains(err.Error(), "may have 2 records") {
		t.Errorf("one more of this peer's own: %v", err)
	}
	offer(t, tab, judgement(t, "eve", "0"), record.Fresh)
	offer(t, tab, judgement(t, "eve", "1"), record.Fresh)
	if out, err := tab.Offer(judgement(t, "zoe", "0")); out != record.Refused || !errors.Is(err, record.ErrFull) || errors.Is(err, record.ErrShare) {
		t.Errorf("above all that is reserved: %s, %v", out, err)
	}
	offer(t, tab, seal(t, "eve", note("more", 1, "")), record.Refused)
	if tab.Len() != 50 || tab.Share(idOf("mallory")).Records != 10 {
		t.Errorf("%d records\n%s", tab.Len(), dump(tab))
	}
	if err := counted(tab); err != nil {
		t.Error(err)
	}
	again := small(t, "me", d)
	sameTables(t, tab, again)
	if err := counted(again); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := again.Void(func(r record.Record) bool { return r.Author == idOf("mallory") }); err != nil {
		t.Fatal(err)
	}
	if err := counted(again); err != nil || again.Reserved(idOf("mallory")) != (record.Share{}) {
		t.Errorf("after Void: %v", err)
	}
	offer(t, again, judgement(t, "zoe", "0"), record.Fresh)
	offer(t, again, seal(t, "eve", note("more", 1, "")), record.Fresh)
}

// TestSharesConverge: whatever of an author's too many records each peer was
// offered, in whatever order and batches, comparing makes them equal, none has
// more than his share, and others' records are all there.
func TestSharesConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var hostile []record.Signed
		for i := range rapid.IntRange(5, 30).Draw(rt, "hostile") {
			kind := rapid.SampledFrom([]string{"note", "strange", "judgement"}).Draw(rt, "kind")
			r := note(fmt.Sprintf("m%02d", i), uint64(rapid.IntRange(1, 2).Draw(rt, "version")), strings.Repeat("x", rapid.SampledFrom([]int{0, 1500, 4000}).Draw(rt, "size")))
			if r.Kind = kind; kind == "judgement" {
				r.ID = idOf("mallory").String() + "/" + r.ID
			}
			hostile = append(hostile, seal(t, "mallory", r))
		}
		tabs := []*record.Table{small(t, "me", newDisk()), small(t, "ann", newDisk()), small(t, "bob", newDisk())}
		for i, tab := range tabs {
			for order := rapid.Permutation(hostile).Draw(rt, "order"); len(order) > 0; {
				batch := min(len(order), rapid.IntRange(1, 3).Draw(rt, "batch"))
				if !rapid.Bool().Draw(rt, "lost") {
					tab.OfferAll(order[:batch]...)
				}
				order = order[batch:]
			}
			if _, err := tab.PutShared("note", fmt.Sprint("honest", i), nil); err != nil {
				rt.Fatal(err)
			}
		}
		for range 4 {
			for i := range tabs {
				if _, _, err := syncTables(tabs[i], tabs[(i+1)%3], record.SyncOptions{}, record.SyncOptions{}); err != nil {
					rt.Fatal(err)
				}
			}
		}
		sameTables(rt, tabs...)
		for _, tab := range tabs {
			if err := counted(tab); err != nil {
				rt.Fatal(err)
			}
			if s, most := tab.Share(idOf("mallory")), tab.MaxShare(); s.Records > most.Records || s.Bytes > most.Bytes {
				rt.Fatalf("%+v of %+v", s, most)
			}
			if s, most := tab.Reserved(idOf("mallory")), tab.MaxReserved(); s.Records > most.Records || s.Bytes > most.Bytes {
				rt.Fatalf("%+v of %+v are reserved", s, most)
			}
			for i := range tabs {
				if _, ok := tab.Get("note", fmt.Sprint("honest", i)); !ok {
					rt.Fatal("an honest record is missing")
				}
			}
		}
	})
}

// TestOldRecordsLose: what is replayed or dated back changes nothing.
func TestOldRecordsLose(t *testing.T) {
	tab := table(t, "me", newDisk())
	advert := func(incarnation, sequence uint64) record.Record {
		return record.Record{Kind: "advert", ID: idOf("ann").String(), Version: record.Version{incarnation, sequence, 0}}
	}
	first := seal(t, "ann", note("a", 1, "first"))
	offer(t, tab, first, record.Fresh)
	offer(t, tab, seal(t, "bob", note("a", 7, "now")), record.Fresh)
	offer(t, tab, first, record.Stale)
	offer(t, tab, seal(t, "ann", note("a", 6, "dated back")), record.Stale)
	offer(t, tab, seal(t, "ann", advert(3, 1)), record.Fresh)
	offer(t, tab, seal(t, "ann", advert(2, 1<<40)), record.Stale)
	offer(t, tab, seal(t, "ann", advert(3, 1)), record.Same)
	if s, _ := tab.Get("note", "a"); string(s.Payload) != "now" {
		t.Errorf("%q stands", s.Payload)
	}
}
