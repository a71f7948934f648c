package record_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

func TestOptionsNameTheFault(t *testing.T) {
	good := record.Options{Storage: newDisk(), Key: keyOf("ann"), Kinds: kinds(), Rights: everyone{}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*record.Options){
		"storage":      func(o *record.Options) { o.Storage = nil },
		"key":          func(o *record.Options) { o.Key = nil },
		"rights":       func(o *record.Options) { o.Rights = nil },
		"limits":       func(o *record.Options) { o.MaxBytes = -1 },
		"kind's name":  func(o *record.Options) { o.Kinds = []record.Kind{{Name: "N", Rule: record.Shared}} },
		"kind twice":   func(o *record.Options) { o.Kinds = append(o.Kinds, o.Kinds[0]) },
		"kind's rule":  func(o *record.Options) { o.Kinds = []record.Kind{{Name: "n"}} },
		"foreign kind": func(o *record.Options) { o.Kinds = []record.Kind{{Name: "n", Rule: record.Foreign}} },
		"final, owned": func(o *record.Options) {
			o.Kinds = []record.Kind{{Name: "n", Rule: record.Owned, Owner: owner, Final: true}}
		},
		"kind's owner":    func(o *record.Options) { o.Kinds = []record.Kind{{Name: "n", Rule: record.Owned}} },
		"second placings": func(o *record.Options) { o.Kinds = append(o.Kinds, record.Kind{Name: "p", Rule: record.Placement}) },
	} {
		o := good
		o.Kinds = kinds()
		spoil(&o)
		if _, err := record.NewTable(o); err == nil {
			t.Errorf("%s: nothing was said", name)
		}
	}
}

func TestMergeRule(t *testing.T) {
	low, high := "ann", "bob"
	if idOf(low) > idOf(high) {
		low, high = high, low
	}
	older, newer := seal(t, high, note("a", 1, "older")), seal(t, low, note("a", 2, "newer"))
	tieLow, tieHigh := seal(t, low, note("a", 3, "x")), seal(t, high, note("a", 3, "y"))
	twin1, twin2 := seal(t, high, note("a", 4, "x")), seal(t, high, note("a", 4, "y"))
	if string(twin1.Hash[:]) > string(twin2.Hash[:]) {
		twin1, twin2 = twin2, twin1
	}
	rising := []record.Signed{older, newer, tieLow, tieHigh, twin1, twin2}
	tab := table(t, "me", newDisk())
	for i, s := range rising {
		offer(t, tab, s, record.Fresh)
		offer(t, tab, s, record.Same)
		for _, old := range rising[:i] {
			offer(t, tab, old, record.Stale)
		}
		if got, ok := tab.Get("note", "a"); !ok || got.Hash != s.Hash {
			t.Fatalf("after %d the table has %s", i, got.Version)
		}
	}
}

func TestDeletedStays(t *testing.T) {
	tab := table(t, "me", newDisk())
	live, err := tab.PutShared("note", "a", []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	gone, err := tab.DeleteShared("note", "a")
	if err != nil {
		t.Fatal(err)
	}
	if string(gone.Payload) != "text" || !gone.Deleted || !live.Version.Less(gone.Version) {
		t.Errorf("deleted as %+v", gone.Record)
	}
	if _, ok := tab.Get("note", "a"); ok || len(tab.List("note")) != 0 {
		t.Error("a deleted record is shown as live")
	}
	if got, ok := tab.Latest("note", "a"); !ok || !got.Deleted || len(tab.All()) != 1 {
		t.Error("a deleted record is forgotten")
	}
	offer(t, tab, live, record.Stale)
	if _, err := tab.DeleteShared("note", "a"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
	back, err := tab.PutShared("note", "a", []byte("again"))
	if err != nil || back.Version[0] != 3 {
		t.Errorf("written again as %s, %v", back.Version, err)
	}
}

func TestRevisionAndHistory(t *testing.T) {
	tab := table(t, "me", newDisk())
	was := map[string]uint64{}
	changed := func() string {
		var kinds []string
		for _, kind := range []string{"advert", "note"} {
			if r := tab.Revision(kind); r != was[kind] {
				was[kind] = r
				kinds = append(kinds, kind)
			}
		}
		return fmt.Sprint(kinds)
	}
	s := seal(t, "ann", note("b", 1, ""))
	offer(t, tab, s, record.Fresh)
	if got := changed(); got != "[note]" {
		t.Errorf("a note changed %s", got)
	}
	offer(t, tab, s, record.Same)
	offer(t, tab, seal(t, "ann", record.Record{Kind: "advert", ID: "x", Version: record.Version{1, 1, 0}}), record.Refused)
	if got := changed(); got != "[]" {
		t.Errorf("nothing changed %s", got)
	}
	if _, err := tab.DeleteShared("note", "b"); err != nil {
		t.Fatal(err)
	}
	offer(t, tab, seal(t, "ann", note("a", 1, "")), record.Fresh)
	if got := changed(); got != "[note]" {
		t.Errorf("two notes changed %s", got)
	}
	h := tab.History("note")
	if len(h) != 2 || h[0].ID != "a" || h[0].Deleted || h[1].ID != "b" || !h[1].Deleted {
		t.Errorf("history %v", h)
	}
}

func TestListIsSorted(t *testing.T) {
	tab := table(t, "me", newDisk())
	for _, id := range []string{"c", "a", "b/2", "b", "b/1", "a"} {
		if _, err := tab.PutShared("note", id, []byte(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.DeleteShared("note", "c"); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range tab.List("note") {
		ids = append(ids, s.ID)
	}
	if got := fmt.Sprint(ids); got != "[a b b/1 b/2]" {
		t.Errorf("listed %s", got)
	}
	if raw, ok := tab.Raw("note/b/1"); !ok {
		t.Error("no raw record")
	} else if s, err := record.Open(raw); err != nil || s.ID != "b/1" {
		t.Errorf("raw record: %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	me := idOf("me").String()
	for name, tc := range map[string]struct {
		s    record.Signed
		want error
	}{
		"not opened":                {record.Signed{Record: note("a", 1, "")}, record.ErrInvalid},
		"shared without version":    {seal(t, "ann", note("a", 0, "")), record.ErrPayload},
		"shared with three parts":   {seal(t, "ann", record.Record{Kind: "note", ID: "a", Version: record.Version{1, 1, 0}}), record.ErrPayload},
		"shared at the bound":       {seal(t, "ann", note("a", record.MaxCount, "")), record.ErrPayload},
		"owned without incarnation": {seal(t, "me", record.Record{Kind: "advert", ID: me, Version: record.Version{0, 1, 0}}), record.ErrPayload},
		"owned sequence too high":   {seal(t, "me", record.Record{Kind: "advert", ID: me, Version: record.Version{1, record.MaxCount, 0}}), record.ErrPayload},
		"owned third part":          {seal(t, "me", record.Record{Kind: "advert", ID: me, Version: record.Version{1, 1, 1}}), record.ErrPayload},
		"placement epoch 2^63":      {seal(t, "ann", record.Record{Kind: "placement", ID: "a", Version: record.Version{1 << 63, 0, 0}}), record.ErrPayload},
		"bad payload":               {seal(t, "ann", note("a", 1, "bad")), record.ErrPayload},
		"another's key":             {seal(t, "ann", record.Record{Kind: "advert", ID: me, Version: record.Version{1, 1, 0}}), record.ErrNotAllowed},
		"an id without owner":       {seal(t, "ann", record.Record{Kind: "advert", ID: "x", Version: record.Version{1, 1, 0}}), record.ErrPayload},
	} {
		disk := newDisk()
		tab := table(t, "me", disk)
		root, stored := tab.Root(), len(disk.data)
		out, err := tab.Offer(tc.s)
		if out != record.Refused || !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
		if tab.Len() != 0 || tab.Root() != root || len(disk.data) != stored {
			t.Errorf("%s: something was kept", name)
		}
	}
}

// Ranks are hashes: the second part of a placement's version has no bound.
func TestPlacementVersions(t *testing.T) {
	tab := table(t, "me", newDisk())
	put := func(v record.Version, want error) {
		t.Helper()
		if _, err := tab.PutPlacement("uid", v, []byte("x")); !errors.Is(err, want) {
			t.Errorf("placement %s: %v, want %v", v, err, want)
		}
	}
	put(record.Version{0, 1, 1}, record.ErrPayload)
	put(record.Version{1, 1<<64 - 1, 0}, nil)
	put(record.Version{1, 1<<64 - 1, 0}, record.ErrSuperseded)
	put(record.Version{1, 5, 9}, record.ErrSuperseded)
	put(record.Version{1, 1<<64 - 1, 1}, nil)
	put(record.Version{2, 0, 0}, nil)
	put(record.Version{2 + 1<<16 + 1, 0, 0}, record.ErrPayload)
	put(record.Version{2 + 1<<16, 0, 0}, nil)
	offer(t, tab, seal(t, "ann", record.Record{Kind: "placement", ID: "uid", Version: record.Version{record.MaxCount - 1, 0, 0}}), record.Fresh)
	put(record.Version{record.MaxCount, 0, 0}, record.ErrPayload)
}

func TestSharedAtItsBound(t *testing.T) {
	tab := table(t, "me", newDisk())
	offer(t, tab, seal(t, "ann", note("a", record.MaxCount-1, "")), record.Fresh)
	if _, err := tab.PutShared("note", "a", nil); !errors.Is(err, record.ErrExhausted) {
		t.Errorf("beyond the bound: %v", err)
	}
}

func TestPutRefuses(t *testing.T) {
	tab := table(t, "me", newDisk())
	if _, err := tab.PutShared("nothing", "a", nil); !errors.Is(err, record.ErrUnknownKind) {
		t.Errorf("an unknown kind: %v", err)
	}
	if _, err := tab.PutShared("advert", idOf("me").String(), nil); !errors.Is(err, record.ErrUnknownKind) {
		t.Errorf("another rule: %v", err)
	}
	if _, err := tab.PutShared("note", "a b", nil); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a bad id: %v", err)
	}
	if _, err := tab.PutShared("note", "a", []byte("bad")); !errors.Is(err, record.ErrPayload) {
		t.Errorf("a bad payload: %v", err)
	}
	if _, err := tab.PutShared("note", "a", make([]byte, record.MaxSize)); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
	if _, err := tab.PutOwned("advert", idOf("ann").String(), nil); !errors.Is(err, record.ErrNotAllowed) {
		t.Errorf("another's key: %v", err)
	}
	stranger := granted(t, "stranger", "root", newDisk())
	if _, err := stranger.PutShared("note", "a", nil); !errors.Is(err, record.ErrNotMember) {
		t.Errorf("a stranger: %v", err)
	}
	if tab.Len() != 0 || stranger.Len() != 0 {
		t.Error("something was kept")
	}
}

func TestIncarnationRises(t *testing.T) {
	disk := newDisk()
	me := idOf("me").String()
	var last record.Version
	for life := range 4 {
		tab := table(t, "me", disk)
		for range 3 {
			s, err := tab.PutOwned("advert", me, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			if !last.Less(s.Version) || s.Version[0] != uint64(life+1) {
				t.Fatalf("life %d: %s after %s", life, s.Version, last)
			}
			last = s.Version
		}
	}
}

// A peer whose database was lost, or set back, must be heard again.
func TestFormerLife(t *testing.T) {
	me := idOf("me").String()
	older := newDisk()
	table(t, "me", older) // what the backup has
	former := newDisk()
	var had record.Signed
	for range 5 {
		tab := table(t, "me", former)
		var err error
		if had, err = tab.PutOwned("advert", me, []byte("former")); err != nil {
			t.Fatal(err)
		}
	}
	for name, disk := range map[string]*disk{"lost": newDisk(), "set back": older.copyOf()} {
		t.Run(name, func(t *testing.T) {
			var published []record.Signed
			tab := tableWith(t, record.Options{Storage: disk, Key: keyOf("me"), Kinds: kinds(), Rights: everyone{},
				Publish: func(s record.Signed) { published = append(published, s) }})
			now, err := tab.PutOwned("advert", me, []byte("now"))
			if err != nil {
				t.Fatal(err)
			}
			if !now.Version.Less(had.Version) {
				t.Fatal("this test does not test what it says")
			}
			offer(t, tab, had, record.Fresh)
			tab.Recheck(time.Unix(100, 0))
			got, ok := tab.Get("advert", me)
			if !ok || string(got.Payload) != "now" || !had.Version.Less(got.Version) {
				t.Fatalf("the table has %s %q", got.Version, got.Payload)
			}
			if len(published) != 2 || published[1].Hash != got.Hash {
				t.Errorf("%d records published", len(published))
			}
			if tab.Recheck(time.Unix(101, 0)); len(published) != 2 {
				t.Error("it was written again without need")
			}
			// The raised incarnation outlives this life.
			if next, err := table(t, "me", disk.copyOf()).PutOwned("advert", me, nil); err != nil || !got.Version.Less(next.Version) {
				t.Errorf("the life after writes %s after %s, %v", next.Version, got.Version, err)
			}
		})
	}
}

func TestReload(t *testing.T) {
	disk := newDisk()
	tab := table(t, "me", disk)
	for i := range 50 {
		if _, err := tab.PutShared("note", fmt.Sprint("n", i%20), []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	offer(t, tab, seal(t, "ann", record.Record{Kind: "later", ID: "a", Payload: []byte("of a later release")}), record.Fresh)
	again := table(t, "me", disk.copyOf())
	sameTables(t, tab, again)
	if again.Bytes() != tab.Bytes() {
		t.Errorf("%d bytes after loading, %d before", again.Bytes(), tab.Bytes())
	}

	// A damaged record is left out, and the others are there.
	for i := range disk.data["r/note/n3"] {
		hurt := disk.copyOf()
		hurt.data["r/note/n3"] = slices.Clone(hurt.data["r/note/n3"])
		hurt.data["r/note/n3"][i] ^= 1
		if again = table(t, "me", hurt); again.Len() != tab.Len()-1 {
			t.Fatalf("%d of %d records after damage to byte %d of one", again.Len(), tab.Len(), i)
		}
	}
}

// What an older release kept without knowing the rule is judged once the kind
// is known.
func TestForeignKindBecomesKnown(t *testing.T) {
	disk := newDisk()
	old := table(t, "me", disk)
	good := seal(t, "ann", record.Record{Kind: "later", ID: "good", Version: record.Version{3, 0, 0}})
	bad := seal(t, "bob", record.Record{Kind: "later", ID: "bad", Version: record.Version{3, 0, 0}})
	offer(t, old, good, record.Fresh)
	offer(t, old, bad, record.Fresh)

	later := append(kinds(), record.Kind{Name: "later", Rule: record.Shared, Admit: func(r record.Record) record.Verdict {
		if r.Author == idOf("ann") {
			return record.Allowed
		}
		return record.Denied
	}})
	for range 2 { // the first start after the update, and the one after that
		tab := tableWith(t, record.Options{Storage: disk, Key: keyOf("me"), Kinds: later, Rights: everyone{}})
		tab.Recheck(time.Unix(100, 0))
		if _, ok := tab.Get("later", "good"); !ok {
			t.Error("a good record of the new kind was lost")
		}
		if _, ok := tab.Latest("later", "bad"); ok {
			t.Error("a record that breaks the new kind's rule stayed")
		}
	}
	// And back, where a newer one comes in, and forth again.
	back := table(t, "me", disk)
	if back.Len() != 2 {
		t.Errorf("the older release finds %d records", back.Len())
	}
	newer := seal(t, "ann", record.Record{Kind: "later", ID: "good", Version: record.Version{4, 0, 0}})
	offer(t, back, newer, record.Fresh)
	for range 2 {
		tab := tableWith(t, record.Options{Storage: disk, Key: keyOf("me"), Kinds: later, Rights: everyone{}})
		tab.Recheck(time.Unix(100, 0))
		if got, _ := tab.Get("later", "good"); got.Version != newer.Version {
			t.Errorf("version %s after going back and forth", got.Version)
		}
		if again := table(t, "me", disk.copyOf()); again.Len() != 2 {
			t.Errorf("the older release finds %d records", again.Len())
		} else if got, _ := again.Get("later", "good"); got.Version != newer.Version {
			t.Errorf("the older release finds version %s", got.Version)
		}
	}
}

type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }
func (refusal) Reason() string  { return "disk_full" }

func TestStorageFails(t *testing.T) {
	disk := newDisk()
	tab := table(t, "me", disk)
	if _, err := tab.PutShared("note", "a", []byte("before")); err != nil {
		t.Fatal(err)
	}
	before := dump(tab)
	signal, stop := tab.Subscribe()
	defer stop()
	disk.fail = func() (error, bool) { return refusal{os.ErrPermission}, false }
	_, err := tab.PutShared("note", "a", []byte("after"))
	if !errors.Is(err, record.ErrStorage) || !errors.Is(err, os.ErrPermission) {
		t.Errorf("writing: %v", err)
	}
	var r interface{ Reason() string }
	if !errors.As(err, &r) || r.Reason() != "disk_full" {
		t.Errorf("the storage's own reason is lost: %v", r)
	}
	if out, err := tab.Offer(seal(t, "ann", note("b", 1, "x"))); out != record.Refused || !errors.Is(err, record.ErrStorage) {
		t.Errorf("offering: %v, %v", out, err)
	}
	if dump(tab) != before {
		t.Errorf("what was not stored is shown:\n%s", dump(tab))
	}
	select {
	case <-signal:
		t.Error("a change was signalled")
	default:
	}
	if _, err := record.NewTable(record.Options{Storage: disk, Key: keyOf("me"), Kinds: kinds(), Rights: everyone{}}); !errors.Is(err, record.ErrStorage) {
		t.Errorf("starting: %v", err)
	}
}

func TestLimits(t *testing.T) {
	tab := tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("me"), Kinds: kinds(), Rights: everyone{}, MaxRecords: 2, MaxBytes: 4000, Shares: 1})
	put := func(id string, size int, want error) {
		t.Helper()
		if _, err := tab.PutShared("note", id, make([]byte, size)); !errors.Is(err, want) {
			t.Errorf("%s of %d bytes: %v", id, size, err)
		}
	}
	put("a", 10, nil)
	put("b", 10, nil)
	put("c", 10, record.ErrFull)
	put("a", 1000, nil)
	put("b", 1000, record.ErrFull)
	put("a", 20, nil)
	put("b", 1000, nil)
	if out, err := tab.Offer(seal(t, "ann", note("c", 1, ""))); out != record.Refused || !errors.Is(err, record.ErrFull) {
		t.Errorf("offered over the limit: %v, %v", out, err)
	}
	if tab.Bytes() > 4000 || tab.Len() != 2 {
		t.Errorf("%d records, %d bytes", tab.Len(), tab.Bytes())
	}
}

func TestHeldUntilGranted(t *testing.T) {
	tab := granted(t, "me", "root", newDisk())
	waits := seal(t, "ann", note("a", 1, "from ann"))
	offer(t, tab, waits, record.Held)
	offer(t, tab, waits, record.Held)
	if tab.Held() != 1 || tab.Len() != 0 {
		t.Fatalf("%d held, %d kept", tab.Held(), tab.Len())
	}
	// bob waits for ann's grant, which waits for root's.
	offer(t, tab, seal(t, "bob", note("b", 1, "from bob")), record.Held)
	offer(t, tab, grant(t, "ann", "bob"), record.Held)
	if kept := tab.Recheck(time.Unix(100, 0)); len(kept) != 0 || tab.Held() != 3 {
		t.Fatalf("%d kept, %d held without a grant", len(kept), tab.Held())
	}
	offer(t, tab, grant(t, "root", "ann"), record.Fresh)
	if kept := tab.Recheck(time.Unix(101, 0)); len(kept) != 3 || tab.Held() != 0 || tab.Len() != 4 {
		t.Errorf("%d kept, %d held, %d in all", len(kept), tab.Held(), tab.Len())
	}
}

func TestHeldNotForEver(t *testing.T) {
	tab := granted(t, "me", "root", newDisk())
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	tab.Recheck(at(0))
	offer(t, tab, seal(t, "ann", note("a", 1, "")), record.Held)
	tab.Recheck(at(1))
	offer(t, tab, seal(t, "ann", note("b", 1, "")), record.Held)
	for _, step := range []struct{ at, held int }{{2, 2}, {30, 2}, {31, 1}, {32, 0}} {
		if tab.Recheck(at(step.at)); tab.Held() != step.held {
			t.Errorf("%d held after %d s, want %d", tab.Held(), step.at, step.held)
		}
	}
}

func TestHeldIsBounded(t *testing.T) {
	tab := granted(t, "me", "root", newDisk())
	for i := range record.MaxHeld + 10 {
		offer(t, tab, seal(t, "ann", note(fmt.Sprint("n", i), 1, "")), record.Held)
	}
	if tab.Held() != record.MaxHeld {
		t.Errorf("%d held", tab.Held())
	}
	for i := range 2 * record.MaxHeldBytes / 60000 {
		offer(t, tab, seal(t, "ann", note(fmt.Sprint("m", i), 1, string(make([]byte, 60000)))), record.Held)
	}
	if most := record.MaxHeldBytes / 60000; tab.Held() > most || tab.Held() < most-1 {
		t.Errorf("%d large records held, at most %d fit", tab.Held(), most)
	}
	offer(t, tab, grant(t, "root", "ann"), record.Fresh)
	tab.Recheck(time.Unix(100, 0))
	if _, ok := tab.Get("note", fmt.Sprint("m", 2*record.MaxHeldBytes/60000-1)); !ok {
		t.Error("the newest of the held records is not there")
	}
}

func TestSubscribe(t *testing.T) {
	tab := table(t, "me", newDisk())
	signal, stop := tab.Subscribe()
	pending := func() bool {
		select {
		case <-signal:
			return true
		default:
			return false
		}
	}
	if pending() {
		t.Error("a signal without a change")
	}
	for range 3 {
		if _, err := tab.PutShared("note", "a", nil); err != nil {
			t.Fatal(err)
		}
	}
	if !pending() || pending() {
		t.Error("three changes are not one signal")
	}
	s, _ := tab.Get("note", "a")
	offer(t, tab, s, record.Same)
	if pending() {
		t.Error("a signal for what was known")
	}
	stop()
	if _, err := tab.PutShared("note", "a", nil); err != nil {
		t.Fatal(err)
	}
	if pending() {
		t.Error("a signal after the end")
	}
}

// Rights and Publish may use the table, also to write.
func TestReentrance(t *testing.T) {
	var tab *record.Table
	wrote := false
	rights := rightsFunc(func(author peer.ID, _ record.Rule, kind, id string) record.Verdict {
		if tab != nil {
			tab.List(kind)
			tab.Root()
		}
		return record.Allowed
	})
	tab = tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("me"), Kinds: kinds(), Rights: rights, Publish: func(s record.Signed) {
		if _, ok := tab.Get(s.Kind, s.ID); !ok {
			t.Error("published before it was visible")
		}
		if !wrote {
			wrote = true
			if _, err := tab.PutShared("note", "second", nil); err != nil {
				t.Error(err)
			}
		}
	}})
	if _, err := tab.PutShared("note", "first", nil); err != nil {
		t.Fatal(err)
	}
	if tab.Len() != 2 {
		t.Errorf("%d records", tab.Len())
	}
}

// A record that is deleted keeps its last payload, also one that was written
// while the deletion was on its way.
func TestDeleteKeepsTheLastPayload(t *testing.T) {
	var tab *record.Table
	busy := false
	tab = tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("me"), Kinds: kinds(), Rights: rightsFunc(
		func(peer.ID, record.Rule, string, string) record.Verdict {
			if busy {
				busy = false
				if _, err := tab.PutShared("note", "a", []byte("last")); err != nil {
					t.Error(err)
				}
			}
			return record.Allowed
		})})
	if _, err := tab.PutShared("note", "a", []byte("first")); err != nil {
		t.Fatal(err)
	}
	busy = true
	gone, err := tab.DeleteShared("note", "a")
	if err != nil || string(gone.Payload) != "last" {
		t.Errorf("deleted with %q, %v", gone.Payload, err)
	}
}

type rightsFunc func(peer.ID, record.Rule, string, string) record.Verdict

func (f rightsFunc) May(author peer.ID, rule record.Rule, kind, id string) record.Verdict {
	return f(author, rule, kind, id)
}

// Writers that come while the disk is busy share the next write.
func TestConcurrentWritersShareTheDisk(t *testing.T) {
	disk := newDisk()
	tab := table(t, "me", disk)
	const writers = 64
	disk.gate, disk.reached = make(chan struct{}), make(chan struct{}, writers)
	before := disk.applies
	versions := make(chan record.Version, writers)
	var group sync.WaitGroup
	write := func() {
		s, err := tab.PutShared("note", "a", nil)
		if err != nil {
			t.Error(err)
		}
		versions <- s.Version
	}
	group.Go(write)
	<-disk.reached // the first is at the disk, and held there
	for range writers - 1 {
		group.Go(write)
	}
	for deadline := time.Now().Add(10 * time.Second); tab.Queued() < writers-1; {
		if time.Now().After(deadline) {
			t.Fatalf("%d writers queue", tab.Queued())
		}
		runtime.Gosched()
	}
	close(disk.gate)
	group.Wait()
	close(versions)
	seen := make(map[record.Version]bool)
	for v := range versions {
		seen[v] = true
	}
	if got, _ := tab.Get("note", "a"); len(seen) != writers || got.Version[0] != writers {
		t.Errorf("%d versions for %d writers, the last is %s", len(seen), writers, got.Version)
	}
	if n := disk.applies - before; n != 2 {
		t.Errorf("%d writes to disk, want 2: the first, and all that queued behind it", n)
	}
}

func TestDigestFollowsChanges(t *testing.T) {
	tab := table(t, "me", newDisk())
	roots := map[record.Hash]bool{tab.Root(): true}
	if tab.Buckets() != [256]record.Hash{} {
		t.Error("an empty table's buckets are not zero")
	}
	for i := range 300 {
		if _, err := tab.PutShared("note", fmt.Sprint(i%100), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if roots[tab.Root()] {
			t.Fatal("a change left the root as it was, or brought an old one back")
		}
		roots[tab.Root()] = true
	}
	items := 0
	for i, b := range tab.Buckets() {
		got := tab.Bucket(i)
		if (len(got) == 0) != (b == record.Hash{}) {
			t.Errorf("bucket %d has %d items and the digest %x", i, len(got), b)
		}
		for _, it := range got {
			raw, ok := tab.Raw(it.Key)
			if s, err := record.Open(raw); !ok || err != nil || s.Hash != it.Hash || s.Version != it.Version {
				t.Errorf("item %s is not the record", it.Key)
			}
		}
		items += len(got)
	}
	if items != tab.Len() {
		t.Errorf("%d items for %d records", items, tab.Len())
	}
}
