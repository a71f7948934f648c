package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSpacesDoNotSeeEachOther(t *testing.T) {
	d := openTest(t)
	a, ab := d.Space("a"), d.Space("a/b")
	if err := ab.Apply([]Write{{Key: []byte("c"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"c", "b/c", "/b/c"} {
		if v, found, err := a.Get([]byte(key)); err != nil || found {
			t.Errorf("a sees %q: %q %v", key, v, err)
		}
	}
	err := a.Scan(nil, func(key, _ []byte) error { return fmt.Errorf("a sees %q", key) })
	if err != nil {
		t.Error(err)
	}
	if v, found, err := d.Space("a/b").Get([]byte("c")); err != nil || !found || string(v) != "1" {
		t.Errorf("the same name is another space: %q %v %v", v, found, err)
	}
}

func TestSpaceNames(t *testing.T) {
	d := openTest(t)
	for _, name := range []string{"", strings.Repeat("x", 65)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a name of %d bytes was taken", len(name))
				}
			}()
			d.Space(name)
		}()
	}
}

// TestSpaceAgainstModel holds a space against a map through any sequence of
// writes, scans and restarts.
func TestSpaceAgainstModel(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		name := fmt.Sprintf("model-%d", run)
		model := map[string]string{}
		key := rapid.StringMatching(`[ab\x00\xff]{0,4}`)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			var writes []Write
			next := maps.Clone(model)
			for range rapid.IntRange(0, 6).Draw(t, "writes") {
				k := key.Draw(t, "key")
				if rapid.Bool().Draw(t, "delete") {
					writes = append(writes, Write{Key: []byte(k), Delete: true})
					delete(next, k)
				} else {
					v := rapid.StringN(0, 5, -1).Draw(t, "value")
					writes = append(writes, Write{Key: []byte(k), Value: []byte(v)})
					next[k] = v
				}
			}
			if err := d.Space(name).Apply(writes); err != nil {
				t.Fatal(err)
			}
			model = next
			// A restart costs 30 ms; now and then is enough.
			if rapid.IntRange(0, 40).Draw(t, "restart") == 0 {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if d, err = Open(dir, nil); err != nil {
					t.Fatal(err)
				}
			}
			space := d.Space(name)
			prefix := key.Draw(t, "prefix")
			var want []string
			for _, k := range slices.Sorted(maps.Keys(model)) {
				if strings.HasPrefix(k, prefix) {
					want = append(want, k+"="+model[k])
				}
			}
			var got []string
			err := space.Scan([]byte(prefix), func(k, v []byte) error {
				got = append(got, string(k)+"="+string(v))
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("scan of %q: %q, want %q (%v)", prefix, got, want, err)
			}
			k := key.Draw(t, "get")
			v, found, err := space.Get([]byte(k))
			if want, in := model[k]; err != nil || found != in || string(v) != want {
				t.Fatalf("get %q: %q %v %v, want %q %v", k, v, found, err, want, in)
			}
		}
	})
}

func TestScanIsASnapshotWithSlicesToKeep(t *testing.T) {
	d := openTest(t)
	s := d.Space("scan")
	var writes []Write
	for i := range 300 {
		writes = append(writes, Write{Key: fmt.Appendf(nil, "%03d", i), Value: bytes.Repeat([]byte{byte(i)}, 100)})
	}
	if err := s.Apply(writes); err != nil {
		t.Fatal(err)
	}
	var keys, values [][]byte
	err := s.Scan(nil, func(k, v []byte) error {
		keys, values = append(keys, k), append(values, v)
		return s.Apply([]Write{{Key: append(slices.Clone(k), 'x'), Value: v}, {Key: k, Delete: true}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 300 {
		t.Fatalf("%d keys seen, 300 were there", len(keys))
	}
	for i := range keys {
		if string(keys[i]) != fmt.Sprintf("%03d", i) || !bytes.Equal(values[i], bytes.Repeat([]byte{byte(i)}, 100)) {
			t.Fatalf("slice %d was changed behind our back: %q", i, keys[i])
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := s.Scan(nil, func(_, _ []byte) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("an error did not end the scan as it is: %v after %d", err, n)
	}
}

func TestApplyLimits(t *testing.T) {
	d := openTest(t)
	s := d.Space(strings.Repeat("n", 64))
	many := func(n, key, value int) []Write {
		writes := make([]Write, n)
		for i := range writes {
			k := fmt.Appendf(nil, "%d-", i)
			writes[i] = Write{Key: append(k, make([]byte, max(0, key-len(k)))...), Value: make([]byte, value)}
		}
		return writes
	}
	// What is promised to fit must fit, at every corner.
	fits := map[string][]Write{
		"one large":  many(1, 8, MaxBytes-8-65-perWrite),
		"many small": many(MaxWrites, 6, 0),
		"long keys":  many(900, MaxKey, 0),
		"mixed":      many(4000, 20, 100),
		"nothing":    nil,
	}
	for name, writes := range fits {
		if err := s.Apply(writes); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, i := range []int{0, len(writes) - 1} {
			if len(writes) == 0 {
				continue
			}
			if v, found, err := s.Get(writes[i].Key); err != nil || !found || len(v) != len(writes[i].Value) {
				t.Errorf("%s: write %d is not there: %v %v", name, i, found, err)
			}
		}
	}
	for name, writes := range map[string][]Write{
		"too large":   many(1, 8, MaxBytes),
		"too many":    many(MaxWrites+1, 6, 0),
		"long a key":  many(1, MaxKey+1, 0),
		"the sum too": many(1100, MaxKey, 0),
	} {
		if err := s.Apply(append([]Write{{Key: []byte("first " + name)}}, writes...)); !errors.Is(err, ErrTooBig) {
			t.Errorf("%s: %v", name, err)
		}
		if _, found, _ := s.Get([]byte("first " + name)); found {
			t.Errorf("%s: a part of it was applied", name)
		}
	}
}

// TestConcurrentAppliesShareSyncs checks that nothing is lost or mixed when many
// write at once, and that they do not pay for a sync each.
func TestConcurrentAppliesShareSyncs(t *testing.T) {
	d := openTest(t)
	s := d.Space("concurrent")
	var commits, biggest atomic.Int64
	write := func(batch []*commit) error {
		commits.Add(1)
		for {
			was := biggest.Load()
			if int64(len(batch)) <= was || biggest.CompareAndSwap(was, int64(len(batch))) {
				break
			}
		}
		return d.write(batch)
	}
	const workers, each = 32, 20
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := range each {
				key := s.key(fmt.Appendf(nil, "%d/%d", w, n))
				c := &commit{writes: []Write{{Key: key, Value: []byte{byte(n)}}}, size: len(key), wake: make(chan bool, 1)}
				if err := d.queue.do(c, write); err != nil {
					t.Error(err)
				}
				if v, found, err := s.Get(fmt.Appendf(nil, "%d/%d", w, n)); err != nil || !found || v[0] != byte(n) {
					t.Errorf("%d/%d is not there after it was acknowledged", w, n)
				}
			}
		})
	}
	wg.Wait()
	if commits.Load() >= workers*each/2 {
		t.Errorf("%d writes took %d commits", workers*each, commits.Load())
	}
	t.Logf("%d writes in %d commits, at most %d in one", workers*each, commits.Load(), biggest.Load())
}

// TestCommitQueueKeepsTransactionsSmall checks that what fits one by one is
// never joined into what does not fit.
func TestCommitQueueKeepsTransactionsSmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &commitQueue{}
		n := rapid.IntRange(1, 30).Draw(t, "commits")
		for range n {
			q.waiting = append(q.waiting, &commit{
				size:   rapid.IntRange(0, MaxBytes).Draw(t, "size"),
				writes: make([]Write, rapid.IntRange(1, MaxWrites).Draw(t, "writes")),
			})
		}
		all := slices.Clone(q.waiting)
		for len(q.waiting) > 0 {
			batch := q.take()
			if len(batch) == 0 {
				t.Fatal("nothing was taken")
			}
			size, writes := 0, 0
			for i, c := range batch {
				if c != all[i] {
					t.Fatal("out of order")
				}
				size, writes = size+c.size, writes+len(c.writes)
			}
			all = all[len(batch):]
			if size > MaxBytes || writes > MaxWrites {
				t.Fatalf("a batch of %d bytes and %d writes", size, writes)
			}
		}
	})
}

func TestFailedCommitFailsAllOfIt(t *testing.T) {
	q := &commitQueue{}
	bad := errors.New("no")
	gate := make(chan struct{})
	entered := make(chan struct{}, 16)
	write := func(batch []*commit) error {
		entered <- struct{}{}
		<-gate
		return bad
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := q.do(&commit{wake: make(chan bool, 1), writes: make([]Write, 1)}, write); err != bad {
				t.Errorf("got %v", err)
			}
		})
	}
	<-entered
	close(gate)
	wg.Wait()
	if q.busy || len(q.waiting) > 0 {
		t.Error("the queue is not at rest")
	}
}

func BenchmarkApply(b *testing.B) {
	d := openTest(b)
	s := d.Space("bench")
	value := make([]byte, 400)
	b.Run("one", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n++
			if err := s.Apply([]Write{{Key: fmt.Appendf(nil, "one%d", n), Value: value}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("concurrent", func(b *testing.B) {
		b.SetParallelism(16)
		var n atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := s.Apply([]Write{{Key: fmt.Appendf(nil, "many%d", n.Add(1)), Value: value}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// What is written for a time is gone after it, for every way of reading.
func TestApplyFor(t *testing.T) {
	d := openTest(t)
	s, other := d.Space("s"), d.Space("s2")
	if err := s.ApplyFor(time.Millisecond, []Write{{Key: []byte("k")}}); err == nil {
		t.Error("a life of a millisecond was taken")
	}
	for _, sp := range []*Space{s, other} {
		if err := sp.Apply([]Write{{Key: []byte("a"), Value: []byte("stays")}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ApplyFor(4*time.Second, []Write{{Key: []byte("b"), Value: []byte("goes")}, {Key: []byte{0xff, 0xff}, Value: []byte("goes")}}); err != nil {
		t.Fatal(err)
	}
	keys := func() string {
		var list []string
		if err := s.ScanBack(func(key, value []byte) error {
			list = append(list, fmt.Sprintf("%s=%s", key, value))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(list, " ")
	}
	if got := keys(); got != "\xff\xff=goes b=goes a=stays" {
		t.Errorf("back from the end: %q", got)
	}
	var from []string
	if err := s.ScanFrom([]byte("b"), func(key, _ []byte) error { from = append(from, string(key)); return nil }); err != nil || strings.Join(from, " ") != "b \xff\xff" {
		t.Errorf("from b: %q (%v)", from, err)
	}
	if n, err := s.Count(); err != nil || n != 3 {
		t.Errorf("%d keys (%v)", n, err)
	}
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for keys() != "a=stays" {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after its time: %q", keys())
		}
	}
	if n, err := s.Count(); err != nil || n != 1 {
		t.Errorf("%d keys after their time (%v)", n, err)
	}
	if _, found, err := s.Get([]byte("b")); err != nil || found {
		t.Errorf("it is found after its time (%v)", err)
	}
}
