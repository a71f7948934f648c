package record_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

// TestVoidIsAsIfItHadNeverCome: a table from which records were taken equals one
// that never had them, also after it was read from storage again.
func TestVoidIsAsIfItHadNeverCome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newVoidWorld(t)
		var kept, all []record.Signed
		for i := range rapid.IntRange(0, 40).Draw(t, "records") {
			s := w.record(t, i, rapid.IntRange(0, 2).Draw(t, "author"), rapid.SampledFrom([]string{"note", "strange"}).Draw(t, "kind"))
			all = append(all, s)
			if s.Author != w.authors[0] {
				kept = append(kept, s)
			}
		}
		table, other := w.table(t, w.storage), w.table(t, recordtest.NewMemory())
		for _, s := range all {
			if out, err := table.Offer(s); out != record.Fresh {
				t.Fatalf("%s, %v", out, err)
			}
		}
		table.Root()
		for _, s := range kept {
			if out, err := other.Offer(s); out != record.Fresh {
				t.Fatalf("%s, %v", out, err)
			}
		}
		if err := table.Void(func(r record.Record) bool { return r.Author == w.authors[0] }); err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]*record.Table{"at once": table, "read again": w.table(t, w.storage)} {
			if got.Root() != other.Root() || got.Len() != other.Len() || got.Bytes() != other.Bytes() || len(got.List("note")) != len(other.List("note")) {
				t.Fatalf("%s: %d records of %d bytes, %d of %d without", name, got.Len(), got.Bytes(), other.Len(), other.Bytes())
			}
		}
	})
}

// voidWorld has three authors whom everybody believes, and one storage.
type voidWorld struct {
	keys    []crypto.PrivKey
	authors []peer.ID
	storage *recordtest.Memory
}

func newVoidWorld(t *rapid.T) *voidWorld {
	w := &voidWorld{storage: recordtest.NewMemory()}
	for i := range 3 {
		key, _, err := crypto.GenerateEd25519Key(bytes.NewReader(bytes.Repeat([]byte{byte(i + 1)}, 64)))
		if err != nil {
			t.Fatal(err)
		}
		id, err := peer.IDFromPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		w.keys, w.authors = append(w.keys, key), append(w.authors, id)
	}
	return w
}

func (w *voidWorld) record(t *rapid.T, i, author int, kind string) record.Signed {
	s, err := record.Seal(record.Record{Kind: kind, ID: fmt.Sprintf("r%d", i), Version: record.Version{1}, Payload: []byte{0x60}}, w.keys[author])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type allowed struct{}

func (allowed) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

func (w *voidWorld) table(t *rapid.T, s record.Storage) *record.Table {
	table, err := record.NewTable(record.Options{Storage: s, Key: w.keys[2], Kinds: []record.Kind{{Name: "note", Rule: record.Shared}}, Rights: allowed{}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}
