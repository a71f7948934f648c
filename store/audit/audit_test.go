package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/store"
)

func openLog(t *testing.T, change func(*Options)) (*Log, *store.DB, *bytes.Buffer) {
	t.Helper()
	db, err := store.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var said bytes.Buffer // Read when Run has ended.
	o := Options{Space: db.Space("audit"), Log: slog.New(slog.NewTextHandler(&said, nil))}
	if change != nil {
		change(&o)
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l, db, &said
}

// runLog works until stop is called, which waits for it.
func runLog(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func row(i int) Row { return Row{ID: fmt.Sprintf("req-%d", i), Key: "abc", Status: 200} }

func ids(p Page) string {
	var list []string
	for _, r := range p.Rows {
		list = append(list, strings.TrimPrefix(r.ID, "req-"))
	}
	return strings.Join(list, " ")
}

func must(t *testing.T) func(Page, error) Page {
	return func(p Page, err error) Page {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// Rows are found whether they are on disk yet or not, in the order in which they came,
// and each once.
func TestRowsAreFound(t *testing.T) {
	l, db, _ := openLog(t, nil)
	ok := must(t)
	for i := range 5 {
		l.Add(row(i))
	}
	check := func(where string) {
		t.Helper()
		if got := ids(ok(l.Tail(3))); got != "2 3 4" {
			t.Errorf("%s: the last three are %q", where, got)
		}
		if got := ids(ok(l.Find(t.Context(), "req-1"))); got != "1" {
			t.Errorf("%s: found %q", where, got)
		}
		if got := ids(ok(l.Find(t.Context(), "req"))); got != "" {
			t.Errorf("%s: found by a part of its id: %q", where, got)
		}
		first := ok(l.Since(0, 2))
		if got := ids(first); got != "0 1" {
			t.Errorf("%s: the first two are %q", where, got)
		}
		rest := ok(l.Since(first.Next, 100))
		if got := ids(rest); got != "2 3 4" {
			t.Errorf("%s: after two come %q", where, got)
		}
		if got := ids(ok(l.Since(rest.Next, 100))); got != "" {
			t.Errorf("%s: after the last come %q", where, got)
		}
		if got := ids(ok(l.Since(^uint64(0), 100))); got != "" {
			t.Errorf("%s: after the end of time come %q", where, got)
		}
	}
	check("in memory")
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	check("on disk")
	if n, err := db.Space("audit").Count(); err != nil || n != 5 {
		t.Fatalf("%d rows on disk, %v", n, err)
	}
	last := ok(l.Tail(1)).Next
	l.Add(row(5))
	if got := ids(ok(l.Tail(3))); got != "3 4 5" {
		t.Errorf("the last three, of which one is in memory: %q", got)
	}
	if got := ids(ok(l.Since(last, 9))); got != "5" {
		t.Errorf("new is %q", got)
	}
}

// What Run was told to end with is there after a start, and marks go on behind it.
func TestRowsOutliveARestart(t *testing.T) {
	l, db, _ := openLog(t, nil)
	stop := runLog(t, l)
	for i := range 1000 { // More than a group.
		l.Add(row(i))
	}
	stop()
	before, err := l.Tail(1)
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(Options{Space: db.Space("audit")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := again.Since(0, MostRows)
	if err != nil || len(p.Rows) != 1000 || p.Next != before.Next {
		t.Fatalf("%d rows, next %d, want that of %d (%v)", len(p.Rows), p.Next, before.Next, err)
	}
	again.Add(row(1000))
	if p, err := again.Since(before.Next, 10); err != nil || ids(p) != "1000" {
		t.Errorf("new is %q (%v)", ids(p), err)
	}
}

// The oldest rows go when there are too many.
func TestOldestRowsGo(t *testing.T) {
	l, db, _ := openLog(t, func(o *Options) { o.Most = 100 })
	for i := range 150 {
		l.Add(row(i))
		if i%10 == 9 {
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	n, err := db.Space("audit").Count()
	if err != nil || n < 100 || n > 110 {
		t.Errorf("%d rows are left of 150, want 100 to 110 (%v)", n, err)
	}
	if p, err := l.Tail(1); err != nil || ids(p) != "149" {
		t.Errorf("the last is %q (%v)", ids(p), err)
	}
}

// Rows go when their time is over.
func TestRowsGoInTime(t *testing.T) {
	l, _, _ := openLog(t, func(o *Options) { o.Keep = 2 * time.Second })
	l.Add(row(1))
	if p, err := l.Tail(1); err != nil || ids(p) != "1" {
		t.Fatalf("the row is not there: %q (%v)", ids(p), err)
	}
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := l.Tail(MostRows)
		if err == nil && len(p.Rows) == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%d rows outlived their time (%v)", len(p.Rows), err)
		}
	}
}

// A disk that cannot keep up costs rows, which are counted, and no time.
func TestDiskThatFails(t *testing.T) {
	l, db, said := openLog(t, func(o *Options) { o.Buffer = 10 })
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	stop := runLog(t, l)
	for i := range 25 {
		l.Add(row(i))
	}
	if lost, _ := l.Lost(); lost != 15 {
		t.Errorf("%d rows lost, want 15", lost)
	}
	stop()
	if lost, _ := l.Lost(); lost != 25 {
		t.Errorf("%d rows lost at the end, want all 25", lost)
	}
	for _, want := range []string{"audit rows cannot be written", "audit rows were lost: the disk could not keep up", "rows=25"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, said)
		}
	}
	if _, err := l.Tail(1); !errors.Is(err, store.ErrClosed) {
		t.Errorf("asked for rows of a closed database: %v", err)
	}
}

// Requests without a key cannot drown the others.
func TestFloodWithoutAKey(t *testing.T) {
	l, _, _ := openLog(t, nil)
	for range 1000 {
		l.Add(Row{ID: "x", Status: 401})
	}
	l.Add(row(1))
	p, err := l.Tail(MostRows)
	if err != nil || len(p.Rows) < strangersBurst+1 || len(p.Rows) > strangersBurst+100 || p.Rows[len(p.Rows)-1].ID != "req-1" {
		t.Errorf("%d rows (%v)", len(p.Rows), err)
	}
	if lost, flood := l.Lost(); lost != 0 || int(flood) != 1001-len(p.Rows) {
		t.Errorf("%d lost, %d of a flood, of %d rows", lost, flood, len(p.Rows))
	}
}

// What a client made up is cut, and does nothing to a terminal.
func TestRowsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 10000)
	r := Row{ID: long, Entrance: long, Method: long, Route: long, Key: long, Model: "\x1b[31mred\n\xff" + long, Served: long, Peer: long, Path: long, Reason: long}.Bounded()
	if !strings.HasPrefix(r.Model, "\ufffd[31mred\ufffd\ufffdä") || len([]rune(r.Model)) != maxName {
		t.Errorf("the model is %q", r.Model)
	}
	for _, text := range []string{r.ID, r.Entrance, r.Method, r.Route, r.Key, r.Served, r.Peer, r.Path, r.Reason} {
		if n := len([]rune(text)); n > maxID {
			t.Errorf("%d characters", n)
		}
	}
	odd := Row{Status: -5, Attempts: -1, Prompt: math.MaxInt, Completion: 7, TotalMS: 1e300, FirstMS: -1, QueueMS: 3.5}.Bounded()
	if odd != (Row{Prompt: maxCount, Completion: 7, TotalMS: maxMS, QueueMS: 3.5}) {
		t.Errorf("figures that cannot be: %+v", odd)
	}
	if plain := (Row{ID: "a", Model: "qwen/ä 1"}); plain.Bounded() != plain {
		t.Errorf("what is in order was changed: %+v", plain.Bounded())
	}
}

func TestValidate(t *testing.T) {
	_, db, _ := openLog(t, nil)
	space := db.Space("audit")
	for want, o := range map[string]Options{
		"space": {}, "keep": {Space: space, Keep: time.Millisecond}, "most": {Space: space, Most: -1}, "buffer": {Space: space, Buffer: -1},
	} {
		if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), want+":") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	db, err := store.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	l, err := New(Options{Space: db.Space("audit"), Buffer: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	r := Row{ID: "req-0123456789abcdef01234567", Key: "abcdefgh", Model: "qwen3-8b", Served: "qwen3-8b", Method: "POST", Route: "/v1/chat/completions"}
	for b.Loop() {
		l.Add(r)
	}
}

// TestFindEndsWithWhoAsks: nobody is looked for any more who is not asked for.
func TestFindEndsWithWhoAsks(t *testing.T) {
	l, _, _ := openLog(t, nil)
	stop := runLog(t, l)
	for i := range 2 * lookEvery {
		l.Add(row(i))
	}
	stop()
	ctx, cancel := context.WithCancel(t.Context())
	if p, err := l.Find(ctx, "req-0"); err != nil || len(p.Rows) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	cancel()
	if _, err := l.Find(ctx, "req-0"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
