package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipfs/boxo/blockservice"
	"github.com/ipfs/boxo/exchange/offline"
	"github.com/ipfs/boxo/ipld/merkledag"
	unixfsio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/go-cid"

	"relay/store"
)

// newSetFiles writes the files of a set into a folder, of 300, 301, … bytes.
func newSetFiles(t testing.TB, dir string, names ...string) []string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for i, name := range names {
		paths = append(paths, writeFile(t, filepath.Join(dir, name), randomBytes(uint64(i+1), 300+i)))
	}
	return paths
}

func mustAddSet(t testing.TB, s *Store, paths ...string) Content {
	t.Helper()
	c, err := s.Add(t.Context(), paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// addSees adds and says whether anything was hashed for it.
func addSees(t testing.TB, s *Store, paths ...string) (c Content, hashed bool) {
	t.Helper()
	c, err := s.Add(t.Context(), paths, func(p Progress) { hashed = hashed || p.Phase == PhaseHash })
	if err != nil {
		t.Fatal(err)
	}
	return c, hashed
}

// spoil changes one byte of a file and nothing else about it, so that reading it
// again cannot go unnoticed.
func spoil(t *testing.T, path string, at int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	writeOver(t, path, data)
}

// holdsSet checks that a store has a set whole: as blocks, which other tools can
// read, and as files.
func holdsSet(t testing.TB, s *Store, root cid.Cid, want map[string][]byte) {
	t.Helper()
	c, err := s.Get(root)
	if err != nil || !c.Complete || len(c.Files) != len(want) {
		t.Errorf("%+v %v", c, err)
		return
	}
	for _, path := range c.Files {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want[filepath.Base(path)]) {
			t.Errorf("%s: %v", path, err)
		}
	}
	bs := s.Blocks()
	dag := merkledag.NewDAGService(blockservice.New(bs, offline.Exchange(bs)))
	node, err := dag.Get(t.Context(), root)
	if err != nil {
		t.Error(err)
		return
	}
	dir, err := unixfsio.NewDirectoryFromNode(dag, node)
	if err != nil {
		t.Error(err)
		return
	}
	links, err := dir.Links(t.Context())
	if err != nil || len(links) != len(want) {
		t.Errorf("%d files as a directory, %v", len(links), err)
	}
	for _, l := range links {
		if got, err := readAll(s, l.Cid); err != nil || !bytes.Equal(got, want[l.Name]) {
			t.Errorf("%s as blocks: %v", l.Name, err)
		}
	}
}

func TestAddSet(t *testing.T) {
	s, space := testStore(t)
	dir := t.TempDir()
	paths := newSetFiles(t, dir, "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf")
	want := map[string][]byte{}
	for i, path := range paths {
		want[filepath.Base(path)] = randomBytes(uint64(i+1), 300+i)
	}
	var all []Progress
	c, err := s.Add(t.Context(), []string{paths[2], paths[0], paths[1]}, func(p Progress) { all = append(all, p) })
	if err != nil {
		t.Fatal(err)
	}
	if c.Bytes != 903 || c.Path != paths[0] || !slices.Equal(c.Files, paths) || !c.InPlace || !c.Complete || c.Used.IsZero() {
		t.Errorf("%+v", c)
	}
	if last := all[len(all)-1]; last.Phase != PhaseFinish || last.Done != 903 || all[0].Total != 903 {
		t.Errorf("progress: %+v", all)
	}
	if !slices.IsSortedFunc(all, func(a, b Progress) int { return int(a.Done - b.Done) }) {
		t.Errorf("it goes backwards: %+v", all)
	}
	// Its root is the one that other tools compute.
	var entries []dirEntry
	for _, path := range paths {
		data := want[filepath.Base(path)]
		root, nodes := boxoImport(t, bytes.NewReader(data), small)
		e := dirEntry{Name: filepath.Base(path), Root: root, Total: int64(len(data))}
		// No node of these files stands in two places.
		for _, block := range nodes {
			e.Total += int64(len(block))
		}
		entries = append(entries, e)
	}
	if node := boxoDir(t, entries); node.Cid() != c.CID {
		t.Errorf("root %s, boxo says %s", c.CID, node.Cid())
	}
	for range 2 {
		holdsSet(t, s, c.CID, want)
		if list := s.List(); len(list) != 1 || !same(list[0], c) {
			t.Errorf("listed: %+v", list)
		}
		if path, err := s.Path(c.CID); err != nil || path != paths[0] {
			t.Errorf("path %q %v", path, err)
		}
		if again, hashed := addSees(t, s, paths...); hashed || !same(again, c) {
			t.Errorf("again: %+v, hashed %v", again, hashed)
		}
		s = newStore(t, s.opt)
	}
	// A block like others, and listed as such.
	bs := s.Blocks()
	if n, err := bs.GetSize(t.Context(), c.CID); err != nil || n != len(encodeDir(entries)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := bs.DeleteBlock(t.Context(), c.CID); !errors.Is(err, ErrInUse) {
		t.Errorf("deleted from under the set: %v", err)
	}
	keys, err := bs.AllKeysChan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for k := range keys {
		seen = seen || k == c.CID
	}
	if !seen {
		t.Error("the directory's block is not listed")
	}
	// A file of it is there as one, but not by itself.
	part, err := s.Get(entries[0].Root)
	if err != nil || part.Path != paths[0] || part.Files != nil || !part.Complete {
		t.Errorf("%+v %v", part, err)
	}
	_, err = s.Remove(part.CID, true)
	sentence(t, err, ErrNotFound, "not_found", "remove the set")
	if _, err := s.Remove(c.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
	if left := files(t, dir); len(left) != 3 {
		t.Errorf("left in the folder: %q", left)
	}
}

func TestAddSetOverBadgerInTheRealLayout(t *testing.T) {
	s := realStore(t)
	dir := t.TempDir()
	want := map[string][]byte{"a": randomBytes(1, 3*chunkSize+1), "b": nil, "c": randomBytes(3, 5)}
	var paths []string
	for name, data := range want {
		paths = append(paths, writeFile(t, filepath.Join(dir, name), data))
	}
	c := mustAddSet(t, s, paths...)
	holdsSet(t, s, c.CID, want)
}

func TestAddRefusesWhatIsNoSet(t *testing.T) {
	s, space := testStore(t)
	dir := t.TempDir()
	paths := newSetFiles(t, dir, "a", "b", "c")
	other := newSetFiles(t, filepath.Join(dir, "d"), "e")
	_, err := s.Add(t.Context(), nil, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid")
	_, err = s.Add(t.Context(), []string{paths[0], other[0]}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", other[0], "one folder")
	_, err = s.Add(t.Context(), []string{paths[0], paths[1], paths[0]}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", `"a"`)
	_, err = s.Add(t.Context(), []string{paths[0], filepath.Join(dir, "x")}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", filepath.Join(dir, "x"), "no such file")
	_, err = s.Add(t.Context(), []string{paths[0], filepath.Join(dir, "d")}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", filepath.Join(dir, "d"), "regular file")
	_, err = s.Add(t.Context(), []string{paths[0], filepath.Join(dir, "x\n")}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", "plain text")
	var many []string
	for i := range maxSet + 1 {
		many = append(many, filepath.Join(dir, fmt.Sprintf("%0100d", i)))
	}
	_, err = s.Add(t.Context(), many, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", "1000 files")
	long := slices.Clone(many[:maxSet])
	for i, path := range long {
		long[i] = path + strings.Repeat("x", 155)
	}
	_, err = s.Add(t.Context(), long, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", "too long")
	noLeftovers(t, space)
}

// One file of the set changes while another is read.
func TestAddSetNoticesChangesWhileItReads(t *testing.T) {
	dir := t.TempDir()
	paths := newSetFiles(t, dir, "a", "b")
	s, space := testStore(t)
	_, err := s.Add(t.Context(), paths, func(p Progress) {
		if p.Done == p.Total {
			touch(t, paths[0])
		}
	})
	sentence(t, err, ErrFileChanged, "file_changed", paths[0])
	noLeftovers(t, space)
}

// What a set and a single registration, or two sets, both have goes with the last
// of them.
func TestSetsShareFiles(t *testing.T) {
	s, space := testStore(t)
	dir := t.TempDir()
	paths := newSetFiles(t, dir, "a", "b", "c")
	ab := mustAddSet(t, s, paths[0], paths[1])
	bc := mustAddSet(t, s, paths[1], paths[2])
	a := mustAdd(t, s, paths[0])
	if list := s.List(); len(list) != 3 {
		t.Errorf("listed: %+v", list)
	}
	if _, err := s.Remove(ab.CID, true); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, s.opt)
	for _, c := range []Content{bc, a} {
		if err := s.Check(c.CID); err != nil {
			t.Error(err)
		}
	}
	if list := s.List(); len(list) != 2 {
		t.Errorf("listed: %+v", list)
	}
	if _, err := s.Remove(bc.CID, true); err != nil {
		t.Fatal(err)
	}
	if list := s.List(); len(list) != 1 || list[0].CID != a.CID {
		t.Errorf("listed: %+v", list)
	}
	// The other way round: the file stays as part of the set.
	ab = mustAddSet(t, s, paths[0], paths[1])
	if _, err := s.Remove(a.CID, true); err != nil {
		t.Fatal(err)
	}
	if list := s.List(); len(list) != 1 || list[0].CID != ab.CID || !list[0].Complete {
		t.Errorf("listed: %+v", list)
	}
	if _, err := s.Remove(ab.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

func TestSetInSeveralFolders(t *testing.T) {
	s, space := testStore(t)
	one := newSetFiles(t, filepath.Join(t.TempDir(), "one"), "a", "b")
	two := newSetFiles(t, filepath.Join(t.TempDir(), "two"), "a", "b")
	c := mustAddSet(t, s, one...)
	if again := mustAddSet(t, s, two...); again.CID != c.CID || !slices.Equal(again.Files, two) {
		t.Errorf("%+v", again)
	}
	if list := s.List(); len(list) != 1 {
		t.Errorf("listed: %+v", list)
	}
	if err := os.Remove(one[1]); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(c.CID); err != nil || !got.Complete || !slices.Equal(got.Files, two) {
		t.Errorf("%+v %v", got, err)
	}
	if err := os.Remove(two[0]); err != nil {
		t.Fatal(err)
	}
	// One whole set in two folders is none.
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", one[1], "file 2 of 2", "not there", "add the model again")
	if _, err := s.Remove(c.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// Only what changed is read again, and the set with the old file is no more.
func TestChangedPartOfASet(t *testing.T) {
	s, space := testStore(t)
	dir := t.TempDir()
	paths := newSetFiles(t, dir, "a", "b", "c")
	c := mustAddSet(t, s, paths...)
	tables := len(space.leftovers())
	writeFile(t, paths[1], randomBytes(9, 301))
	touch(t, paths[1])
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", paths[1], "file 2 of 3", "written at", "add the model again")
	if got, err := s.Get(c.CID); err != nil || got.Complete || len(got.Files) != 3 {
		t.Errorf("%+v %v", got, err)
	}
	// By itself: the set says what became of it.
	b := mustAdd(t, s, paths[1])
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", paths[1], "with other bytes")
	if _, err := s.Remove(b.CID, true); err != nil {
		t.Fatal(err)
	}
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", paths[1], "another file")
	// The same in another store, which reads everything.
	elsewhere, _ := testStore(t)
	want := mustAddSet(t, elsewhere, paths...)
	spoil(t, paths[0], 7)
	spoil(t, paths[2], 7)
	changed, hashed := addSees(t, s, paths...)
	if !hashed || !same(changed, want) {
		t.Errorf("hashed %v, %+v", hashed, changed)
	}
	if _, err := s.Get(c.CID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the old set: %v", err)
	}
	if n := len(space.leftovers()); n != tables {
		t.Errorf("%d entries, were %d", n, tables)
	}
	if _, err := s.Remove(changed.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// TestCrashWhileAddingASet is TestCrashWhileAdding for sets; another set has one
// of the files.
func TestCrashWhileAddingASet(t *testing.T) {
	for n := 0; ; n++ {
		space := newMemSpace()
		opt := testOptions(t, space)
		s := newStore(t, opt)
		dir := t.TempDir()
		paths := newSetFiles(t, dir, "a", "b", "c", "d")
		other := mustAddSet(t, s, paths[2], paths[3])
		before := space.leftovers()
		space.dieAfter(n)
		_, addErr := s.Add(t.Context(), paths[:3], nil)
		if addErr != nil && !errors.Is(addErr, errCrash) {
			t.Fatal(addErr)
		}
		space.dieAfter(-1)
		s = newStore(t, opt)
		if addErr != nil {
			if after := space.leftovers(); !slices.Equal(before, after) {
				t.Fatalf("dead after %d: the tables were %q and are %q", n, before, after)
			}
		}
		c := mustAddSet(t, s, paths[:3]...)
		space.dieAfter(n)
		_, removeErr := s.Remove(c.CID, true)
		if removeErr != nil && !errors.Is(removeErr, errCrash) {
			t.Fatal(removeErr)
		}
		space.dieAfter(-1)
		s = newStore(t, opt)
		if _, err := s.Get(c.CID); err == nil {
			if n > 0 {
				t.Fatalf("dead after %d: half removed, and there", n)
			}
			if err := s.Check(c.CID); err != nil {
				t.Fatal(err)
			}
		} else if after := space.leftovers(); !slices.Equal(before, after) {
			t.Fatalf("dead after %d: removal left %q instead of %q", n, after, before)
		}
		if err := s.Check(other.CID); err != nil {
			t.Fatalf("dead after %d: %v", n, err)
		}
		if addErr == nil && removeErr == nil {
			if n < 8 {
				t.Fatalf("all was over after %d transactions: nothing was tested", n)
			}
			return
		}
	}
}

// pulledSet is a set as a pull leaves it: its files are registered as parts, in a
// folder of their own, and then the set.
func pulledSet(t testing.TB, s *Store, names ...string) Content {
	t.Helper()
	dir := filepath.Join(s.dir, "pulled-set")
	var entries []dirEntry
	for _, path := range newSetFiles(t, dir, names...) {
		h, err := s.hashFile(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		rec := &file{Bytes: h.stamp.Size, Path: path, Stamp: h.stamp, Pulled: true, Part: true, Nested: true}
		if err := s.register(rec, h.leaves); err != nil {
			t.Fatal(err)
		}
		e, err := s.entryOf(rec)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	c, err := s.registerSet(dir, entries)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRegisterSet(t *testing.T) {
	s, space := testStore(t)
	c := pulledSet(t, s, "a", "b", "c")
	if c.InPlace || !c.Complete {
		t.Errorf("%+v", c)
	}
	dir := filepath.Dir(c.Path)
	entries := s.setsOf(c.CID)[0].entries
	// Together with other writes, or not at all.
	mark := []byte{tablePulls, 1}
	if _, err := s.Remove(c.CID, false); err != nil {
		t.Fatal(err)
	}
	_, err := s.registerSet(dir, entries, store.Write{Key: mark, Value: []byte{1}})
	sentence(t, err, ErrFileChanged, "file_changed", filepath.Join(dir, "a"))
	noLeftovers(t, space)
	for i, path := range newSetFiles(t, dir, "a", "b", "c") {
		h, err := s.hashFile(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.register(&file{Bytes: h.stamp.Size, Path: path, Stamp: h.stamp, Pulled: true, Part: true}, h.leaves); err != nil {
			t.Fatal(i, err)
		}
	}
	wrong := slices.Clone(entries)
	wrong[1].Total++
	_, err = s.registerSet(dir, wrong)
	sentence(t, err, ErrContentInvalid, "file_invalid", `b`)
	if _, err := s.registerSet(dir, entries, store.Write{Key: mark, Value: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if _, found, err := space.Get(mark); err != nil || !found {
		t.Errorf("the other write: %v %v", found, err)
	}
}

// A pulled set goes with its files and its folder, except for what somebody has
// changed or added.
func TestRemovePulledSet(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *Store, c Content) error
		left  int
	}{
		"as it was":   {func(*Store, Content) error { return nil }, 0},
		"a changed":   {func(_ *Store, c Content) error { return os.WriteFile(c.Files[0], []byte("mine now"), 0o600) }, 1},
		"b gone":      {func(_ *Store, c Content) error { return os.Remove(c.Files[1]) }, 0},
		"c added":     {func(s *Store, c Content) error { _, err := s.Add(context.Background(), c.Files[2:], nil); return err }, 1},
		"all added":   {func(s *Store, c Content) error { _, err := s.Add(context.Background(), c.Files, nil); return err }, 3},
		"a new file":  {func(_ *Store, c Content) error { return os.WriteFile(c.Path+"x", nil, 0o600) }, 1},
		"folder gone": {func(_ *Store, c Content) error { return os.RemoveAll(filepath.Dir(c.Path)) }, 0},
	} {
		for _, erase := range []bool{false, true} {
			s, space := testStore(t)
			set := pulledSet(t, s, "a", "b", "c")
			if err := c.spoil(s, set); err != nil {
				t.Fatal(err)
			}
			if erase {
				if _, err := s.Erase(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, err := s.Remove(set.CID, true); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if left := files(t, filepath.Dir(set.Path)); len(left) != c.left {
				t.Errorf("%s: left in the folder: %q", name, left)
			}
			if left := files(t, s.dir); (len(left) == 0) != (c.left == 0) {
				t.Errorf("%s: left in the models folder: %q", name, left)
			}
			for _, c := range s.List() {
				if !c.InPlace {
					t.Errorf("%s: still known: %+v", name, c)
				}
				if _, err := s.Remove(c.CID, true); err != nil {
					t.Error(err)
				}
			}
			noLeftovers(t, space)
		}
	}
}

// A file of a pulled set that cannot be deleted is not forgotten.
func TestEraseOfASetThatCannotBeDeleted(t *testing.T) {
	locked := errors.New("locked")
	for _, restart := range []bool{false, true} {
		s, space := testStore(t)
		set := pulledSet(t, s, "a", "b", "c")
		s.opt.remove = func(path string) error {
			if path == set.Files[1] {
				return locked
			}
			return os.Remove(path)
		}
		if done, err := s.Erase(); !errors.Is(err, locked) || done.Files != 2 || done.Bytes != 602 {
			t.Errorf("%+v %v", done, err)
		}
		s.opt.remove = os.Remove
		if restart {
			s = newStore(t, s.opt)
		}
		if done, err := s.Erase(); err != nil || done.Files != 1 {
			t.Errorf("%+v %v", done, err)
		}
		if left := files(t, s.dir); len(left) > 0 {
			t.Errorf("left in the models folder: %q", left)
		}
		noLeftovers(t, space)
	}
}

// With the disk of the models folder not mounted nothing is known to be deleted.
func TestSetWithoutTheFolder(t *testing.T) {
	s, space := testStore(t)
	set := pulledSet(t, s, "a", "b", "c")
	if err := os.Rename(s.dir, s.dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		done, err := s.Erase()
		if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), s.dir+" is missing") || done.Files > 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if list := s.List(); len(list) != 1 || list[0].Complete {
			t.Errorf("listed: %+v", list)
		}
		s = newStore(t, s.opt)
		if _, err := os.Stat(s.dir); err == nil {
			t.Error("the folder was made anew")
		}
	}
	_, err := s.Remove(set.CID, true)
	sentence(t, err, ErrUnusable, "state_unusable", s.dir)
	if err := os.Rename(s.dir+".away", s.dir); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, s.opt)
	if err := s.Check(set.CID); err != nil {
		t.Error(err)
	}
	if done, err := s.Remove(set.CID, true); err != nil || done.Files != 3 {
		t.Errorf("%+v %v", done, err)
	}
	if left := files(t, s.dir); len(left) > 0 {
		t.Errorf("left in the models folder: %q", left)
	}
	noLeftovers(t, space)
}

// TestCrashWhileRemovingAPulledSet: after a restart the files are gone with their
// tables, or the set says that they are, and can be removed.
func TestCrashWhileRemovingAPulledSet(t *testing.T) {
	for n := 0; ; n++ {
		s, space := testStore(t)
		set := pulledSet(t, s, "a", "b", "c")
		space.dieAfter(n)
		_, err := s.Remove(set.CID, true)
		space.dieAfter(-1)
		s = newStore(t, s.opt)
		if n == 0 {
			sentence(t, s.Check(set.CID), ErrFileChanged, "file_changed", "it is not there any more")
			if done, err := s.Remove(set.CID, true); err != nil || done.Files > 0 {
				t.Fatalf("%+v %v", done, err)
			}
		}
		noLeftovers(t, space)
		if left := files(t, s.dir); len(left) > 0 {
			t.Fatalf("dead after %d: left in the models folder: %q", n, left)
		}
		if err == nil {
			return
		}
	}
}

// The files may be what fills the disk, so that the database refuses to write
// that they go.
func TestRemoveSetOnAFullDisk(t *testing.T) {
	s, space := testStore(t)
	set := pulledSet(t, s, "a", "b", "c")
	space.refuse = func() error {
		if _, err := os.Stat(set.Files[2]); err == nil {
			return store.ErrDiskFull
		}
		return nil
	}
	_, err := s.Remove(set.CID, false)
	sentence(t, err, store.ErrDiskFull, "disk_full")
	if err := s.Check(set.CID); err != nil {
		t.Error(err)
	}
	if _, err := s.Remove(set.CID, true); err != nil {
		t.Error(err)
	}
	noLeftovers(t, space)
	if left := files(t, s.dir); len(left) > 0 {
		t.Errorf("left in the models folder: %q", left)
	}
}

func TestUnreadableSetIsLeftAlone(t *testing.T) {
	s, space := testStore(t)
	c := mustAddSet(t, s, newSetFiles(t, t.TempDir(), "a", "b")...)
	st := s.setsOf(c.CID)[0]
	entries := len(space.leftovers())
	space.data[string(keySet(st.ID))] = "{"
	s = newStore(t, s.opt)
	if list := s.List(); len(list) > 0 {
		t.Errorf("listed: %+v", list)
	}
	if n := len(space.leftovers()); n != entries {
		t.Errorf("%d entries, were %d", n, entries)
	}
	// Without its directory a record says nothing.
	c = mustAddSet(t, s, newSetFiles(t, t.TempDir(), "a", "b")...)
	delete(space.data, string(keyNode(sha256.Sum256(encodeDir(st.entries)))))
	s = newStore(t, s.opt)
	if list := s.List(); len(list) > 0 {
		t.Errorf("listed: %+v", list)
	}
}

func TestConcurrentAddsOfOneSet(t *testing.T) {
	s, space := testStore(t)
	paths := newSetFiles(t, t.TempDir(), "a", "b", "c")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, err := s.Add(context.Background(), paths, nil)
			if err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				_, err = s.Add(context.Background(), paths[:2], nil)
			} else {
				err = s.touch(c.CID)
			}
			if err != nil {
				t.Error(err)
			}
			s.List()
		})
	}
	wg.Wait()
	list := s.List()
	if len(list) != 2 || len(s.files) != 3 || len(s.sets) != 2 {
		t.Fatalf("%d contents, %d files, %d sets", len(list), len(s.files), len(s.sets))
	}
	for _, c := range list {
		if _, err := s.Remove(c.CID, true); err != nil {
			t.Fatal(err)
		}
	}
	noLeftovers(t, space)
}

// Whatever is added and removed at once, each set is there whole or not at all.
func TestAddsAndRemovalsAtOnce(t *testing.T) {
	s, space := testStore(t)
	paths := newSetFiles(t, t.TempDir(), "a", "b", "c")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 10 {
				c, err := s.Add(context.Background(), paths[i%2:i%2+2], nil)
				if errors.Is(err, ErrFileChanged) {
					continue // removed while it was added, and said so
				}
				if err != nil {
					t.Error(err)
				}
				if _, err := s.Remove(c.CID, true); err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range s.List() {
		if !c.Complete {
			t.Errorf("half there: %+v", c)
		}
		if _, err := s.Remove(c.CID, true); err != nil {
			t.Error(err)
		}
	}
	noLeftovers(t, space)
}
