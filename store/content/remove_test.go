package content

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// Of two copies the pulled one goes and the owner's stays, also where both are one
// file under two names; then nothing is freed.
func TestRemovePulledKeepsWhatIsInPlace(t *testing.T) {
	data := randomBytes(1, 300)
	for name, c := range map[string]struct {
		put   func(pulled, own string) error
		freed int64
	}{
		"a copy":    {func(_, own string) error { return os.WriteFile(own, data, 0o600) }, 300},
		"hard link": {os.Link, 0},
	} {
		if name == "hard link" && runtime.GOOS == "windows" {
			continue // It does not show how many names a file has.
		}
		s, space := testStore(t)
		pulled := pulledFile(t, s)
		own := filepath.Join(t.TempDir(), "own.gguf")
		if err := c.put(pulled.Path, own); err != nil {
			t.Fatal(err)
		}
		if got := mustAdd(t, s, own); got.CID != pulled.CID {
			t.Fatalf("%s: added: %+v", name, got)
		}
		if got, err := s.Get(pulled.CID); err != nil || got.Path != own || !got.InPlace || got.Pulled != pulled.Path {
			t.Errorf("%s: before: %+v %v", name, got, err)
		}
		done, err := s.RemovePulled(pulled.CID)
		if err != nil || done.Files != 1 || done.Bytes != c.freed || len(done.Kept) > 0 {
			t.Errorf("%s: %+v %v", name, done, err)
		}
		if _, err := os.Lstat(pulled.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		s = newStore(t, s.opt)
		if got, err := s.Get(pulled.CID); err != nil || got.Path != own || !got.InPlace || !got.Complete || got.Pulled != "" {
			t.Errorf("%s: after: %+v %v", name, got, err)
		}
		holds(t, s, pulled.CID, data)
		_, err = s.RemovePulled(pulled.CID)
		sentence(t, err, ErrNotFound, "not_found", pulled.CID.String())
		if done, err := s.Remove(pulled.CID, true); err != nil || done.Files+len(done.Kept) > 0 {
			t.Errorf("%s: %+v %v", name, done, err)
		}
		noLeftovers(t, space)
	}
}

// The pulled copy of a set goes, and its owner's stays.
func TestRemovePulledSetKeepsWhatIsInPlace(t *testing.T) {
	s, space := testStore(t)
	pulled := pulledSet(t, s, "a", "b", "c")
	dir := t.TempDir()
	var own []string
	for _, path := range pulled.Files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, writeFile(t, filepath.Join(dir, filepath.Base(path)), data))
	}
	mustAddSet(t, s, own...)
	if got, err := s.Get(pulled.CID); err != nil || got.Path != own[0] || !got.InPlace || got.Pulled != pulled.Path {
		t.Errorf("before: %+v %v", got, err)
	}
	if done, err := s.RemovePulled(pulled.CID); err != nil || done.Files != 3 || done.Bytes != pulled.Bytes {
		t.Errorf("%+v %v", done, err)
	}
	if left := files(t, s.dir); len(left) > 0 {
		t.Errorf("left in the models folder: %q", left)
	}
	if got, err := s.Get(pulled.CID); err != nil || !slices.Equal(got.Files, own) || !got.InPlace || !got.Complete || got.Pulled != "" {
		t.Errorf("after: %+v %v", got, err)
	}
	if _, err := s.Remove(pulled.CID, true); err != nil {
		t.Error(err)
	}
	noLeftovers(t, space)
}

// A file that a set needs is not freed by itself.
func TestRemovePulledPartOfASet(t *testing.T) {
	s, space := testStore(t)
	set := pulledSet(t, s, "a", "b", "c")
	part := s.fileByPath(set.Files[1])
	if err := s.claim(part.Root); err != nil {
		t.Fatal(err)
	}
	if done, err := s.RemovePulled(part.Root); err != nil || done.Files > 0 || !slices.Equal(done.Kept, set.Files[1:2]) {
		t.Errorf("%+v %v", done, err)
	}
	if err := s.Check(set.CID); err != nil {
		t.Error(err)
	}
	if done, err := s.RemovePulled(set.CID); err != nil || done.Files != 2 {
		t.Errorf("%+v %v", done, err)
	}
	if err := s.Check(part.Root); err != nil {
		t.Error(err)
	}
	if done, err := s.RemovePulled(part.Root); err != nil || done.Files != 1 || done.Bytes != part.Bytes {
		t.Errorf("%+v %v", done, err)
	}
	if left := files(t, s.dir); len(left) > 0 {
		t.Errorf("left in the models folder: %q", left)
	}
	noLeftovers(t, space)
}

// removals are the ways to delete what was pulled.
var removals = map[string]func(s *Store, c Content) (Removed, error){
	"remove":        func(s *Store, c Content) (Removed, error) { return s.Remove(c.CID, true) },
	"remove pulled": func(s *Store, c Content) (Removed, error) { return s.RemovePulled(c.CID) },
}

// What cannot be deleted counts as before, and no start deletes it.
func TestRemovalOfWhatCannotBeDeleted(t *testing.T) {
	locked := errors.New("locked")
	for name, remove := range removals {
		for kind, put := range map[string]func(*testing.T, *Store) Content{
			"file": pulledFile,
			"set":  func(t *testing.T, s *Store) Content { return pulledSet(t, s, "a", "b", "c") },
		} {
			s, space := testStore(t)
			c := put(t, s)
			s.opt.remove = func(string) error { return locked }
			done, err := remove(s, c)
			if !errors.Is(err, locked) || done.Files+len(done.Kept) > 0 || done.Bytes > 0 {
				t.Errorf("%s, %s: %+v %v", name, kind, done, err)
			}
			sentence(t, err, ErrUnusable, "state_unusable", "locked")
			s.opt.remove = os.Remove
			for range 2 {
				if list := s.List(); len(list) != 1 || !list[0].Complete || list[0].InPlace {
					t.Errorf("%s, %s: listed: %+v", name, kind, list)
				}
				s = newStore(t, s.opt)
			}
			if done, err := remove(s, c); err != nil || done.Files != max(1, len(c.Files)) || done.Bytes != c.Bytes {
				t.Errorf("%s, %s: %+v %v", name, kind, done, err)
			}
			if left := files(t, s.dir); len(left) > 0 {
				t.Errorf("%s, %s: left in the models folder: %q", name, kind, left)
			}
			noLeftovers(t, space)
		}
	}
}

// A set of which only some files were deleted, for one cannot be or the process
// was killed, says so at the next start; nothing more is deleted until it is
// removed again.
func TestRemovalOfASetCutOff(t *testing.T) {
	killed := errors.New("killed")
	for name, remove := range removals {
		for after := range 3 {
			s, space := testStore(t)
			set := pulledSet(t, s, "a", "b", "c")
			left := after
			s.opt.remove = func(path string) error {
				if left == 0 {
					return killed
				}
				left--
				return os.Remove(path)
			}
			if done, err := remove(s, set); !errors.Is(err, killed) || done.Files != after {
				t.Errorf("%s after %d: %+v %v", name, after, done, err)
			}
			s.opt.remove = os.Remove
			s = newStore(t, s.opt)
			if n := len(files(t, filepath.Dir(set.Path))); n != 3-after {
				t.Errorf("%s after %d: %d files are left", name, after, n)
			}
			if c, err := s.Get(set.CID); err != nil || c.Complete != (after == 0) || c.Pulled != set.Path {
				t.Errorf("%s after %d: %+v %v", name, after, c, err)
			}
			if done, err := remove(s, set); err != nil || done.Files != 3-after || len(done.Kept) > 0 {
				t.Errorf("%s after %d, again: %+v %v", name, after, done, err)
			}
			if left := files(t, s.dir); len(left) > 0 {
				t.Errorf("%s after %d: left in the models folder: %q", name, after, left)
			}
			noLeftovers(t, space)
		}
	}
}

// Of a pulled set that is broken the intact files go and what was changed stays.
func TestRemovalOfABrokenSet(t *testing.T) {
	for name, remove := range removals {
		s, space := testStore(t)
		set := pulledSet(t, s, "a", "b", "c", "d")
		lost := filepath.Join(t.TempDir(), "b")
		rename(t, set.Files[1], lost)
		moved := mustAdd(t, s, lost)
		writeFile(t, set.Files[2], []byte("mine now"))
		done, err := remove(s, set)
		if err != nil || done.Files != 2 || done.Bytes != 300+303 || !slices.Equal(done.Kept, set.Files[2:3]) {
			t.Errorf("%s: %+v %v", name, done, err)
		}
		if left := files(t, filepath.Dir(set.Path)); !slices.Equal(left, []string{filepath.Base(set.Files[2])}) {
			t.Errorf("%s: left in the folder: %q", name, left)
		}
		if list := s.List(); len(list) != 1 || list[0].CID != moved.CID || !list[0].Complete {
			t.Errorf("%s: listed: %+v", name, list)
		}
		if _, err := s.Remove(moved.CID, true); err != nil {
			t.Error(err)
		}
		noLeftovers(t, space)
	}
}

// A link in the place of a pulled file, or of a set's folder, and what it leads to
// are nobody's to delete; where that is all there is, the content counts as
// before unless all of it is to be forgotten.
func TestRemovalSparesLinks(t *testing.T) {
	for name, remove := range removals {
		for kind, put := range map[string]func(*testing.T, *Store) (c Content, link string){
			"file": func(t *testing.T, s *Store) (Content, string) { c := pulledFile(t, s); return c, c.Path },
			"set": func(t *testing.T, s *Store) (Content, string) {
				c := pulledSet(t, s, "a", "b", "c")
				return c, filepath.Dir(c.Path)
			},
		} {
			s, space := testStore(t)
			c, link := put(t, s)
			far := filepath.Join(t.TempDir(), "far")
			if err := errors.Join(os.Rename(link, far), os.Symlink(far, link)); err != nil {
				t.Fatal(err)
			}
			done, err := remove(s, c)
			if err != nil || done.Files > 0 || done.Bytes > 0 || len(done.Kept) != max(1, len(c.Files)) {
				t.Errorf("%s, %s: %+v %v", name, kind, done, err)
			}
			for _, path := range []string{far, link, c.Path} {
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("%s, %s: %v", name, kind, err)
				}
			}
			if got, err := s.Get(c.CID); name == "remove" && !errors.Is(err, ErrNotFound) || name != "remove" && (err != nil || !got.Complete) {
				t.Errorf("%s, %s: %+v %v", name, kind, got, err)
			}
			if name != "remove" {
				if _, err := s.Remove(c.CID, true); err != nil {
					t.Error(err)
				}
			}
			noLeftovers(t, space)
		}
	}
}
