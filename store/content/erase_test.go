package content

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
)

// Erasing takes what was pulled, finished or not, and nothing else: not what was
// registered in place, nor what somebody put where a pulled file was.
func TestErase(t *testing.T) {
	var held []Content
	var holders []*peer
	to, space := testStore(t)
	for i := range 4 {
		p, c := holder(t, randomBytes(uint64(i+1), 300))
		holders, held = append(holders, p), append(held, c)
	}
	for i, name := range []string{"pulled", "changed", "gone"} {
		if _, err := pullFrom(t.Context(), to, held[i].CID, 300, name, holders[i], nil); err != nil {
			t.Fatal(err)
		}
	}
	// Unfinished: its holder has not all of it.
	holders[3].reply = func(n int, b blocks.Block) []blocks.Block {
		if n > 5 {
			return nil
		}
		return []blocks.Block{b}
	}
	if _, err := pullFrom(t.Context(), to, held[3].CID, 300, "unfinished", holders[3], nil); err == nil {
		t.Fatal("this pull was to fail")
	}
	changed, _ := to.Get(held[1].CID)
	gone, _ := to.Get(held[2].CID)
	writeFile(t, changed.Path, []byte("mine now"))
	if err := os.Remove(gone.Path); err != nil {
		t.Fatal(err)
	}
	// The same content as one that was pulled, and another, in their owner's place.
	both := newFile(t, randomBytes(1, 300))
	own := newFile(t, randomBytes(9, 300))
	mustAdd(t, to, both)
	mustAdd(t, to, own)

	done, err := to.Erase()
	if err != nil || done.Files != 1 || done.Unfinished != 1 || done.Bytes != 300 || !slices.Equal(done.Kept, []string{changed.Path}) {
		t.Errorf("%+v, %v", done, err)
	}
	if left := files(t, to.dir); len(left) != 1 {
		t.Errorf("in the models folder: %q", left)
	}
	holds(t, to, held[0].CID, randomBytes(1, 300))
	if list := to.List(); len(list) != 2 || !list[0].InPlace || !list[1].InPlace {
		t.Errorf("still known: %+v", list)
	}
	if list, err := to.Partials(); err != nil || len(list) > 0 {
		t.Errorf("unfinished: %v %v", list, err)
	}
	if again, err := to.Erase(); err != nil || again.Files+again.Unfinished+len(again.Kept) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	for _, c := range to.List() {
		if _, err := to.Remove(c.CID, false); err != nil {
			t.Fatal(err)
		}
	}
	if keys := space.leftovers(); len(keys) > 0 {
		t.Errorf("left in the tables: %q", keys)
	}
}

// pulledFile is a file that was pulled into a store, of randomBytes(1, 300).
func pulledFile(t *testing.T, to *Store) Content {
	t.Helper()
	p, held := holder(t, randomBytes(1, 300))
	c, err := pullFrom(t.Context(), to, held.CID, 300, "pulled", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What its owner adds is not erased, also where a pull had put the same bytes.
func TestEraseKeepsWhatWasAddedOverAPull(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"the pulled file itself": func(string) error { return nil },
		"under a new time":       func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)) },
		"a copy in its place":    func(path string) error { return os.Rename(newFile(t, randomBytes(1, 300)), path) },
	} {
		to, _ := testStore(t)
		c := pulledFile(t, to)
		if err := put(c.Path); err != nil {
			t.Fatal(err)
		}
		if added, err := to.Add(t.Context(), []string{c.Path}, nil); err != nil || !added.InPlace || added.CID != c.CID {
			t.Errorf("%s: added: %+v, %v", name, added, err)
		}
		to = newStore(t, to.opt)
		if done, err := to.Erase(); err != nil || done.Files+len(done.Kept) > 0 {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		holds(t, to, c.CID, randomBytes(1, 300))
	}
}

// A file that could not be deleted is not forgotten: Erase fails until it is gone,
// and does not take what has come in its place.
func TestEraseOfWhatCannotBeDeleted(t *testing.T) {
	locked := errors.New("locked")
	for name, restart := range map[string]bool{"by the same start": false, "by the next start": true} {
		to, space := testStore(t)
		c := pulledFile(t, to)
		to.opt.remove = func(string) error { return locked }
		for range 2 {
			if done, err := to.Erase(); !errors.Is(err, locked) || !errors.Is(err, ErrUnusable) || done.Files > 0 {
				t.Errorf("%s: %+v, %v", name, done, err)
			}
			if restart {
				to = newStore(t, to.opt)
			}
		}
		to.opt.remove = os.Remove
		if done, err := to.Erase(); err != nil || done.Files != 1 || done.Bytes != 300 {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if _, err := os.Lstat(c.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if keys := space.leftovers(); len(keys) > 0 {
			t.Errorf("%s: left in the tables: %q", name, keys)
		}
	}
}

// A deletion that failed is not that of what lies there by then.
func TestFailedDeletionKeepsWhatIsNotRelays(t *testing.T) {
	for name, put := range map[string]func(s *Store, path string) error{
		"other bytes": func(_ *Store, path string) error { return os.Rename(newFile(t, []byte("mine now")), path) },
		"added since": func(s *Store, path string) error { _, err := s.Add(t.Context(), []string{path}, nil); return err },
	} {
		for _, restart := range []bool{false, true} {
			to, _ := testStore(t)
			c := pulledFile(t, to)
			to.opt.remove = func(string) error { return errors.New("locked") }
			if _, err := to.Remove(c.CID, true); err == nil {
				t.Fatal("it was removed")
			}
			to.opt.remove = os.Remove
			if err := put(to, c.Path); err != nil {
				t.Fatal(err)
			}
			if restart {
				to = newStore(t, to.opt)
			}
			if done, err := to.Erase(); err != nil || done.Files > 0 {
				t.Errorf("%s: %+v, %v", name, done, err)
			}
			if _, err := os.Lstat(c.Path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// With its disk not mounted nothing is known to be deleted, nor after a start.
func TestEraseWithoutTheFolder(t *testing.T) {
	to, _ := testStore(t)
	pulledFile(t, to)
	p, held := holder(t, randomBytes(2, 300))
	p.reply = func(n int, b blocks.Block) []blocks.Block {
		if n > 5 {
			return nil
		}
		return []blocks.Block{b}
	}
	if _, err := pullFrom(t.Context(), to, held.CID, 300, "unfinished", p, nil); err == nil {
		t.Fatal("this pull was to fail")
	}
	if err := os.Rename(to.dir, to.dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		done, err := to.Erase()
		if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), to.dir+" is missing") || done.Files+done.Unfinished+len(done.Kept) > 0 {
			t.Errorf("%+v, %v", done, err)
		}
		to = newStore(t, to.opt)
	}
	if err := os.Rename(to.dir+".away", to.dir); err != nil {
		t.Fatal(err)
	}
	if done, err := to.Erase(); err != nil || done.Files != 1 || done.Unfinished != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if left := files(t, to.dir); len(left) > 0 {
		t.Errorf("in the models folder: %q", left)
	}
}

// What has taken the place of a pulled file is said to be kept, and is: a link,
// and what it leads to, also where that is the pulled file; a folder.
func TestEraseKeepsWhatIsNoFile(t *testing.T) {
	for name, put := range map[string]func(far, path string) error{
		"link":   os.Symlink,
		"folder": func(_, path string) error { return os.Mkdir(path, 0o700) },
	} {
		to, _ := testStore(t)
		c := pulledFile(t, to)
		far := filepath.Join(t.TempDir(), "far")
		if err := errors.Join(os.Rename(c.Path, far), put(far, c.Path)); err != nil {
			t.Fatal(err)
		}
		if done, err := to.Erase(); err != nil || done.Files > 0 || !slices.Equal(done.Kept, []string{c.Path}) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		for _, path := range []string{far, c.Path} {
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Two relays may share a models folder: what one pulled, the other keeps, also
// where a file of its own lay before.
func TestRemovalKeepsWhatAnotherRelayPulled(t *testing.T) {
	for name, remove := range map[string]func(s *Store, c Content) error{
		"removed":                   func(s *Store, c Content) error { _, err := s.Remove(c.CID, true); return err },
		"erased":                    func(s *Store, _ Content) error { _, err := s.Erase(); return err },
		"its pulled copies removed": func(s *Store, c Content) error { _, err := s.RemovePulled(c.CID); return err },
	} {
		one, _ := testStore(t)
		opt := testOptions(t, newMemSpace())
		opt.Dir = one.dir
		two := newStore(t, opt)
		c := pulledFile(t, one)
		if err := os.Remove(c.Path); err != nil {
			t.Fatal(err)
		}
		other := pulledFile(t, two)
		if other.Path != c.Path {
			t.Fatalf("%s and %s", c.Path, other.Path)
		}
		touch(t, other.Path)
		two.Add(t.Context(), []string{other.Path}, nil)
		if err := remove(one, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := two.Check(other.CID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
