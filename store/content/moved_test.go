package content

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// needsInodes skips a test where files are not told by an inode.
func needsInodes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a moved file is not known again without inodes")
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestMovedFileIsRelinked(t *testing.T) {
	needsInodes(t)
	for name, pulled := range map[string]bool{"in place": false, "pulled": true} {
		s, space := testStore(t)
		var c Content
		if pulled {
			c = pulledFile(t, s)
		} else {
			c = mustAdd(t, s, newFile(t, randomBytes(1, 300)))
		}
		entries := space.leftovers()
		to := filepath.Join(t.TempDir(), "elsewhere", "other.gguf")
		rename(t, c.Path, to)
		sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", c.Path, "not there any more")
		again, hashed := addSees(t, s, to)
		if hashed || again.CID != c.CID || again.Path != to || !again.Complete || !again.InPlace {
			t.Errorf("%s: hashed %v, %+v", name, hashed, again)
		}
		if after := space.leftovers(); !slices.Equal(entries, after) {
			t.Errorf("%s: the tables were %q and are %q", name, entries, after)
		}
		for range 2 {
			holds(t, s, c.CID, randomBytes(1, 300))
			s = newStore(t, s.opt)
		}
		if _, err := s.Remove(c.CID, true); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(to); err != nil {
			t.Errorf("%s: what its owner added was deleted", name)
		}
		noLeftovers(t, space)
	}
}

// A second name of a file is a second copy of it, and not hashed either.
func TestSecondNameIsNotHashed(t *testing.T) {
	needsInodes(t)
	for name, link := range map[string]func(from, to string) error{"hard": os.Link, "symbolic": os.Symlink} {
		s, space := testStore(t)
		one := newFile(t, randomBytes(1, 300))
		two := filepath.Join(filepath.Dir(one), "two")
		c := mustAdd(t, s, one)
		if err := link(one, two); err != nil {
			t.Fatal(err)
		}
		if again, hashed := addSees(t, s, two); hashed || again.CID != c.CID || again.Path != two {
			t.Errorf("%s: hashed %v, %+v", name, hashed, again)
		}
		if name == "hard" {
			if err := os.Remove(one); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.files); n != 2 {
			t.Errorf("%s: %d files", name, n)
		}
		holds(t, s, c.CID, randomBytes(1, 300))
		if _, err := s.Remove(c.CID, true); err != nil {
			t.Fatal(err)
		}
		noLeftovers(t, space)
	}
}

// Moved over another registered file, it is what that path has.
func TestMovedOverAnother(t *testing.T) {
	needsInodes(t)
	for name, other := range map[string][]byte{"other bytes": randomBytes(2, 400), "the same bytes": randomBytes(1, 300)} {
		s, space := testStore(t)
		one, two := newFile(t, randomBytes(1, 300)), newFile(t, other)
		c, before := mustAdd(t, s, one), mustAdd(t, s, two)
		rename(t, one, two)
		if again, hashed := addSees(t, s, two); hashed || again.CID != c.CID {
			t.Errorf("%s: hashed %v, %+v", name, hashed, again)
		}
		if _, err := s.Get(before.CID); before.CID != c.CID && !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: the old content: %v", name, err)
		}
		for range 2 {
			if list := s.List(); len(list) != 1 || len(s.files) != 1 {
				t.Errorf("%s: listed: %+v", name, list)
			}
			holds(t, s, c.CID, randomBytes(1, 300))
			s = newStore(t, s.opt)
		}
		if _, err := s.Remove(c.CID, true); err != nil {
			t.Fatal(err)
		}
		noLeftovers(t, space)
	}
}

// An inode that is used again, with the same size and time, is another file.
func TestAnotherFileUnderTheSameStampIsHashed(t *testing.T) {
	needsInodes(t)
	s, _ := testStore(t)
	c := mustAdd(t, s, newFile(t, randomBytes(1, 3000)))
	to := filepath.Join(t.TempDir(), "other.gguf")
	rename(t, c.Path, to)
	writeOver(t, to, randomBytes(2, 3000))
	again, hashed := addSees(t, s, to)
	if !hashed || again.CID == c.CID {
		t.Errorf("hashed %v, %+v", hashed, again)
	}
	holds(t, s, again.CID, randomBytes(2, 3000))
}

func TestWithoutInodesNothingIsRelinked(t *testing.T) {
	s, _ := testStore(t)
	c := mustAdd(t, s, newFile(t, randomBytes(1, 300)))
	in, err := os.Open(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	f := *s.fileByPath(c.Path)
	f.Stamp.Inode = 0
	s.setFile(&f)
	if from, leaves := s.moved(t.Context(), in, f.Stamp); from != nil || leaves != nil {
		t.Error("found by size and time alone")
	}
}

// A set that was moved is the same set; one part changed, only that is hashed.
func TestMovedSet(t *testing.T) {
	needsInodes(t)
	s, space := testStore(t)
	dir := filepath.Join(t.TempDir(), "one")
	c := mustAddSet(t, s, newSetFiles(t, dir, "a", "b", "c")...)
	entries := space.leftovers()
	to := dir + "-moved"
	rename(t, dir, to)
	var paths []string
	for _, path := range c.Files {
		paths = append(paths, filepath.Join(to, filepath.Base(path)))
	}
	again, hashed := addSees(t, s, paths...)
	if hashed || again.CID != c.CID || !slices.Equal(again.Files, paths) || !again.Complete {
		t.Errorf("hashed %v, %+v", hashed, again)
	}
	if n := len(space.leftovers()); n != len(entries) {
		t.Errorf("%d entries, were %d", n, len(entries))
	}
	s = newStore(t, s.opt)
	if list := s.List(); len(list) != 1 || !same(list[0], again) {
		t.Errorf("listed: %+v", list)
	}
	// Moved back, with b changed.
	rename(t, to, dir)
	writeFile(t, c.Files[1], randomBytes(9, 301))
	touch(t, c.Files[1])
	other, _ := testStore(t)
	want := mustAddSet(t, other, c.Files...)
	changed, hashed := addSees(t, s, c.Files...)
	if !hashed || !same(changed, want) {
		t.Errorf("hashed %v, %+v", hashed, changed)
	}
	// The old b lies nowhere, so the old set is not whole.
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", paths[0], "not there any more", "add the model again")
	for _, root := range []Content{c, changed} {
		if _, err := s.Remove(root.CID, true); err != nil {
			t.Fatal(err)
		}
	}
	noLeftovers(t, space)
}

// TestCrashWhileRelinking: after a restart a moved file or set can be added again,
// and nothing of it is left behind.
func TestCrashWhileRelinking(t *testing.T) {
	needsInodes(t)
	for n := 0; ; n++ {
		s, space := testStore(t)
		root := t.TempDir()
		from, to := filepath.Join(root, "from"), filepath.Join(root, "to")
		set := mustAddSet(t, s, newSetFiles(t, from, "a", "b", "c")...)
		lone := mustAdd(t, s, writeFile(t, filepath.Join(from, "lone"), randomBytes(7, 300)))
		over := mustAdd(t, s, writeFile(t, filepath.Join(root, "over"), randomBytes(8, 300)))
		rename(t, from, to)
		rename(t, filepath.Join(to, "lone"), over.Path)
		var paths []string
		for _, path := range set.Files {
			paths = append(paths, filepath.Join(to, filepath.Base(path)))
		}
		space.dieAfter(n)
		_, setErr := s.Add(t.Context(), paths, nil)
		_, loneErr := s.Add(t.Context(), []string{over.Path}, nil)
		space.dieAfter(-1)
		s = newStore(t, s.opt)
		if got := mustAddSet(t, s, paths...); got.CID != set.CID {
			t.Fatalf("dead after %d: %+v", n, got)
		}
		if got := mustAdd(t, s, over.Path); got.CID != lone.CID {
			t.Fatalf("dead after %d: %+v", n, got)
		}
		if list := s.List(); len(list) != 2 || !list[0].Complete || !list[1].Complete {
			t.Fatalf("dead after %d: listed: %+v", n, list)
		}
		for _, c := range []Content{set, lone} {
			if _, err := s.Remove(c.CID, true); err != nil {
				t.Fatal(err)
			}
		}
		noLeftovers(t, space)
		if setErr == nil && loneErr == nil {
			if n < 6 {
				t.Fatalf("all was over after %d transactions: nothing was tested", n)
			}
			return
		}
	}
}
