package record_test

import (
	"errors"
	"testing"

	"relay/p2p/record"
)

// final makes a table in which deleted notes are so for ever.
func final(t testing.TB, name string, asked record.Rights) *record.Table {
	t.Helper()
	all := kinds()
	for i := range all {
		all[i].Final = all[i].Name == "note"
	}
	return tableWith(t, record.Options{Storage: newDisk(), Key: keyOf(name), Kinds: all, Rights: asked})
}

// TestAFinalDeletionOutlastsACut: whoever writes the key again and again while it is
// cut off from the one that deletes it, in whichever way that does, changes nothing.
func TestAFinalDeletionOutlastsACut(t *testing.T) {
	for name, del := range map[string]func(tab *record.Table, live record.Signed) (record.Signed, error){
		"deleted": func(tab *record.Table, live record.Signed) (record.Signed, error) {
			return tab.DeleteShared("note", "a")
		},
		"taken over": func(tab *record.Table, live record.Signed) (record.Signed, error) { return tab.TakeOver(live, true) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := final(t, "ann", everyone{}), final(t, "bob", everyone{})
			live, err := a.PutShared("note", "a", []byte("first"))
			if err != nil {
				t.Fatal(err)
			}
			offer(t, b, live, record.Fresh)
			gone, err := del(a, live)
			if err != nil {
				t.Fatal(err)
			}
			var late record.Signed
			for range 100 {
				if late, err = b.PutShared("note", "a", []byte("later")); err != nil {
					t.Fatal(err)
				}
			}
			offer(t, a, late, record.Stale)
			offer(t, b, gone, record.Fresh)
			sameTables(t, a, b)
			before := dump(b)
			if _, err := b.PutShared("note", "a", []byte("again")); !errors.Is(err, record.ErrNotFound) {
				t.Errorf("a deleted key is written again: %v", err)
			}
			if after := dump(b); after != before {
				t.Errorf("it was\n%sand is\n%s", before, after)
			}
			kept, err := b.TakeOver(gone, false)
			if err != nil || !kept.Deleted || kept.Version[0] != gone.Version[0]+1 {
				t.Errorf("taken over once more as %+v, %v", kept.Record, err)
			}
		})
	}
}

// TestAFinalDeletionThatComesMeanwhile, after the writer was judged, keeps the key
// deleted.
func TestAFinalDeletionThatComesMeanwhile(t *testing.T) {
	var meanwhile func()
	tab := final(t, "me", rights(func(r record.Record) record.Verdict {
		if f := meanwhile; f != nil && r.Author == idOf("me") {
			meanwhile = nil
			f()
		}
		return record.Allowed
	}))
	if _, err := tab.PutShared("note", "a", nil); err != nil {
		t.Fatal(err)
	}
	gone := note("a", 2, "")
	gone.Deleted = true
	meanwhile = func() { offer(t, tab, seal(t, "ann", gone), record.Fresh) }
	if _, err := tab.PutShared("note", "a", []byte("late")); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, ok := tab.Get("note", "a"); ok {
		t.Error("the key is back")
	}
}

// TestAFinalDeletionAtTheBound is possible as long as any version is left.
func TestAFinalDeletionAtTheBound(t *testing.T) {
	tab := final(t, "me", everyone{})
	offer(t, tab, seal(t, "ann", note("a", record.MaxCount-2, "")), record.Fresh)
	offer(t, tab, seal(t, "ann", note("b", record.MaxCount-1, "")), record.Fresh)
	if gone, err := tab.DeleteShared("note", "a"); err != nil || gone.Version[0] != record.MaxCount-1 {
		t.Errorf("%s, %v", gone.Version, err)
	}
	if _, err := tab.DeleteShared("note", "b"); !errors.Is(err, record.ErrExhausted) {
		t.Errorf("%v", err)
	}
}
