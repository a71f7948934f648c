package record_test

import (
	"errors"
	"testing"

	"relay/p2p/record"
)

// TestTakeOverIsOneStep: what a shared record says stands in this peer's name, and
// nothing else was published or kept on the way.
func TestTakeOverIsOneStep(t *testing.T) {
	for name, tc := range map[string]struct{ was, asDeleted, is bool }{
		"live": {false, false, false}, "deleted": {true, false, true}, "live, as deleted": {false, true, true}, "deleted, as deleted": {true, true, true},
	} {
		d := newDisk()
		var published []record.Signed
		tab := tableWith(t, record.Options{Storage: d, Key: keyOf("me"), Kinds: kinds(), Rights: everyone{}, Publish: func(s record.Signed) { published = append(published, s) }})
		r := note("a", 7, "what ann said")
		r.Deleted = tc.was
		s := seal(t, "ann", r)
		offer(t, tab, s, record.Fresh)
		before := d.applies
		mine, err := tab.TakeOver(s, tc.asDeleted)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, _ := tab.Latest("note", "a")
		if got.Hash != mine.Hash || got.Author != idOf("me") || got.Version != (record.Version{8}) || got.Deleted != tc.is || string(got.Payload) != "what ann said" {
			t.Errorf("%s: %+v stands", name, got.Record)
		}
		if len(published) != 1 || published[0].Hash != mine.Hash || d.applies != before+1 {
			t.Errorf("%s: %d were published with %d writes", name, len(published), d.applies-before)
		}
		sameTables(t, tab, table(t, "me", d))
	}
}

// TestTakeOverOfWhatIsNotKept changes nothing.
func TestTakeOverOfWhatIsNotKept(t *testing.T) {
	tab := table(t, "me", newDisk())
	first, highest := seal(t, "ann", note("a", 1, "first")), seal(t, "ann", note("b", record.MaxCount-1, "for ever"))
	advert := seal(t, "ann", record.Record{Kind: "advert", ID: idOf("ann").String(), Version: record.Version{1, 1, 0}})
	for _, s := range []record.Signed{first, highest, advert, seal(t, "bob", note("a", 2, "second"))} {
		offer(t, tab, s, record.Fresh)
	}
	before := dump(tab)
	for name, tc := range map[string]struct {
		s    record.Signed
		want error
	}{
		"replaced":           {first, record.ErrSuperseded},
		"never there":        {seal(t, "ann", note("c", 1, "")), record.ErrNotFound},
		"at the bound":       {highest, record.ErrExhausted},
		"not a shared one":   {advert, record.ErrUnknownKind},
		"of a strange kind":  {seal(t, "ann", record.Record{Kind: "strange", ID: "a", Version: record.Version{1}}), record.ErrUnknownKind},
		"a higher twin of a": {seal(t, "ann", note("a", 3, "third")), record.ErrSuperseded},
	} {
		for _, asDeleted := range []bool{false, true} {
			if _, err := tab.TakeOver(tc.s, asDeleted); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if after := dump(tab); after != before {
		t.Errorf("it was\n%sand is\n%s", before, after)
	}
	if err := tab.Void(func(r record.Record) bool { return r.Author == idOf("ann") }); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.PutShared("note", "b", nil); err != nil {
		t.Errorf("the key whose versions were used up, once its writer is void: %v", err)
	}
}

// TestTakeOverLosesToWhatComesMeanwhile: a newer record that comes between the
// judging and the writing is not replaced.
func TestTakeOverLosesToWhatComesMeanwhile(t *testing.T) {
	var meanwhile func()
	asked := rights(func(r record.Record) record.Verdict {
		if f := meanwhile; f != nil && r.Author == idOf("me") {
			meanwhile = nil
			f()
		}
		return record.Allowed
	})
	tab := tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("me"), Kinds: kinds(), Rights: asked})
	s, newer := seal(t, "ann", note("a", 1, "old")), seal(t, "bob", note("a", 2, "new"))
	offer(t, tab, s, record.Fresh)
	meanwhile = func() { offer(t, tab, newer, record.Fresh) }
	if _, err := tab.TakeOver(s, true); !errors.Is(err, record.ErrSuperseded) {
		t.Errorf("%v", err)
	}
	if got, _ := tab.Get("note", "a"); got.Hash != newer.Hash {
		t.Errorf("%q stands", got.Payload)
	}
}
