package record_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// disk is a Storage in memory that can fail, and be looked at as after a crash.
type disk struct {
	mu      sync.Mutex
	data    map[string][]byte
	applies int
	// fail, if set, decides what becomes of an Apply: its error, and whether
	// the writes reached the disk all the same.
	fail func() (err error, written bool)
	// gate, if set, is waited for by each Apply, which says first that it waits.
	gate    chan struct{}
	reached chan struct{}
}

func newDisk() *disk { return &disk{data: make(map[string][]byte)} }

func (d *disk) Get(key []byte) ([]byte, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.data[string(key)]
	return slices.Clone(v), ok, nil
}

func (d *disk) Apply(writes []record.Write) error {
	if d.gate != nil {
		d.reached <- struct{}{}
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applies++
	if d.fail != nil {
		if err, written := d.fail(); err != nil {
			if written {
				d.write(writes)
			}
			return err
		}
	}
	d.write(writes)
	return nil
}

func (d *disk) write(writes []record.Write) {
	for _, w := range writes {
		if w.Delete {
			delete(d.data, string(w.Key))
		} else {
			d.data[string(w.Key)] = slices.Clone(w.Value)
		}
	}
}

func (d *disk) Scan(prefix []byte, fn func(k, v []byte) error) error {
	d.mu.Lock()
	keys := slices.Sorted(maps.Keys(d.data))
	data := maps.Clone(d.data)
	d.mu.Unlock()
	buf := []byte{}
	for _, k := range keys {
		if strings.HasPrefix(k, string(prefix)) {
			buf = append(buf[:0], data[k]...) // the slice is good during the call only
			if err := fn([]byte(k), buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyOf is the disk as another process finds it after this one was killed.
func (d *disk) copyOf() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{data: maps.Clone(d.data)}
}

// keyOf gives a key to each name, the same in every run.
func keyOf(name string) crypto.PrivKey {
	seed := sha256.Sum256([]byte(name))
	key, err := crypto.UnmarshalEd25519PrivateKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		panic(err)
	}
	return key
}

func idOf(name string) peer.ID {
	id, err := peer.IDFromPrivateKey(keyOf(name))
	if err != nil {
		panic(err)
	}
	return id
}

// everyone may do everything.
type everyone struct{}

func (everyone) May(peer.ID, record.Rule, string, string) record.Verdict { return record.Allowed }

// rights answers by what it is told about a record: author, kind and id.
type rights func(record.Record) record.Verdict

func (f rights) May(author peer.ID, _ record.Rule, kind, id string) record.Verdict {
	return f(record.Record{Kind: kind, ID: id, Author: author})
}

// The kinds of the tests. A grant, by subject and grantor, is written by anyone
// who is in, and lets its subject in: the root is in from the start. Everything
// else asks for the author's grant; an advert belongs to the peer that its id
// begins with.
//
// The grantor in the key keeps others from replacing the grant. Without it one
// who was let in could take over the very record that let him in, and peers who
// never saw the first version would not believe him: see "Rights that come
// later" in the package comment. TestConverge found that.
func kinds() []record.Kind {
	return []record.Kind{
		{Name: "grant", Rule: record.Owned, Owner: func(id string) (peer.ID, error) {
			_, grantor, _ := strings.Cut(id, "/")
			return peer.Decode(grantor)
		}},
		{Name: "note", Rule: record.Shared, Check: func(r record.Record) error {
			if string(r.Payload) == "bad" {
				return errors.New("a bad note")
			}
			return nil
		}},
		{Name: "advert", Rule: record.Owned, Owner: owner},
		{Name: "placement", Rule: record.Placement},
	}
}

func owner(id string) (peer.ID, error) {
	name, _, _ := strings.Cut(id, "/")
	return peer.Decode(name)
}

// grants answers from the table's own records. They only ever grow.
type grants struct {
	root  peer.ID
	table *record.Table
}

func (g *grants) May(author peer.ID, rule record.Rule, kind, id string) record.Verdict {
	if author == g.root {
		return record.Allowed
	}
	if g.table == nil {
		return record.Unknown
	}
	for _, s := range g.table.List("grant") {
		if strings.HasPrefix(s.ID, author.String()+"/") {
			return record.Allowed
		}
	}
	return record.Unknown
}

// table makes a table named after its peer in which everyone may write.
func table(t testing.TB, name string, d *disk) *record.Table {
	t.Helper()
	return tableWith(t, record.Options{Storage: d, Key: keyOf(name), Kinds: kinds(), Rights: everyone{}})
}

func tableWith(t testing.TB, o record.Options) *record.Table {
	t.Helper()
	tab, err := record.NewTable(o)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// granted makes a table whose rights are grants.
func granted(t testing.TB, name, root string, d *disk) *record.Table {
	t.Helper()
	g := &grants{root: idOf(root)}
	g.table = tableWith(t, record.Options{Storage: d, Key: keyOf(name), Kinds: kinds(), Rights: g})
	return g.table
}

func seal(t testing.TB, name string, r record.Record) record.Signed {
	t.Helper()
	s, err := record.Seal(r, keyOf(name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// grant is by's word that to is in.
func grant(t testing.TB, by, to string) record.Signed {
	t.Helper()
	return seal(t, by, record.Record{Kind: "grant", ID: idOf(to).String() + "/" + idOf(by).String(), Version: record.Version{1, 1, 0}})
}

func note(id string, version uint64, payload string) record.Record {
	return record.Record{Kind: "note", ID: id, Version: record.Version{version}, Payload: []byte(payload)}
}

func offer(t testing.TB, tab *record.Table, s record.Signed, want record.Outcome) {
	t.Helper()
	got, err := tab.Offer(s)
	if got != want {
		t.Fatalf("offering %s %s: %v (%v), want %v", s.Key(), s.Version, got, err, want)
	}
	if (err != nil) != (got == record.Refused) {
		t.Fatalf("outcome %v with error %v", got, err)
	}
}

// dump is a table as text, for comparing.
func dump(tab *record.Table) string {
	var b strings.Builder
	for _, s := range tab.All() {
		fmt.Fprintf(&b, "%s %s %s deleted=%v %q %x\n", s.Key(), s.Version, s.Author, s.Deleted, s.Payload, s.Hash[:4])
	}
	return b.String()
}

func sameTables(t interface {
	Helper()
	Fatalf(string, ...any)
}, tabs ...*record.Table) {
	t.Helper()
	for _, tab := range tabs[1:] {
		if a, b := dump(tabs[0]), dump(tab); a != b {
			t.Fatalf("tables differ:\n%s\nand\n%s", a, b)
		}
		if tabs[0].Root() != tab.Root() {
			t.Fatalf("equal tables with different roots")
		}
		if tabs[0].Buckets() != tab.Buckets() {
			t.Fatalf("equal tables with different buckets")
		}
	}
}
