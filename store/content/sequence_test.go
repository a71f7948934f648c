package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"
)

// world is what a store should know, worked out in the plainest way.
type world struct {
	here    string
	writes  int
	onDisk  map[string]thing     // what lies at a path
	records map[string]*recorded // what was added at a path
	sets    []*recordedSet
}

// thing is a file: its bytes, and which file it is, whatever its path.
type thing struct {
	data string
	id   int
}

type recorded struct {
	thing
	alone bool // added by itself, not only as part of a set
}

type recordedSet struct {
	dir   string
	names []string
	data  []string
}

func (w *world) intact(path string) bool {
	rec := w.records[path]
	return rec != nil && w.onDisk[path] == rec.thing
}

func (st *recordedSet) path(i int) string { return filepath.Join(st.dir, st.names[i]) }

// has says whether the record at a path is that of the set.
func (w *world) has(st *recordedSet, i int) bool {
	rec := w.records[st.path(i)]
	return rec != nil && rec.data == st.data[i]
}

func (w *world) wanted(path string) bool {
	for _, st := range w.sets {
		for i := range st.names {
			if st.path(i) == path && w.has(st, i) {
				return true
			}
		}
	}
	return false
}

// dropParts forgets the records that no set has any more, of some paths.
func (w *world) dropParts(st *recordedSet) {
	for i := range st.names {
		if path := st.path(i); w.has(st, i) && !w.records[path].alone && !w.wanted(path) {
			delete(w.records, path)
		}
	}
}

func (w *world) enter(path string, part bool) {
	now := w.onDisk[path]
	before := w.records[path]
	rec := &recorded{thing: now, alone: !part || (before != nil && before.data == now.data && before.alone)}
	if before == nil || before.thing != now {
		for other, r := range w.records {
			if r.id == now.id && other != path { // moved from there
				rec.alone = rec.alone || r.alone
				delete(w.records, other)
			}
		}
	}
	w.records[path] = rec
}

func (w *world) addSet(paths []string) {
	st := &recordedSet{dir: filepath.Dir(paths[0])}
	for _, path := range paths {
		w.enter(path, true)
		st.names = append(st.names, filepath.Base(path))
		st.data = append(st.data, w.onDisk[path].data)
	}
	old := w.sets
	w.sets = []*recordedSet{st}
	var gone []*recordedSet
	for _, other := range old {
		there := slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return i < len(other.names) && w.has(other, i) })
		switch {
		case other.dir == st.dir && slices.Equal(other.names, st.names):
			gone = append(gone, other)
		case slices.Equal(other.names, st.names) && slices.Equal(other.data, st.data) && !there:
			gone = append(gone, other)
		default:
			w.sets = append(w.sets, other)
		}
	}
	for _, other := range gone {
		w.dropParts(other)
	}
}

func fileRoot(t interface{ Fatal(...any) }, data string) cid.Cid {
	root, _ := ourImport(t, strings.NewReader(data), int64(len(data)), small)
	return root
}

func (st *recordedSet) root(t interface{ Fatal(...any) }) cid.Cid {
	var entries []dirEntry
	for i, name := range st.names {
		leaves, err := small.hashLeaves(context.Background(), strings.NewReader(st.data[i]), int64(len(st.data[i])), func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		root, err := small.buildTree(int64(len(st.data[i])), leaves, func(digest, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, dirEntry{Name: name, Root: root.cid(), Total: root.total})
	}
	return makeCID(sha256.Sum256(encodeDir(entries)), false)
}

// listed is what List should say: which roots, and which of them are whole.
func (w *world) listed(t interface{ Fatal(...any) }) map[cid.Cid]bool {
	list := map[cid.Cid]bool{}
	for _, rec := range w.records {
		if !rec.alone {
			continue
		}
		whole := false
		for path, other := range w.records {
			whole = whole || (other.data == rec.data && w.intact(path))
		}
		list[fileRoot(t, rec.data)] = whole
	}
	for _, st := range w.sets {
		whole := true
		for i := range st.names {
			whole = whole && w.has(st, i) && w.intact(st.path(i))
		}
		root := st.root(t)
		list[root] = list[root] || whole
	}
	return list
}

// remove says whether the root is known.
func (w *world) remove(t interface{ Fatal(...any) }, root cid.Cid) bool {
	known := false
	var gone []*recordedSet
	w.sets = slices.DeleteFunc(w.sets, func(st *recordedSet) bool {
		if st.root(t) == root {
			gone = append(gone, st)
			return true
		}
		return false
	})
	for _, st := range gone {
		known = true
		w.dropParts(st)
	}
	for path, rec := range w.records {
		if rec.alone && fileRoot(t, rec.data) == root {
			known = true
			rec.alone = false
			if !w.wanted(path) {
				delete(w.records, path)
			}
		}
	}
	return known
}

// TestAnySequence holds the store against a model through any sequence of
// additions of files and sets, changes, moves, removals and restarts; the files
// share blocks.
func TestAnySequence(t *testing.T) {
	needsInodes(t)
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		space := newMemSpace()
		opt := testOptions(t, space)
		s := newStore(t, opt)
		w := &world{here: filepath.Join(dir, fmt.Sprint(run)), onDisk: map[string]thing{}, records: map[string]*recorded{}}
		folders := []string{filepath.Join(w.here, "x"), filepath.Join(w.here, "y")}
		for _, folder := range folders {
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		somePath := func() string {
			return filepath.Join(rapid.SampledFrom(folders).Draw(rt, "folder"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"))
		}
		write := func(path, data string) {
			writeFile(t, path, []byte(data))
			w.writes++
			if err := os.Chtimes(path, time.Time{}, time.Unix(int64(1e9+w.writes), 0)); err != nil {
				t.Fatal(err)
			}
			w.onDisk[path] = thing{data, w.writes}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"write", "write", "rewrite", "add", "add set", "add set", "move", "move folder", "remove", "delete", "restart"}).Draw(rt, "step") {
			case "write":
				// Few blocks, so that files share them.
				var b []byte
				for range rapid.IntRange(0, 6).Draw(rt, "leaves") {
					b = append(b, bytes.Repeat([]byte{byte(rapid.IntRange(0, 1).Draw(rt, "leaf"))}, 16)...)
				}
				b = append(b, make([]byte, rapid.IntRange(0, 2).Draw(rt, "tail"))...)
				write(somePath(), string(b))
			case "rewrite":
				path := somePath()
				if it, there := w.onDisk[path]; there {
					write(path, it.data)
				}
			case "delete":
				path := somePath()
				os.Remove(path)
				delete(w.onDisk, path)
			case "move":
				from, to := somePath(), somePath()
				if it, there := w.onDisk[from]; there && from != to {
					rename(t, from, to)
					delete(w.onDisk, from)
					w.onDisk[to] = it
				}
			case "move folder":
				// Swapped: what lay in one lies in the other.
				aside := w.here + "/aside"
				rename(t, folders[0], aside)
				rename(t, folders[1], folders[0])
				rename(t, aside, folders[1])
				swapped := map[string]thing{}
				for path, it := range w.onDisk {
					other := folders[0]
					if filepath.Dir(path) == other {
						other = folders[1]
					}
					swapped[filepath.Join(other, filepath.Base(path))] = it
				}
				w.onDisk = swapped
			case "restart":
				s = newStore(t, opt)
			case "add":
				path := somePath()
				_, err := s.Add(context.Background(), []string{path}, nil)
				if _, there := w.onDisk[path]; (err == nil) != there {
					rt.Fatalf("add: %v", err)
				} else if there {
					w.enter(path, false)
				}
			case "add set":
				folder := rapid.SampledFrom(folders).Draw(rt, "folder")
				var paths []string
				whole := true
				for _, name := range rapid.SampledFrom([][]string{{"a", "b"}, {"b", "c"}, {"a", "b", "c"}}).Draw(rt, "names") {
					paths = append(paths, filepath.Join(folder, name))
					_, there := w.onDisk[filepath.Join(folder, name)]
					whole = whole && there
				}
				_, err := s.Add(context.Background(), paths, nil)
				if (err == nil) != whole {
					rt.Fatalf("add %q: %v", paths, err)
				}
				if whole {
					w.addSet(paths)
				}
			case "remove":
				roots := slices.SortedFunc(maps.Keys(w.listed(rt)), func(a, b cid.Cid) int { return strings.Compare(a.KeyString(), b.KeyString()) })
				for _, rec := range w.records {
					if !rec.alone { // to be refused
						roots = append(roots, fileRoot(rt, rec.data))
						break
					}
				}
				if len(roots) > 0 {
					root := roots[rapid.IntRange(0, len(roots)-1).Draw(rt, "root")]
					known := w.remove(rt, root)
					if _, err := s.Remove(root, true); (err == nil) != known || (err != nil && !errors.Is(err, ErrNotFound)) {
						rt.Fatalf("remove: %v, known %v", err, known)
					}
				}
			}
			w.agrees(rt, s)
		}
		for root := range w.listed(rt) {
			if _, err := s.Remove(root, true); err != nil {
				rt.Fatal(err)
			}
		}
		if keys := space.leftovers(); len(keys) > 0 {
			rt.Fatalf("left in the tables: %q", keys)
		}
		for path, it := range w.onDisk {
			if got, err := os.ReadFile(path); err != nil || string(got) != it.data {
				rt.Fatalf("%s was touched: %v", path, err)
			}
		}
	})
}

// agrees holds what a store says against the model.
func (w *world) agrees(rt *rapid.T, s *Store) {
	want := w.listed(rt)
	got := map[cid.Cid]bool{}
	for _, c := range s.List() {
		got[c.CID] = c.Complete
	}
	if !maps.Equal(got, want) {
		rt.Fatalf("listed: %v, want %v", got, want)
	}
	if strays := s.strayParts(); len(strays) > 0 {
		rt.Fatalf("parts of no set: %+v", strays)
	}
	for path := range w.records {
		if w.intact(path) {
			data := w.records[path].data
			got, err := readAll(s, fileRoot(rt, data))
			if err != nil || string(got) != data {
				rt.Fatalf("%q reads as %q: %v", data, got, err)
			}
		}
	}
}
