package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// revocable are the rights of everybody, and one author's may end. meanwhile is
// called when it is clear what the answer is, and before the record is written.
type revocable struct {
	table     *record.Table
	author    peer.ID
	over      atomic.Bool
	meanwhile func()
}

func (v *revocable) May(author peer.ID, _ record.Rule, _, _ string) record.Verdict {
	verdict := record.Allowed
	if author == v.author && v.over.Load() {
		verdict = record.Denied
	}
	if f := v.meanwhile; f != nil {
		f()
	}
	return verdict
}

// revoke ends the rights and takes away what was written by them.
func (v *revocable) revoke() error {
	v.over.Store(true)
	return v.table.Void(v.is)
}

// is reads the table, as who answers by its records does.
func (v *revocable) is(r record.Record) bool {
	v.table.History(r.Kind)
	return r.Author == v.author
}

func revocableTable(t testing.TB, author string) *revocable {
	v := &revocable{author: idOf(author)}
	v.table = tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("me"), Kinds: kinds(), Rights: v})
	return v
}

// TestVoidBetweenJudgingAndWriting: what was allowed before Void does not come in
// after it, and what stands does.
func TestVoidBetweenJudgingAndWriting(t *testing.T) {
	v := revocableTable(t, "thief")
	once := func() {
		v.meanwhile = nil
		if err := v.revoke(); err != nil {
			t.Fatal(err)
		}
	}
	v.meanwhile = once
	if out, err := v.table.Offer(seal(t, "thief", note("a", 1, ""))); out != record.Refused || !errors.Is(err, record.ErrNotAllowed) {
		t.Errorf("the thief's: %s, %v", out, err)
	}
	v.over.Store(false)
	v.meanwhile = once
	errs := v.table.OfferAll(seal(t, "ann", note("b", 1, "")), seal(t, "thief", note("c", 1, "")))
	if errs[0] != nil || !errors.Is(errs[1], record.ErrNotAllowed) {
		t.Errorf("a batch: %v", errs)
	}
	v.meanwhile = once
	if _, err := v.table.PutShared("note", "d", nil); err != nil {
		t.Errorf("this peer's: %v", err)
	}
	if _, err := v.table.PutOwned("advert", idOf("me").String(), nil); err != nil {
		t.Errorf("this peer's: %v", err)
	}
	if v.table.Len() != 3 {
		t.Errorf("%s", dump(v.table))
	}

	v = revocableTable(t, "me") // It is this peer whose rights end.
	v.meanwhile = func() {
		v.meanwhile = nil
		if err := v.revoke(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.table.PutShared("note", "a", nil); !errors.Is(err, record.ErrNotAllowed) || v.table.Len() != 0 {
		t.Errorf("one who may not any more: %v\n%s", err, dump(v.table))
	}
}

// TestVoidAgainAndAgain: a record that Void comes before each time it was judged
// waits like one whose author is not known yet.
func TestVoidAgainAndAgain(t *testing.T) {
	v := revocableTable(t, "thief")
	judged := 0
	v.meanwhile = func() {
		judged++
		if err := v.revoke(); err != nil {
			t.Fatal(err)
		}
	}
	offer(t, v.table, seal(t, "ann", note("a", 1, "")), record.Held)
	if _, err := v.table.PutShared("note", "b", nil); !errors.Is(err, record.ErrNotMember) {
		t.Errorf("this peer's: %v", err)
	}
	if judged != 2*record.MaxJudged || v.table.Len() != 0 || v.table.Held() != 1 {
		t.Errorf("judged %d times; %d kept, %d held", judged, v.table.Len(), v.table.Held())
	}
	v.meanwhile = nil
	if kept := v.table.Recheck(time.Now()); len(kept) != 1 || v.table.Len() != 1 {
		t.Errorf("%d were kept then", len(kept))
	}
}

// TestVoidWhileOthersWrite: whoever writes at the same time, once Void has
// returned nothing of what it took is there, then or later.
func TestVoidWhileOthersWrite(t *testing.T) {
	const each = 60
	for range 20 {
		v := revocableTable(t, "thief")
		var batches [][]record.Signed
		for i := range each {
			batches = append(batches, []record.Signed{seal(t, "thief", note(fmt.Sprint("t", i), 1, "")), seal(t, "ann", note(fmt.Sprint("a", i), 1, ""))})
		}
		var group sync.WaitGroup
		begun := make(chan struct{})
		group.Go(func() {
			for i, b := range batches {
				v.table.OfferAll(b...)
				if i == each/3 {
					close(begun)
				}
			}
		})
		group.Go(func() {
			for i := range each {
				if _, err := v.table.PutShared("note", fmt.Sprint("m", i), nil); err != nil {
					t.Error(err)
				}
			}
		})
		<-begun
		if err := v.revoke(); err != nil {
			t.Fatal(err)
		}
		atOnce := v.table.Share(v.author)
		group.Wait()
		if later := v.table.Share(v.author); atOnce.Records+later.Records != 0 || v.table.Len() != 2*each {
			t.Fatalf("of the thief's %d were there at once, %d later; %d in all", atOnce.Records, later.Records, v.table.Len())
		}
	}
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
