package record

import (
	"testing"

	"pgregory.net/rapid"
)

// TestVoidIsAsIfItHadNeverCome: a table from which records were taken equals one
// that never had them, also after it was read from storage again.
func TestVoidIsAsIfItHadNeverCome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newVoidWorld(t)
		var kept, all []Signed
		for i := range rapid.IntRange(0, 40).Draw(t, "records") {
			s := w.record(t, i, rapid.IntRange(0, 2).Draw(t, "author"), rapid.SampledFrom([]string{"note", "strange"}).Draw(t, "kind"))
			all = append(all, s)
			if s.Author != w.authors[0] {
				kept = append(kept, s)
			}
		}
		table, other := w.table(t, w.storage), w.table(t, newVoidStorage())
		for _, s := range all {
			if out, err := table.Offer(s); out != Fresh {
				t.Fatalf("%s, %v", out, err)
			}
		}
		table.Root()
		for _, s := range kept {
			if out, err := other.Offer(s); out != Fresh {
				t.Fatalf("%s, %v", out, err)
			}
		}
		if err := table.Void(func(r Record) bool { return r.Author == w.authors[0] }); err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]*Table{"at once": table, "read again": w.table(t, w.storage)} {
			if got.Root() != other.Root() || got.Len() != other.Len() || got.Bytes() != other.Bytes() || len(got.List("note")) != len(other.List("note")) {
				t.Fatalf("%s: %d records of %d bytes, %d of %d without", name, got.Len(), got.Bytes(), other.Len(), other.Bytes())
			}
		}
	})
}
