package record_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/p2p/record"
)

// fill writes the same n records into each table.
func fill(t testing.TB, n int, tabs ...*record.Table) {
	t.Helper()
	for i := range n {
		s := seal(t, "ann", note(fmt.Sprintf("n%06d", i), 1, fmt.Sprintf("the text of note %d, some forty bytes long", i)))
		for _, tab := range tabs {
			offer(t, tab, s, record.Fresh)
		}
	}
}

func mustSync(t testing.TB, a, b *record.Table) (sa, sb record.Stats) {
	t.Helper()
	sa, sb, err := syncTables(a, b, record.SyncOptions{}, record.SyncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sa.BytesIn != sb.BytesOut || sa.BytesOut != sb.BytesIn || sa.Sent != sb.Received || sa.Received != sb.Sent {
		t.Fatalf("the two sides tell different stories:\n%+v\n%+v", sa, sb)
	}
	return sa, sb
}

func TestSyncCost(t *testing.T) {
	a, b := table(t, "a", newDisk()), table(t, "b", newDisk())
	fill(t, 1000, a, b)
	sa, sb := mustSync(t, a, b)
	if !sa.Equal || !sb.Equal || sa.BytesIn > 48 || sa.BytesOut > 48 {
		t.Errorf("equal tables: %+v", sa)
	}
	if _, err := a.PutShared("note", "new", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutShared("note", "n000500", []byte("y")); err != nil {
		t.Fatal(err)
	}
	sa, sb = mustSync(t, a, b)
	sameTables(t, a, b)
	if sa.Sent != 1 || sa.Received != 1 || sa.Kept != 1 || sb.Kept != 1 {
		t.Errorf("two differences: %+v, %+v", sa, sb)
	}
	if sum := sa.BytesIn + sa.BytesOut; sum > 4000 {
		t.Errorf("two differences among a thousand records cost %d bytes", sum)
	}
}

func TestSyncFromNothing(t *testing.T) {
	for _, n := range []int{1, 300, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			full := table(t, "a", newDisk())
			fill(t, n, full)
			for _, initiator := range []bool{true, false} {
				disk := newDisk()
				empty := table(t, "b", disk)
				before := disk.applies
				if initiator {
					mustSync(t, empty, full)
				} else {
					mustSync(t, full, empty)
				}
				sameTables(t, full, empty)
				if writes := disk.applies - before; writes > 1+n/500 {
					t.Errorf("%d writes to disk for %d records", writes, n)
				}
			}
		})
	}
}

// Large records fill frames to their bounds.
func TestSyncLargeRecords(t *testing.T) {
	a, b := table(t, "a", newDisk()), table(t, "b", newDisk())
	for i := range 40 {
		offer(t, a, seal(t, "ann", note(fmt.Sprint("a", i), 1, string(make([]byte, 65000)))), record.Fresh)
		offer(t, b, seal(t, "ann", note(fmt.Sprint("b", i), 1, string(make([]byte, 65000)))), record.Fresh)
	}
	sa, _ := mustSync(t, a, b)
	sameTables(t, a, b)
	if sa.Sent != 40 || sa.Received != 40 {
		t.Errorf("%+v", sa)
	}
}

// More wishes and items than one frame takes.
func TestSyncManyItems(t *testing.T) {
	wide := func(name string) *record.Table {
		return tableWith(t, record.Options{Storage: newDisk(), Key: keyOf(name), Kinds: kinds(), Rights: everyone{}, Shares: 1})
	}
	a, b := wide("a"), wide("b")
	fill(t, 20000, a)
	fill(t, 1, b)
	sa, _ := mustSync(t, a, b)
	sameTables(t, a, b)
	if sa.Sent != 19999 {
		t.Errorf("%+v", sa)
	}
}

// The grants come after what they allow, in a chain, in both directions.
func TestSyncGrantsComeLater(t *testing.T) {
	reversed := kinds()
	slices.Reverse(reversed)
	for _, initiator := range []bool{true, false} {
		full := granted(t, "root", "root", newDisk())
		g := &grants{root: idOf("root")}
		g.table = tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("me"), Kinds: reversed, Rights: g})
		var fresh []record.Signed
		by := "root"
		for i := range 8 {
			to := fmt.Sprint("chain", i)
			offer(t, full, grant(t, by, to), record.Fresh)
			offer(t, full, seal(t, to, note(to, 1, "")), record.Fresh)
			by = to
		}
		o := record.SyncOptions{Fresh: func(s record.Signed) { fresh = append(fresh, s) }}
		var got record.Stats
		var err error
		if initiator {
			got, _, err = syncTables(g.table, full, o, record.SyncOptions{})
		} else {
			_, got, err = syncTables(full, g.table, record.SyncOptions{}, o)
		}
		if err != nil {
			t.Fatal(err)
		}
		sameTables(t, full, g.table)
		if got.Kept != 16 || got.Held != 0 || got.Refused != 0 || len(fresh) != 16 {
			t.Errorf("%+v, %d passed on", got, len(fresh))
		}
	}
}

// What stays without rights is held, and kept once they are known.
func TestSyncHolds(t *testing.T) {
	full, g := table(t, "full", newDisk()), granted(t, "me", "root", newDisk())
	fill(t, 10, full)
	s, _ := mustSync(t, g, full)
	if s.Held != 10 || s.Kept != 0 || g.Held() != 10 {
		t.Errorf("%+v", s)
	}
	offer(t, g, grant(t, "root", "ann"), record.Fresh)
	if kept := g.Recheck(time.Unix(100, 0)); len(kept) != 10 {
		t.Errorf("%d kept", len(kept))
	}
}

// Equal versions with different content cross in both directions.
func TestSyncTies(t *testing.T) {
	one, two := seal(t, "ann", note("a", 1, "x")), seal(t, "ann", note("a", 1, "y"))
	for range 2 {
		a, b := table(t, "a", newDisk()), table(t, "b", newDisk())
		offer(t, a, one, record.Fresh)
		offer(t, b, two, record.Fresh)
		mustSync(t, a, b)
		sameTables(t, a, b)
		one, two = two, one
	}
}

// A stream that breaks after the grant came loses nothing that came before.
func TestSyncBreaksAfterGrant(t *testing.T) {
	tab := granted(t, "me", "root", newDisk())
	if _, err := tab.Offer(seal(t, "root", note("mine", 1, ""))); err != nil {
		t.Fatal(err)
	}
	said := slices.Concat(framed(msg{1: 1, 3: make([]byte, 32), 4: make([]byte, 2048)}),
		framed(msg{1: 3, 2: true, 8: [][]byte{seal(t, "ann", note("a", 1, "x")).Raw, grant(t, "root", "ann").Raw}}))
	stats, err := record.Sync(context.Background(), script{bytes.NewReader(said), io.Discard}, tab, true, record.SyncOptions{})
	if !errors.Is(err, io.ErrUnexpectedEOF) || stats.Kept != 2 || tab.Len() != 3 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// What could not be stored is not reported as known, also not its double.
func TestSyncStorageFails(t *testing.T) {
	disk := newDisk()
	tab := table(t, "me", disk)
	offer(t, tab, seal(t, "root", note("mine", 1, "")), record.Fresh)
	disk.fail = func() (error, bool) { return errors.New("broken"), false }
	one, two := seal(t, "ann", note("a", 1, "x")), seal(t, "ann", note("b", 1, "x"))
	said := slices.Concat(framed(msg{1: 1, 3: make([]byte, 32), 4: make([]byte, 2048)}),
		framed(msg{1: 3, 8: [][]byte{one.Raw, two.Raw}}), framed(msg{1: 5}))
	var causes []error
	o := record.SyncOptions{Refused: func(_ record.Signed, err error) { causes = append(causes, err) }}
	stats, err := record.Sync(context.Background(), script{bytes.NewReader(said), io.Discard}, tab, true, o)
	if err != nil || stats.Refused != 2 || tab.Len() != 1 || len(causes) != 2 || !errors.Is(causes[1], record.ErrStorage) {
		t.Errorf("%+v, %v, %v", stats, err, causes)
	}
	for _, err := range tab.OfferAll(one, one) {
		if !errors.Is(err, record.ErrStorage) {
			t.Errorf("one of two of the same: %v", err)
		}
	}
}

// Two sides that each refuse what the other has end in order.
func TestSyncRefusals(t *testing.T) {
	lax, strict := kinds(), kinds()
	lax[1].Check, lax[1].Admit = nil, nil
	a := tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("a"), Kinds: lax, Rights: everyone{}})
	b := tableWith(t, record.Options{Storage: newDisk(), Key: keyOf("b"), Kinds: strict, Rights: everyone{}})
	offer(t, a, seal(t, "ann", note("x", 1, "bad")), record.Fresh)
	offer(t, a, seal(t, "ann", note("y", 1, "good")), record.Fresh)
	_, sb := mustSync(t, a, b)
	if sb.Refused != 1 || sb.Kept != 1 {
		t.Errorf("%+v", sb)
	}
}

func TestSyncEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() {
		io.ReadFull(there, make([]byte, 10)) // part of the greeting; then silence
		cancel(errors.New("enough"))
	}()
	_, err := record.Sync(ctx, here, table(t, "a", newDisk()), true, record.SyncOptions{})
	if err == nil || err.Error() != "comparing records: enough" {
		t.Errorf("called off: %v", err)
	}
	if _, err := record.Sync(ctx, here, table(t, "a", newDisk()), false, record.SyncOptions{}); err == nil {
		t.Error("begun after the end")
	}
}

func TestSyncLimit(t *testing.T) {
	full := table(t, "a", newDisk())
	fill(t, 3000, full)
	for _, initiator := range []bool{true, false} {
		small := table(t, "b", newDisk())
		limit := record.SyncOptions{MaxBytes: 300_000}
		var err error
		if initiator {
			_, _, err = syncTables(small, full, limit, record.SyncOptions{})
		} else {
			_, _, err = syncTables(full, small, record.SyncOptions{}, limit)
		}
		if !errors.Is(err, record.ErrSyncLimit) {
			t.Errorf("initiator=%v: %v", initiator, err)
		}
		if blames(err) == false {
			t.Errorf("nobody is at fault: %v", err)
		}
	}
}

func blames(err error) bool {
	return errors.Is(err, record.ErrProtocol) || errors.Is(err, record.ErrSyncLimit) || errors.Is(err, record.ErrInvalid)
}

// msg is a frame as a hostile peer would write it.
type msg map[int]any

func framed(m any) []byte {
	body := record.EncodeCBOR(m)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// script is a peer that says its lines whatever it hears.
type script struct {
	io.Reader
	io.Writer
}

func TestSyncHostile(t *testing.T) {
	const hello, items, answer, records, done = 1, 2, 3, 4, 5
	root, buckets, differ := make([]byte, 32), make([]byte, 2048), bytes.Repeat([]byte{0xff}, 32)
	item := func(key string) []any { return []any{key, 1, 0, 0, make([]byte, 8)} }
	good := seal(t, "ann", note("a", 1, "x")).Raw
	forged := slices.Clone(good)
	forged[len(forged)-1] ^= 1
	for name, tc := range map[string]struct {
		initiator bool // the side under test
		lines     [][]byte
		blame     bool
		kept      int
	}{
		"silence":                 {true, nil, false, 0},
		"half a frame":            {true, [][]byte{framed(msg{1: hello, 3: root})[:20]}, false, 0},
		"a frame of 4 GiB":        {true, [][]byte{{0xff, 0xff, 0xff, 0xff}}, true, 0},
		"not CBOR":                {true, [][]byte{{0, 0, 0, 2, 0xff, 0xff}}, true, 0},
		"an empty frame":          {true, [][]byte{{0, 0, 0, 0}}, true, 0},
		"another turn":            {true, [][]byte{framed(msg{1: done})}, true, 0},
		"turn unknown":            {true, [][]byte{framed(msg{1: 99})}, true, 0},
		"no root":                 {true, [][]byte{framed(msg{1: hello})}, true, 0},
		"a short root":            {true, [][]byte{framed(msg{1: hello, 3: root[:31]})}, true, 0},
		"no buckets":              {true, [][]byte{framed(msg{1: hello, 3: root})}, true, 0},
		"short buckets":           {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets[:9]})}, true, 0},
		"an endless greeting":     {true, [][]byte{framed(msg{1: hello, 2: true, 3: root, 4: buckets})}, true, 0},
		"a wish too high":         {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 7: []int{1}})}, true, 0},
		"a wish twice":            {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 7: []int{0, 0}})}, true, 0},
		"a negative wish":         {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 7: []int{-1}})}, true, 0},
		"empty frames for ever":   {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 2: true})}, true, 0},
		"good, then forged":       {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 8: [][]byte{good, forged}})}, true, 1},
		"good, then the end":      {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 8: [][]byte{good}})}, false, 1},
		"a record too large":      {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 8: [][]byte{make([]byte, record.MaxSize+1)}})}, true, 0},
		"greeted with nothing":    {false, [][]byte{framed(msg{1: hello})}, true, 0},
		"no differing buckets":    {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items})}, true, 0},
		"short differing buckets": {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ[:31]})}, true, 0},
		"an item twice":           {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{item("a"), item("a")}})}, true, 0},
		"an item without tag":     {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{[]any{"a", 1, 0, 0, []byte{}}}})}, true, 0},
		"an item of six":          {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{append(item("a"), 1)}})}, true, 0},
		"an item of four":         {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{item("a")[:4]}})}, true, 0},
		"a key too long":          {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{item(string(make([]byte, 300)))}})}, true, 0},
		"items for ever":          {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 2: true, 5: differ})}, true, 0},
		"differing twice":         {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 2: true, 5: differ, 6: []any{item("a")}}), framed(msg{1: items, 5: differ})}, true, 0},
		"more than was wanted":    {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ}), framed(msg{1: records, 8: [][]byte{good}})}, true, 0},
		"one in place of another": {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{item("note/b")}}), framed(msg{1: records, 8: [][]byte{good}})}, true, 0},
		"one twice":               {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{item("note/a"), item("note/b")}}), framed(msg{1: records, 8: [][]byte{good, good}})}, true, 1},
		"an answer twice":         {true, [][]byte{framed(msg{1: hello, 3: root, 4: buckets}), framed(msg{1: answer, 8: [][]byte{good, good}})}, true, 1},
		"fewer than was wanted":   {false, [][]byte{framed(msg{1: hello, 3: root}), framed(msg{1: items, 5: differ, 6: []any{item("note/a"), item("note/b")}}), framed(msg{1: records, 8: [][]byte{good}})}, false, 1},
		"unknown fields": {false, [][]byte{framed(msg{1: hello, 3: root, 99: "later"}), framed(msg{1: items, 5: differ, 6: []any{item("note/a")}, 98: []int{1}}),
			framed(msg{1: records, 8: [][]byte{good}, 97: nil})}, false, 1},
	} {
		tab := table(t, "me", newDisk())
		if _, err := tab.PutShared("note", "mine", nil); err != nil {
			t.Fatal(err)
		}
		rw := script{bytes.NewReader(bytes.Join(tc.lines, nil)), io.Discard}
		_, err := record.Sync(context.Background(), rw, tab, tc.initiator, record.SyncOptions{})
		if ends := name == "fewer than was wanted" || name == "unknown fields"; (err == nil) != ends {
			t.Errorf("%s: %v", name, err)
		}
		if blames(err) != tc.blame {
			t.Errorf("%s: blame=%v for %v", name, blames(err), err)
		}
		if tab.Len() != 1+tc.kept {
			t.Errorf("%s: %d records were kept", name, tab.Len()-1)
		}
	}
}

// What is below what was listed, by either side, is dropped and counted.
func TestSyncLow(t *testing.T) {
	old := seal(t, "ann", note("a", 1, "old"))
	for _, initiator := range []bool{true, false} {
		tab := table(t, "me", newDisk())
		var said []byte
		if initiator {
			offer(t, tab, seal(t, "ann", note("a", 2, "new")), record.Fresh)
			said = slices.Concat(framed(msg{1: 1, 3: make([]byte, 32), 4: make([]byte, 2048)}), framed(msg{1: 3, 8: [][]byte{old.Raw}}), framed(msg{1: 5}))
		} else {
			offer(t, tab, seal(t, "ann", note("mine", 1, "")), record.Fresh)
			said = slices.Concat(framed(msg{1: 1, 3: make([]byte, 32)}),
				framed(msg{1: 2, 5: bytes.Repeat([]byte{0xff}, 32), 6: []any{[]any{"note/a", 2, 0, 0, make([]byte, 8)}}}),
				framed(msg{1: 4, 8: [][]byte{old.Raw}}))
		}
		stats, err := record.Sync(context.Background(), script{bytes.NewReader(said), io.Discard}, tab, initiator, record.SyncOptions{})
		if got, _ := tab.Latest("note", "a"); err != nil || stats.Low != 1 || stats.Kept != 0 || got.Version == old.Version {
			t.Errorf("initiator=%v: %+v, %v, kept %s", initiator, stats, err, got.Version)
		}
	}
}

// meanwhile is a reader of nothing, and what happens when it is reached.
type meanwhile func()

func (f meanwhile) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// What was taken away during an exchange does not make this peer send a lower
// record than was listed, by itself or by the other side.
func TestSyncSendsNothingLow(t *testing.T) {
	for _, initiator := range []bool{true, false} {
		for _, void := range []bool{false, true} {
			tab := table(t, "me", newDisk())
			offer(t, tab, seal(t, "thief", note("a", 3, "")), record.Fresh)
			then := meanwhile(func() {
				if !void {
					return
				}
				if err := tab.Void(func(r record.Record) bool { return r.Author == idOf("thief") }); err != nil {
					t.Error(err)
				}
				offer(t, tab, seal(t, "ann", note("a", 1, "")), record.Fresh)
			})
			before := framed(msg{1: 1, 3: make([]byte, 32), 4: make([]byte, 2048)})
			after := slices.Concat(framed(msg{1: 3, 7: []any{0}}), framed(msg{1: 5}))
			if !initiator {
				before = slices.Concat(framed(msg{1: 1, 3: make([]byte, 32)}),
					framed(msg{1: 2, 2: true, 5: bytes.Repeat([]byte{0xff}, 32), 6: []any{[]any{"note/a", 2, 0, 0, make([]byte, 8)}}}))
				after = slices.Concat(framed(msg{1: 2}), framed(msg{1: 4}))
			}
			said := io.MultiReader(bytes.NewReader(before), then, bytes.NewReader(after))
			stats, err := record.Sync(context.Background(), script{said, io.Discard}, tab, initiator, record.SyncOptions{})
			want := 1
			if void {
				want = 0
			}
			if err != nil || stats.Sent != want {
				t.Errorf("initiator=%v void=%v: %+v, %v", initiator, void, stats, err)
			}
		}
	}
}

// A peer that lists more than any table holds is cut off.
func TestSyncEndlessItems(t *testing.T) {
	pr, pw := io.Pipe()
	go func() {
		pw.Write(framed(msg{1: 1, 3: make([]byte, 32)}))
		for n := 0; ; n++ {
			list := make([]any, 8000)
			for i := range list {
				list[i] = []any{fmt.Sprint(n, "/", i), 1, 0, 0, make([]byte, 8)}
			}
			m := msg{1: 2, 2: true, 6: list}
			if n == 0 {
				m[5] = make([]byte, 32)
			}
			if _, err := pw.Write(framed(m)); err != nil {
				return
			}
		}
	}()
	tab := table(t, "me", newDisk())
	if _, err := tab.PutShared("note", "mine", nil); err != nil {
		t.Fatal(err)
	}
	_, err := record.Sync(context.Background(), script{pr, io.Discard}, tab, false, record.SyncOptions{})
	pr.Close()
	if !errors.Is(err, record.ErrSyncLimit) || !strings.Contains(err.Error(), "200000 items") {
		t.Errorf("%v", err)
	}
}

func FuzzFrame(f *testing.F) {
	for _, m := range []msg{
		{1: 1, 3: make([]byte, 32), 4: make([]byte, 2048)},
		{1: 2, 2: true, 5: make([]byte, 32), 6: []any{[]any{"note/a", 1, 2, 3, make([]byte, 8)}}},
		{1: 3, 7: []int{0, 1, 2}, 8: [][]byte{{1}, {2}}},
		{1: 5, 77: "later"},
	} {
		f.Add(record.EncodeCBOR(m))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if parts, err := record.CheckFrame(body); err == nil {
			if parts > len(body) {
				t.Fatalf("%d parts in %d bytes", parts, len(body))
			}
		} else if !blames(err) {
			t.Fatalf("a bad frame that is nobody's fault: %v", err)
		}
	})
}

// FuzzSync lets a peer say anything, framed or not, to either side.
func FuzzSync(f *testing.F) {
	good := seal(f, "ann", note("a", 1, "x")).Raw
	hello := framed(msg{1: 1, 3: make([]byte, 32), 4: make([]byte, 2048)})
	f.Add(true, hello)
	f.Add(true, slices.Concat(hello, framed(msg{1: 3, 7: []int{0}, 8: [][]byte{good}}), framed(msg{1: 5})))
	f.Add(false, slices.Concat(hello, framed(msg{1: 2, 5: bytes.Repeat([]byte{0xff}, 32), 6: []any{[]any{"note/a", 1, 0, 0, make([]byte, 8)}}}),
		framed(msg{1: 4, 8: [][]byte{good}})))
	f.Fuzz(func(t *testing.T, initiator bool, said []byte) {
		tab := table(t, "me", newDisk())
		if _, err := tab.PutShared("note", "mine", nil); err != nil {
			t.Fatal(err)
		}
		stats, err := record.Sync(context.Background(), script{bytes.NewReader(said), io.Discard}, tab, initiator, record.SyncOptions{})
		if stats.BytesIn > int64(len(said)) || tab.Len() != 1+stats.Kept {
			t.Fatalf("%+v of %d bytes, %d records (%v)", stats, len(said), tab.Len(), err)
		}
		if mine, ok := tab.Get("note", "mine"); !ok || mine.Author != idOf("me") {
			t.Fatal("a record of this peer was lost")
		}
	})
}

// FuzzBody signs anything in the place of a record's body.
func FuzzBody(f *testing.F) {
	f.Add(record.EncodeCBOR(msg{1: "note", 2: "a", 3: []int{1, 0, 0}, 5: []byte("x")}))
	f.Add(record.EncodeCBOR(msg{1: "note", 2: "a", 3: []int{1, 0}, 4: true, 9: "later"}))
	f.Add(record.EncodeCBOR(msg{1: 1, 2: nil, 3: "x"}))
	key := keyOf("ann")
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := record.SealBody(body, key)
		if err != nil {
			t.Skip()
		}
		s, err := record.Open(raw)
		if err != nil {
			if !errors.Is(err, record.ErrInvalid) {
				t.Fatalf("%v does not say who is at fault", err)
			}
			return
		}
		if s.Kind == "" || s.ID == "" || len(s.Kind) > record.MaxKind || len(s.ID) > record.MaxID {
			t.Fatalf("opened with the key %q", s.Key())
		}
		a := table(t, "a", newDisk())
		if out, _ := a.Offer(s); out != record.Fresh {
			return
		}
		// What one keeps passes to the next, unknown fields and all.
		b := table(t, "b", newDisk())
		mustSync(t, a, b)
		sameTables(t, a, b)
	})
}
