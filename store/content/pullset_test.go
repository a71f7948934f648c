package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"

	"relay/store"
)

// newSetOf writes files of these sizes into a folder and adds them as a set.
func newSetOf(t testing.TB, s *Store, sizes ...int) (Content, [][]byte) {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	var all [][]byte
	for i, size := range sizes {
		data := randomBytes(uint64(i+1), size)
		all = append(all, data)
		paths = append(paths, writeFile(t, filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, len(sizes))), data))
	}
	c, err := s.Add(t.Context(), paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, all
}

// hasPulledSet checks that a store has a set whole, in one folder and under its names.
func hasPulledSet(t testing.TB, s *Store, held Content, all [][]byte) Content {
	t.Helper()
	c, err := s.Get(held.CID)
	if err != nil || !c.Complete || c.Bytes != held.Bytes || len(c.Files) != len(all) {
		t.Fatalf("the set: %+v, %v", c, err)
	}
	for i, path := range c.Files {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, all[i]) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
		if filepath.Base(path) != filepath.Base(held.Files[i]) || filepath.Dir(path) != filepath.Dir(c.Path) {
			t.Errorf("it lies at %s", path)
		}
	}
	if list, err := s.Partials(); err != nil || len(list) > 0 {
		t.Errorf("unfinished: %+v %v", list, err)
	}
	return c
}

func TestPullOfASet(t *testing.T) {
	for _, sizes := range [][]int{{300, 5, 0, 16}, {1, 2}, {16 * 70, 16 * 70}} {
		from, _ := testStore(t)
		held, all := newSetOf(t, from, sizes...)
		space := newMemSpace()
		opt := testOptions(t, space)
		to := newStore(t, opt)
		source := &ranger{name: "source", from: from}
		var last Progress
		c, err := pullRanged(t.Context(), to, held, func(p Progress) {
			if p.Done < last.Done && p.Phase == last.Phase || p.Total > held.Bytes {
				t.Errorf("after %+v comes %+v", last, p)
			}
			last = p
		}, source)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Complete || c.InPlace || c.CID != held.CID || last.Done != held.Bytes || last.Phase != PhaseFinish {
			t.Errorf("%+v, the last word is %+v", c, last)
		}
		hasPulledSet(t, to, held, all)
		if list := to.List(); len(list) != 1 {
			t.Errorf("listed: %+v", list)
		}
		hasPulledSet(t, newStore(t, opt), held, all)
		if _, whole, err := to.Have(held.CID); err != nil || !whole {
			t.Errorf("of the set it has all: %v %v", whole, err)
		}
		if _, err := to.Remove(held.CID, true); err != nil {
			t.Error(err)
		}
		if names := files(t, opt.Dir); len(names) > 0 {
			t.Errorf("left in the folder: %q", names)
		}
		noLeftovers(t, space)
	}
}

// TestUnfinishedSet: it is one unfinished pull, goes on where it was, and can be
// removed with all that is here of it.
func TestUnfinishedSet(t *testing.T) {
	from, _ := testStore(t)
	held, all := newSetOf(t, from, 320, 320, 320)
	space := newMemSpace()
	opt := testOptions(t, space)
	cutOff := func() *Store {
		to := newStore(t, opt)
		ctx, cancel := context.WithCancel(t.Context())
		source := &ranger{name: "source", from: from}
		source.gate = func(rctx context.Context) {
			if source.sent.Load() >= 480 {
				cancel()
				<-rctx.Done()
			}
		}
		if _, err := pullRanged(ctx, to, held, nil, source); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		list, err := to.Partials()
		if err != nil || len(list) != 1 || list[0].CID != held.CID || list[0].Running || list[0].Bytes != held.Bytes || list[0].Done < 400 {
			t.Fatalf("unfinished: %+v %v", list, err)
		}
		if listed := to.List(); len(listed) != 0 {
			t.Errorf("listed: %+v", listed)
		}
		return newStore(t, opt)
	}
	to := cutOff()
	// It serves what it has: the first file whole, some of the second.
	if _, whole, err := to.Have(rootsOf(t, from, held)[0]); err != nil || !whole {
		t.Errorf("the first file: %v %v", whole, err)
	}
	if have, whole, err := to.Have(rootsOf(t, from, held)[1]); err != nil || whole || have[0] == 0 {
		t.Errorf("the second file: %v %v %v", have, whole, err)
	}
	rest := &ranger{name: "rest", from: from}
	if _, err := pullRanged(t.Context(), to, held, nil, rest); err != nil {
		t.Fatal(err)
	}
	hasPulledSet(t, to, held, all)
	if n := rest.sent.Load(); n > held.Bytes-400 {
		t.Errorf("%d bytes were fetched again", n)
	}
	if _, err := to.Remove(held.CID, true); err != nil {
		t.Fatal(err)
	}
	to = cutOff()
	if err := to.RemovePartial(held.CID); err != nil {
		t.Fatal(err)
	}
	if names := files(t, opt.Dir); len(names) > 0 {
		t.Errorf("left in the folder: %q", names)
	}
	noLeftovers(t, space)
	to = cutOff()
	if _, err := to.Erase(); err != nil {
		t.Fatal(err)
	}
	if names := files(t, opt.Dir); len(names) > 0 {
		t.Errorf("left in the folder: %q", names)
	}
	noLeftovers(t, space)
}

func rootsOf(t testing.TB, s *Store, set Content) (roots []cid.Cid) {
	t.Helper()
	block, err := s.Blocks().Get(t.Context(), set.CID)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := decodeDir(block.RawData())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		roots = append(roots, e.Root)
	}
	return roots
}

// TestSetReservesAllItsSpace before a byte of it is fetched.
func TestSetReservesAllItsSpace(t *testing.T) {
	from, _ := testStore(t)
	held, all := newSetOf(t, from, 320, 480)
	opt := testOptions(t, newMemSpace())
	var mu sync.Mutex
	reserved := int64(0)
	opt.allocate = func(f *os.File, size int64) error {
		mu.Lock()
		reserved += size
		mu.Unlock()
		return f.Truncate(size)
	}
	to := newStore(t, opt)
	source := &ranger{name: "source", from: from, gate: func(context.Context) {
		mu.Lock()
		defer mu.Unlock()
		if reserved != held.Bytes {
			t.Errorf("%d of %d bytes are reserved", reserved, held.Bytes)
		}
	}}
	if _, err := pullRanged(t.Context(), to, held, nil, source); err != nil {
		t.Fatal(err)
	}
	hasPulledSet(t, to, held, all)
	opt.Dir, opt.Space = filepath.Join(t.TempDir(), "models"), newMemSpace()
	opt.free = func(string) (uint64, uint64, error) { return reserve + 700, roomy, nil }
	_, err := pullRanged(t.Context(), newStore(t, opt), held, nil, source)
	sentence(t, err, store.ErrDiskFull, "disk_full", `"m"`)
	if names := files(t, opt.Dir); len(names) > 0 {
		t.Errorf("left in the folder: %q", names)
	}
}

// TestSetsThatLie: totals that are not the files', a file that is a directory, a
// size that is not the sum.
func TestSetsThatLie(t *testing.T) {
	from, _ := testStore(t)
	held, _ := newSetOf(t, from, 320, 480)
	block, err := from.Blocks().Get(t.Context(), held.CID)
	if err != nil {
		t.Fatal(err)
	}
	good, err := decodeDir(block.RawData())
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func([]dirEntry){
		"a total too large": func(e []dirEntry) { e[1].Total++ },
		"a total too small": func(e []dirEntry) { e[0].Total-- },
		"a set in a set":    func(e []dirEntry) { e[0].Root = held.CID },
	} {
		entries := slices.Clone(good)
		spoil(entries)
		lie := encodeDir(entries)
		space := newMemSpace()
		opt := testOptions(t, space)
		to := newStore(t, opt)
		p := &peer{from: from, extra: map[digest][]byte{sumOf(lie): lie}}
		_, err := to.Pull(t.Context(), PullOptions{Root: makeCID(sumOf(lie), false), Bytes: -1, Name: "m", Swarm: singles{p}})
		if !errors.Is(err, ErrContentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if names := files(t, opt.Dir); len(names) > 0 {
			t.Errorf("%s: left in the folder: %q", name, names)
		}
		noLeftovers(t, space)
	}
	to, _ := testStore(t)
	_, err = to.Pull(t.Context(), PullOptions{Root: held.CID, Bytes: 801, Name: "m", Swarm: singles{&peer{from: from}}})
	sentence(t, err, ErrContentInvalid, "file_invalid", "800", "801")
}

// TestCrashWhilePullingASet at any write: it goes on, or is removed, without a
// trace of what was cut off.
func TestCrashWhilePullingASet(t *testing.T) {
	from, _ := testStore(t)
	held, all := newSetOf(t, from, 100, 33)
	rapid.Check(t, func(rt *rapid.T) {
		space := newMemSpace()
		opt := testOptions(t, space)
		opt.Dir = filepath.Join(t.TempDir(), "models")
		opt.commitBytes = 16
		for crashes := rapid.IntRange(1, 3).Draw(rt, "crashes"); crashes > 0; crashes-- {
			space.dieAfter(rapid.IntRange(0, 40).Draw(rt, "writes"))
			if to, err := New(opt); err == nil {
				_, _ = pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from})
			}
			space.dieAfter(-1)
		}
		to := newStore(t, opt)
		if rapid.Bool().Draw(rt, "removed") {
			err := to.RemovePartial(held.CID)
			if err != nil && !errors.Is(err, ErrNotFound) {
				rt.Fatal(err)
			}
			if _, err := to.Remove(held.CID, true); err != nil && !errors.Is(err, ErrNotFound) {
				rt.Fatal(err)
			}
			if list, err := to.Partials(); err != nil || len(list)+len(to.List()) > 0 {
				rt.Fatalf("left: %+v %+v %v", list, to.List(), err)
			}
			noLeftovers(t, space)
			for _, name := range files(t, opt.Dir) {
				if strings.Contains(name, ".part") {
					rt.Fatalf("left in the folder: %q", name)
				}
			}
			return
		}
		if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from}); err != nil {
			rt.Fatal(err)
		}
		hasPulledSet(t, to, held, all)
		if t.Failed() {
			rt.FailNow()
		}
	})
}
