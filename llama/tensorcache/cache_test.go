package tensorcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func open(t testing.TB, dir string, o Options) *Cache {
	t.Helper()
	c, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tensor is the key of a tensor, and its bytes, which no other number has.
func tensor(i, size int) (Key, []byte) {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(data)
	return Key{File: "bafyfile", Offset: int64(i) << 20, Bytes: int64(size)}, data
}

func fill(t testing.TB, c *Cache, k Key, data []byte) {
	t.Helper()
	if err := c.Fill(t.Context(), k, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

// hash is the FNV-1a 64 that rpc-server computes.
func hash(data []byte) string {
	sum := uint64(0xcbf29ce484222325)
	for _, b := range data {
		sum = (sum ^ uint64(b)) * 0x100000001b3
	}
	return fmt.Sprintf("%016x", sum)
}

// names are the files of one of a cache's folders.
func names(t testing.TB, dir, folder string) []string {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = f.Name()
	}
	return list
}

// sound checks what is always true of an open cache that nobody fills: each file
// is whole, can only be read and has its note, nothing is aside, and Bytes is right.
func sound(t testing.TB, c *Cache) {
	t.Helper()
	var all int64
	for _, name := range names(t, c.Dir(), tensorFolder) {
		path := filepath.Join(c.Dir(), tensorFolder, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if hash(data) != name || info.Mode().Perm()&0o222 != 0 {
			t.Errorf("%s: %d bytes of %s, mode %v", name, len(data), hash(data), info.Mode())
		}
		all += info.Size()
	}
	if files, notes := names(t, c.Dir(), tensorFolder), names(t, c.Dir(), noteFolder); !slices.Equal(files, notes) {
		t.Errorf("files %q, notes of %q", files, notes)
	}
	if left := names(t, c.Dir(), asideFolder); len(left) > 0 || c.Bytes() != all {
		t.Errorf("%q are left aside; the cache says %d bytes, there are %d", left, c.Bytes(), all)
	}
}

// unread fails the test when it is read.
type unread struct{ t testing.TB }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("a tensor that is there is read again")
	return 0, io.EOF
}

func TestFill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shards", "cache")
	c := open(t, dir, Options{})
	k1, one := tensor(1, 3<<20+5)
	k2, two := tensor(2, 1)
	again := Key{File: "bafyother", Offset: 0, Bytes: k1.Bytes} // the same bytes elsewhere
	fill(t, c, k1, one)
	fill(t, c, k2, two)
	fill(t, c, again, one)
	want := []string{hash(one), hash(two)}
	slices.Sort(want)
	for range 2 {
		sound(t, c)
		if got := names(t, dir, tensorFolder); !slices.Equal(got, want) || c.Bytes() != k1.Bytes+1 || c.Dir() != dir {
			t.Errorf("%q in %s, want %q", got, c.Dir(), want)
		}
		for _, k := range []Key{k1, k2, again} {
			if !c.Has(k) {
				t.Errorf("%+v is not there", k)
			}
			if err := c.Fill(t.Context(), k, unread{t}); err != nil {
				t.Error(err)
			}
		}
		if other := (Key{k1.File, k1.Offset, k1.Bytes - 1}); c.Has(other) {
			t.Errorf("%+v is there", other)
		}
		c = open(t, dir, Options{})
	}
}

// What is not a tensor of that length leaves nothing.
func TestFillRefuses(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, Options{})
	k, data := tensor(1, 2<<20)
	broken := errors.New("broken")
	ended, cancel := context.WithCancel(t.Context())
	for _, tc := range []struct {
		name string
		k    Key
		ctx  context.Context
		r    io.Reader
		want error
	}{
		{"too short", k, t.Context(), bytes.NewReader(data[:k.Bytes-1]), ErrLength},
		{"too long", k, t.Context(), io.MultiReader(bytes.NewReader(data), strings.NewReader("x")), ErrLength},
		{"empty", k, t.Context(), bytes.NewReader(nil), ErrLength},
		{"broken", k, t.Context(), io.MultiReader(bytes.NewReader(data[:k.Bytes/2]), failing{broken}), broken},
		{"ended", k, ended, io.MultiReader(bytes.NewReader(data[:1<<20]), calling{cancel}, bytes.NewReader(data[1<<20:])), context.Canceled},
		{"ended before", k, ended, unread{t}, context.Canceled},
		{"no file", Key{"", 0, 1}, t.Context(), unread{t}, ErrKey},
		{"a long name", Key{strings.Repeat("b", maxFile+1), 0, 1}, t.Context(), unread{t}, ErrKey},
		{"before the file", Key{"b", -1, 1}, t.Context(), unread{t}, ErrKey},
		{"no bytes", Key{"b", 0, 0}, t.Context(), unread{t}, ErrKey},
		{"too many bytes", Key{"b", 0, maxBytes + 1}, t.Context(), unread{t}, ErrKey},
	} {
		if err := c.Fill(tc.ctx, tc.k, tc.r); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		if sound(t, c); c.Bytes() != 0 || c.Has(tc.k) {
			t.Errorf("%s: %d bytes", tc.name, c.Bytes())
		}
	}
	fill(t, c, k, data)
	sound(t, c)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// calling calls a function and has nothing to read.
type calling struct{ f func() }

func (c calling) Read([]byte) (int, error) {
	c.f()
	return 0, io.EOF
}

// While files are compared, synced and named the cache answers, and nothing deletes
// what is being looked at. Another tensor of the same name waits, no longer than its
// caller does.
func TestOthersDuringFill(t *testing.T) {
	k, data := tensor(1, 2<<20)
	twin, third := Key{"bafytwin", 0, k.Bytes}, Key{"bafythird", 0, k.Bytes}
	for _, tc := range []struct {
		at    string
		there bool // one with the same bytes
	}{{"placed", false}, {"noted", false}, {"compared", true}} {
		t.Run(tc.at, func(t *testing.T) {
			c := open(t, t.TempDir(), Options{})
			if tc.there {
				fill(t, c, k, data)
			}
			reached, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			c.step = func(step string) {
				if step == tc.at {
					once.Do(func() { close(reached); <-goOn })
				}
			}
			filled := make(chan error, 2)
			start := func(k Key) { go func() { filled <- c.Fill(t.Context(), k, bytes.NewReader(data)) }() }
			start(twin)
			<-reached
			looked := make(chan struct{})
			go func() {
				defer close(looked)
				if c.Has(twin) || c.Has(k) != tc.there {
					t.Errorf("%v %v", c.Has(twin), c.Has(k))
				}
				release, _ := c.Lease([]Key{twin, k})
				release()
				if freed, err := c.Sweep(0); freed != 0 || err != nil {
					t.Errorf("%d swept, %v", freed, err)
				}
				if err := c.Erase(); !errors.Is(err, ErrInUse) {
					t.Errorf("erased: %v", err)
				}
			}()
			select {
			case <-looked:
			case <-time.After(10 * time.Second):
				t.Error("the cache is held meanwhile")
				close(goOn)
				<-looked
				return
			}
			ended, cancel := context.WithCancel(t.Context())
			last := io.MultiReader(bytes.NewReader(data), calling{cancel})
			if err := c.Fill(ended, third, last); !errors.Is(err, context.Canceled) {
				t.Errorf("one that is given up: %v", err)
			}
			start(third)
			close(goOn)
			for range 2 {
				if err := <-filled; err != nil {
					t.Error(err)
				}
			}
			if sound(t, c); !c.Has(twin) || !c.Has(third) || c.Has(k) != tc.there || c.Bytes() != k.Bytes {
				t.Errorf("%v %v %v, %d bytes", c.Has(twin), c.Has(third), c.Has(k), c.Bytes())
			}
			c = open(t, c.Dir(), Options{})
			if sound(t, c); !c.Has(twin) || !c.Has(third) || c.Has(k) != tc.there {
				t.Errorf("opened again: %v %v %v", c.Has(twin), c.Has(third), c.Has(k))
			}
		})
	}
}

// Eight bytes that hash to 0 do so with any number of zeros behind them.
func TestFillCollision(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	one := []byte{0xd5, 0x6b, 0xb9, 0x53, 0x42, 0x87, 0x08, 0x36}
	two := append(slices.Clone(one), 0)
	if hash(one) != hash(two) {
		t.Fatal("no collision")
	}
	k1, k2 := Key{"bafyone", 7, 8}, Key{"bafytwo", 0, 9}
	fill(t, c, k1, one)
	err := c.Fill(t.Context(), k2, bytes.NewReader(two))
	if !errors.Is(err, ErrCollision) || !strings.Contains(err.Error(), "bafyone") || !strings.Contains(err.Error(), "bafytwo") {
		t.Error(err)
	}
	if sound(t, c); !c.Has(k1) || c.Has(k2) {
		t.Errorf("%v %v", c.Has(k1), c.Has(k2))
	}
	// Nor is the same length enough.
	path := filepath.Join(c.Dir(), tensorFolder, hash(one))
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, 8), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := c.Fill(t.Context(), Key{"bafythree", 0, 8}, bytes.NewReader(one)); !errors.Is(err, ErrCollision) {
		t.Error(err)
	}
}

// Of several that fill one tensor one reads; where that fails, the next does.
func TestFillAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), Options{})
		k, data := tensor(1, 1<<20)
		gate, broken := make(chan struct{}), errors.New("broken")
		results := make(chan error)
		go func() {
			results <- c.Fill(t.Context(), k, io.MultiReader(bytes.NewReader(data[:100]), calling{func() { <-gate }}, failing{broken}))
		}()
		synctest.Wait()
		reads := 0 // of which only one happens
		for range 4 {
			go func() {
				results <- c.Fill(t.Context(), k, io.MultiReader(calling{func() { reads++ }}, bytes.NewReader(data)))
			}()
		}
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Fill(impatient, k, unread{t}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if reads != 0 || c.Has(k) || c.Bytes() != k.Bytes {
			t.Errorf("%d read while another does", reads)
		}
		close(gate)
		failed := 0
		for range 5 {
			if err := <-results; errors.Is(err, broken) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 1 || reads != 1 || !c.Has(k) {
			t.Errorf("%d failed, %d read", failed, reads)
		}
		sound(t, c)
	})
}

func TestLeaseAndSweep(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	o := Options{Now: func() time.Time { now = now.Add(time.Second); return now }}
	c := open(t, dir, o)
	keys, data := make([]Key, 5), make([][]byte, 5)
	for i := range keys {
		keys[i], data[i] = tensor(i, 1000)
	}
	for i := range 4 {
		fill(t, c, keys[i], data[i])
	}
	release, missing := c.Lease([]Key{keys[4], keys[0], keys[0], keys[4]})
	if !slices.Equal(missing, keys[4:]) {
		t.Errorf("missing: %v", missing)
	}
	fill(t, c, keys[4], data[4]) // and the lease holds it
	twin := Key{"bafytwin", 0, 1000}
	fill(t, c, twin, data[2]) // used now
	is := func(what string, want ...bool) {
		t.Helper()
		got := make([]bool, len(keys))
		for i, k := range keys {
			got[i] = c.Has(k)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		sound(t, c)
	}
	sweep := func(most, want int64) {
		t.Helper()
		if freed, err := c.Sweep(most); freed != want || err != nil {
			t.Errorf("%d bytes swept, want %d: %v", freed, want, err)
		}
	}
	sweep(5000, 0)
	is("enough room", true, true, true, true, true)
	sweep(4999, 1000)
	is("the one used first", true, false, true, true, true)
	sweep(3999, 1000)
	is("not the one that was used as another", true, false, true, false, true)
	if err := c.Erase(); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	sweep(0, 1000)
	is("not what is leased", true, false, false, false, true)
	if c.Has(twin) {
		t.Error("one of two equal tensors is still there")
	}
	other, missing := c.Lease(keys[4:])
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	release()
	release()
	sweep(0, 1000)
	is("what another lease holds", false, false, false, false, true)
	other()
	fill(t, c, keys[0], data[0])
	release, _ = c.Lease(keys[4:])
	release()
	c = open(t, dir, o) // which knows what was used last
	sweep(1000, 1000)
	is("after it was opened again", false, false, false, false, true)
	if err := c.Erase(); err != nil {
		t.Error(err)
	}
	is("erased", false, false, false, false, false)
	fill(t, c, keys[0], data[0])
	is("filled again", true, false, false, false, false)
}

// What was used last is known by the clock that the cache was given.
func TestSweepByTheClock(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	o := Options{Now: func() time.Time { now = now.Add(-time.Hour); return now }}
	c := open(t, dir, o)
	k0, d0 := tensor(0, 1000)
	k1, d1 := tensor(1, 1000)
	fill(t, c, k0, d0)
	fill(t, c, k1, d1)
	c = open(t, dir, o)
	if freed, err := c.Sweep(1000); freed != 1000 || err != nil || !c.Has(k0) || c.Has(k1) {
		t.Errorf("%d bytes swept, %v %v: %v", freed, c.Has(k0), c.Has(k1), err)
	}
}

// Whatever is filled, leased and swept at once, what is leased is there.
func TestAtOnce(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	done := make(chan struct{})
	var sweeper, group sync.WaitGroup
	sweeper.Go(func() {
		for {
			if _, err := c.Sweep(0); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	for g := range 4 {
		group.Go(func() {
			for i := range 20 {
				a, one := tensor(i%3, 1000)
				b, _ := tensor(3+g%2, 1000) // equal to the first, under a name of its own
				release, missing := c.Lease([]Key{a, b})
				for _, k := range missing {
					if err := c.Fill(t.Context(), k, bytes.NewReader(one)); err != nil {
						t.Error(err)
					}
				}
				if !c.Has(a) || !c.Has(b) {
					t.Error("what is leased was swept")
				}
				release()
			}
		})
	}
	group.Wait()
	close(done)
	sweeper.Wait()
	sound(t, c)
}

// Room is asked for each tensor, and sees what was granted before.
func TestRoom(t *testing.T) {
	const limit = 2500
	var c *Cache
	full := errors.New("no room")
	c = open(t, t.TempDir(), Options{Room: func(_ context.Context, bytes int64) error {
		if _, err := c.Sweep(limit - bytes); err != nil {
			return err
		}
		if c.Bytes()+bytes > limit {
			return full
		}
		return nil
	}})
	k0, d0 := tensor(0, 1000)
	k1, d1 := tensor(1, 1000)
	k2, d2 := tensor(2, 1000)
	k3, d3 := tensor(3, 1000)
	fill(t, c, k0, d0)
	inside := calling{func() {
		fill(t, c, k2, d2) // for which the first is swept
		if err := c.Fill(t.Context(), k3, unread{t}); !errors.Is(err, full) {
			t.Errorf("a third with room for two: %v", err)
		}
	}}
	release, _ := c.Lease([]Key{k1, k2})
	if err := c.Fill(t.Context(), k1, io.MultiReader(inside, bytes.NewReader(d1))); err != nil {
		t.Fatal(err)
	}
	if sound(t, c); c.Has(k0) || !c.Has(k1) || !c.Has(k2) || c.Bytes() != 2000 {
		t.Errorf("%v %v %v, %d bytes", c.Has(k0), c.Has(k1), c.Has(k2), c.Bytes())
	}
	if err := c.Fill(t.Context(), k3, unread{t}); !errors.Is(err, full) {
		t.Error(err)
	}
	release()
	fill(t, c, k3, d3)
	sound(t, c)
}
