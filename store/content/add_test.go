package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/boxo/blockstore"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"

	"relay/store"
)

func TestAddOverBadgerInTheRealLayout(t *testing.T) {
	s := realStore(t)
	for _, size := range []int{0, 1, chunkSize, 5*chunkSize + 3} {
		data := randomBytes(uint64(size), size)
		path := newFile(t, data)
		c := mustAdd(t, s, path)
		want, _ := boxoImport(t, bytes.NewReader(data), layout{chunk: chunkSize, links: linkCount})
		if !same(c, Content{CID: want, Bytes: int64(size), Path: path, InPlace: true, Complete: true}) {
			t.Errorf("%d bytes: %+v, boxo's root is %s", size, c, want)
		}
		holds(t, s, c.CID, data)
	}
	if n := len(s.List()); n != 4 {
		t.Errorf("%d contents are listed", n)
	}
}

func TestAddKeepsNoSecondCopy(t *testing.T) {
	s, space := testStore(t)
	opt := s.opt
	opt.layout = layout{}
	s = newStore(t, opt)
	mustAdd(t, s, newFile(t, randomBytes(1, 8*chunkSize)))
	size := 0
	for k, v := range space.data {
		size += len(k) + len(v)
	}
	if size > 4096 {
		t.Errorf("the tables of 8 MiB take %d bytes", size)
	}
	if names := files(t, s.dir); len(names) > 0 {
		t.Errorf("in the models folder: %q", names)
	}
}

func TestAddAgainIsQuickUntilTheFileChanges(t *testing.T) {
	s, space := testStore(t)
	data := randomBytes(1, 300)
	path := newFile(t, data)
	first := mustAdd(t, s, path)
	read := func() (Content, bool) {
		t.Helper()
		hashed := false
		c, err := s.Add(t.Context(), []string{path}, func(Progress) { hashed = true })
		if err != nil {
			t.Fatal(err)
		}
		return c, hashed
	}
	tables := len(space.leftovers())
	if c, hashed := read(); hashed || !same(c, first) {
		t.Errorf("unchanged: %+v, hashed %v", c, hashed)
	}
	// Also after a restart.
	s = newStore(t, s.opt)
	if c, hashed := read(); hashed || !same(c, first) {
		t.Errorf("unchanged, after a restart: %+v, hashed %v", c, hashed)
	}
	// Touched: hashed again, the same content.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(first.CID); !errors.Is(err, ErrFileChanged) {
		t.Errorf("touched, and Check says %v", err)
	}
	if c, hashed := read(); !hashed || !same(c, first) {
		t.Errorf("touched: %+v, hashed %v", c, hashed)
	}
	if n := len(space.leftovers()); n != tables {
		t.Errorf("%d entries, were %d", n, tables)
	}
	if _, hashed := read(); hashed {
		t.Error("the new time was not remembered")
	}
	// Other bytes: other content, the old one is gone with its tables.
	changed := randomBytes(2, 300)
	writeFile(t, path, changed)
	c, _ := read()
	if c.CID == first.CID {
		t.Fatal("other bytes, same CID")
	}
	if _, err := s.Get(first.CID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the old content: %v", err)
	}
	holds(t, s, c.CID, changed)
	if n := len(space.leftovers()); n != tables {
		t.Errorf("%d entries, were %d", n, tables)
	}
}

func TestAddRefusesWhatIsNoFile(t *testing.T) {
	s, space := testStore(t)
	dir := t.TempDir()
	_, err := s.Add(t.Context(), []string{filepath.Join(dir, "nothing.gguf")}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", "nothing.gguf", "no such file")
	_, err = s.Add(t.Context(), []string{dir}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", dir, "regular file")
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, MaxBytes+1); err == nil { // not every disk has files that large
		_, err = s.Add(t.Context(), []string{huge}, nil)
		sentence(t, err, ErrFileInvalid, "file_invalid", huge, "4.0 TiB")
	}
	noLeftovers(t, space)
}

func TestAddNoticesChangesWhileItReads(t *testing.T) {
	path := newFile(t, nil)
	for name, change := range map[string]func(){
		"grew":     func() { appendTo(t, path, "more") },
		"rewrote":  func() { writeFile(t, path, randomBytes(9, 4000)); touch(t, path) },
		"cut":      func() { os.Truncate(path, 100) },
		"vanished": func() { os.Remove(path) },
		"replaced": func() { os.Remove(path); writeFile(t, path, randomBytes(1, 4000)); touch(t, path) },
	} {
		s, space := testStore(t)
		writeFile(t, path, randomBytes(1, 4000))
		var once sync.Once
		_, err := s.Add(t.Context(), []string{path}, func(Progress) { once.Do(change) })
		if err == nil {
			t.Errorf("%s: added", name)
			continue
		}
		sentence(t, err, ErrFileChanged, "file_changed", path)
		noLeftovers(t, space)
	}
}

func appendTo(t *testing.T, path, text string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
}

// touch makes sure that a change shows in the file's time, whatever the grain of
// the disk's clock.
func touch(t *testing.T, path string) {
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
}

func TestAddStopsWithItsContext(t *testing.T) {
	s, space := testStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Add(ctx, []string{newFile(t, randomBytes(1, 100000))}, func(Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	noLeftovers(t, space)
}

func TestAddReportsProgress(t *testing.T) {
	s, _ := testStore(t)
	var all []Progress
	if _, err := s.Add(t.Context(), []string{newFile(t, randomBytes(1, 1000))}, func(p Progress) { all = append(all, p) }); err != nil {
		t.Fatal(err)
	}
	if last := all[len(all)-1]; last.Phase != PhaseFinish || last.Done != 1000 || last.Total != 1000 || all[0].Phase != PhaseHash {
		t.Errorf("progress: %+v", all)
	}
	if !slices.IsSortedFunc(all, func(a, b Progress) int { return int(a.Done - b.Done) }) {
		t.Errorf("it goes backwards: %+v", all)
	}
}

func TestConcurrentAddsOfOneFile(t *testing.T) {
	s, space := testStore(t)
	data := randomBytes(1, 2000)
	path := newFile(t, data)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Add(context.Background(), []string{path}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list := s.List()
	if len(list) != 1 || len(s.files) != 1 {
		t.Fatalf("%d contents in %d files", len(list), len(s.files))
	}
	holds(t, s, list[0].CID, data)
	if _, err := s.Remove(list[0].CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// leafOf gets one leaf of content by itself.
func leafOf(t *testing.T, s *Store, c Content, i int) (blocks.Block, error) {
	t.Helper()
	leaves, err := s.storedLeaves(c.CID, c.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return s.Blocks().Get(t.Context(), makeCID(leaves[i], true))
}

func TestBlocksInSeveralPlaces(t *testing.T) {
	s, _ := testStore(t)
	data := randomBytes(1, 500)
	one, two := newFile(t, data), newFile(t, data)
	c := mustAdd(t, s, one)
	if again := mustAdd(t, s, two); again.CID != c.CID {
		t.Fatal("one content, two CIDs")
	}
	if n := len(s.List()); n != 1 {
		t.Fatalf("%d contents are listed", n)
	}
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	holds(t, s, c.CID, data)
	if path, err := s.Path(c.CID); err != nil || path != two {
		t.Errorf("path %q %v, want the copy that is left", path, err)
	}
	// Its place taken by something else, which is as long.
	writeFile(t, two, randomBytes(2, 500))
	touch(t, two)
	_, err := leafOf(t, s, c, 0)
	sentence(t, err, ErrFileChanged, "file_changed", one, "not there")
	if !ipld.IsNotFound(err) {
		t.Errorf("to boxo this is no missing block: %v", err)
	}
	sentence(t, s.Check(c.CID), ErrFileChanged, "file_changed", one)
	if got, err := s.Get(c.CID); err != nil || got.Complete {
		t.Errorf("still complete: %+v %v", got, err)
	}
	// Put back, all is well, without adding it again.
	writeFile(t, one, data)
	got, err := readAll(s, c.CID)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("after it was put back: %v", err)
	}
}

func TestTouchedFileIsServedByItsHashes(t *testing.T) {
	s, _ := testStore(t)
	data := randomBytes(1, 500)
	path := newFile(t, data)
	c := mustAdd(t, s, path)
	touch(t, path)
	if got, err := readAll(s, c.CID); err != nil || !bytes.Equal(got, data) {
		t.Errorf("touched: %v", err)
	}
	// The engine does not hash, so it does not get it.
	_, err := s.Path(c.CID)
	sentence(t, err, ErrFileChanged, "file_changed", path, "written at", "add the model again")
	// One leaf changed: that block is gone, the others are not.
	changed := bytes.Clone(data)
	changed[100] ^= 1
	writeFile(t, path, changed)
	touch(t, path)
	leaves, err := s.storedLeaves(c.CID, 500)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range leaves {
		has, err := s.Blocks().Has(t.Context(), makeCID(d, true))
		if err != nil || has == (i == 100/16) {
			t.Errorf("leaf %d: has %v %v", i, has, err)
		}
	}
}

func TestHashOnReadFindsSilentChanges(t *testing.T) {
	s, _ := testStore(t)
	data := randomBytes(1, 500)
	path := newFile(t, data)
	c := mustAdd(t, s, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// Bit rot: size, time and inode stay.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{data[0] ^ 1}, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(c.CID); err != nil {
		t.Fatalf("the change shows: %v", err)
	}
	opt := s.opt
	opt.HashOnRead = true
	_, err = leafOf(t, newStore(t, opt), c, 0)
	sentence(t, err, ErrFileChanged, "file_changed", path, "disk may be failing")
}

func TestBlockstoreContract(t *testing.T) {
	s, _ := testStore(t)
	data := randomBytes(1, 500)
	c := mustAdd(t, s, newFile(t, data))
	bs := s.Blocks()
	ctx := t.Context()
	keys, err := bs.AllKeysChan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[cid.Cid]int{}
	for k := range keys {
		seen[k]++
	}
	_, nodes := ourImport(t, bytes.NewReader(data), 500, small)
	if want := len(nodes) + small.leaves(500); len(seen) != want {
		t.Errorf("%d blocks are listed, want %d", len(seen), want)
	}
	for k := range seen {
		b, err := bs.Get(ctx, k)
		if err != nil {
			t.Fatal(err)
		}
		size, err := bs.GetSize(ctx, k)
		if err != nil || size != len(b.RawData()) {
			t.Errorf("%s: size %d of %d, %v", k, size, len(b.RawData()), err)
		}
		if has, err := bs.Has(ctx, k); err != nil || !has {
			t.Errorf("%s: has %v %v", k, has, err)
		}
		if sum, err := k.Prefix().Sum(b.RawData()); err != nil || sum != k || b.Cid() != k {
			t.Errorf("%s: other bytes", k)
		}
		if err := bs.DeleteBlock(ctx, k); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: deleted from under its file: %v", k, err)
		}
		// Here already, so nothing to do.
		if err := bs.Put(ctx, b); err != nil {
			t.Errorf("%s: put: %v", k, err)
		}
	}
	if has, err := bs.Has(ctx, cid.NewCidV1(cid.DagCBOR, c.CID.Hash())); err != nil || has {
		t.Errorf("by another codec: %v %v", has, err)
	}

	unknown := blocks.NewBlock([]byte("nobody has this"))
	if _, err := bs.Get(ctx, unknown.Cid()); !ipld.IsNotFound(err) || errors.Is(err, ErrFileChanged) {
		t.Errorf("an unknown block: %v", err)
	}
	if has, err := bs.Has(ctx, unknown.Cid()); err != nil || has {
		t.Errorf("an unknown block: %v %v", has, err)
	}
	if _, err := bs.GetSize(ctx, unknown.Cid()); !ipld.IsNotFound(err) {
		t.Errorf("an unknown block: %v", err)
	}
	if _, err := bs.Get(ctx, cid.Undef); !ipld.IsNotFound(err) {
		t.Errorf("no CID: %v", err)
	}
	if err := bs.DeleteBlock(ctx, unknown.Cid()); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}

	raw, err := blocks.NewBlockWithCid(unknown.RawData(), cid.NewCidV1(cid.Raw, unknown.Cid().Hash()))
	if err != nil {
		t.Fatal(err)
	}
	sentence(t, bs.Put(ctx, raw), ErrNoPlace, "internal")
	lying, err := blocks.NewBlockWithCid([]byte("other bytes"), unknown.Cid())
	if err != nil {
		t.Fatal(err)
	}
	if err := bs.Put(ctx, lying); !errors.Is(err, blockstore.ErrHashMismatch) {
		t.Errorf("a block that is not what its CID says: %v", err)
	}
	node := encodeNode([]link{{leaf: true, size: 1, total: 1}})
	loose, err := blocks.NewBlockWithCid(node, makeCID(sha256.Sum256(node), false))
	if err != nil {
		t.Fatal(err)
	}
	if err := bs.PutMany(ctx, []blocks.Block{loose, loose}); err != nil {
		t.Fatal(err)
	}
	if got, err := bs.Get(ctx, loose.Cid()); err != nil || !bytes.Equal(got.RawData(), node) {
		t.Errorf("a node by itself: %v", err)
	}
	if err := bs.DeleteBlock(ctx, loose.Cid()); err != nil {
		t.Fatal(err)
	}
	if has, err := bs.Has(ctx, loose.Cid()); err != nil || has {
		t.Errorf("deleted, and there: %v %v", has, err)
	}
	large := make([]byte, maxNode+1)
	tooLarge, err := blocks.NewBlockWithCid(large, makeCID(sha256.Sum256(large), false))
	if err != nil {
		t.Fatal(err)
	}
	sentence(t, bs.Put(ctx, tooLarge), ErrNoPlace, "internal")
}

func TestAllKeysStopsWithItsContext(t *testing.T) {
	s, _ := testStore(t)
	mustAdd(t, s, newFile(t, randomBytes(1, 5000)))
	ctx, cancel := context.WithCancel(t.Context())
	keys, err := s.Blocks().AllKeysChan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-keys
	cancel()
	for range keys { // it closes the channel
	}
}

func TestRemove(t *testing.T) {
	s, space := testStore(t)
	shared := randomBytes(1, 480)
	one := mustAdd(t, s, newFile(t, append(bytes.Clone(shared), "one"...)))
	other := append(bytes.Clone(shared), "two"...)
	two := mustAdd(t, s, newFile(t, other))
	if _, err := s.Remove(one.CID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(one.Path); err != nil {
		t.Errorf("a file in place was deleted: %v", err)
	}
	if _, err := s.Get(one.CID); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed, and %v", err)
	}
	if _, err := readAll(s, one.CID); !ipld.IsNotFound(err) {
		t.Errorf("removed, and its blocks say %v", err)
	}
	holds(t, s, two.CID, other)
	_, err := s.Remove(one.CID, false)
	sentence(t, err, ErrNotFound, "not_found", one.CID.String())
	if _, err := s.Remove(two.CID, false); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// TestRemoveOnAFullDisk: the file to be deleted may be what fills the disk, so
// that the database refuses to write that it goes.
func TestRemoveOnAFullDisk(t *testing.T) {
	p, held := holder(t, randomBytes(1, 300))
	to, space := testStore(t)
	c, err := pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	space.refuse = func() error {
		if _, err := os.Stat(c.Path); err == nil {
			return store.ErrDiskFull
		}
		return nil
	}
	_, err = to.Remove(held.CID, false)
	sentence(t, err, store.ErrDiskFull, "disk_full")
	if _, err := to.Remove(held.CID, true); err != nil {
		t.Error(err)
	}
	noLeftovers(t, space)
}

// TestZeros: a file with one leaf a thousand times over must not fill the tables.
func TestZeros(t *testing.T) {
	s, space := testStore(t)
	data := make([]byte, 16*2000)
	c := mustAdd(t, s, newFile(t, data))
	holds(t, s, c.CID, data)
	for k, v := range space.data {
		if k[0] == tableLeaves && len(v) > 200 {
			t.Errorf("an entry of %d bytes", len(v))
		}
	}
	if _, err := s.Remove(c.CID, false); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}

// TestCrashWhileAdding lets the process die after each transaction of an Add, and
// of the Remove that follows: after a restart the content is there whole or not
// at all, and nothing is left of what is not.
func TestCrashWhileAdding(t *testing.T) {
	data := randomBytes(1, 300)
	kept := append(bytes.Clone(data[:160]), "kept"...) // shares blocks and nodes
	for n := 0; ; n++ {
		space := newMemSpace()
		opt := testOptions(t, space)
		s := newStore(t, opt)
		other := mustAdd(t, s, newFile(t, kept))
		before := space.leftovers()
		path := newFile(t, data)
		space.dieAfter(n)
		c, addErr := s.Add(t.Context(), []string{path}, nil)
		if addErr != nil && !errors.Is(addErr, errCrash) {
			t.Fatal(addErr)
		}
		space.dieAfter(-1)
		s = newStore(t, opt)
		if addErr != nil {
			if after := space.leftovers(); !slices.Equal(before, after) {
				t.Fatalf("dead after %d: the tables were %q and are %q", n, before, after)
			}
			if got := mustAdd(t, s, path); !got.Complete {
				t.Fatalf("dead after %d: adding again: %+v", n, got)
			}
		} else {
			holds(t, s, c.CID, data)
		}
		root := s.fileByPath(path).Root

		space.dieAfter(n)
		_, removeErr := s.Remove(root, true)
		if removeErr != nil && !errors.Is(removeErr, errCrash) {
			t.Fatal(removeErr)
		}
		space.dieAfter(-1)
		s = newStore(t, opt)
		if _, err := s.Get(root); err == nil {
			// It died before the removal was on disk.
			if n > 0 {
				t.Fatalf("dead after %d: half removed, and there", n)
			}
			holds(t, s, root, data)
		} else if after := space.leftovers(); !slices.Equal(before, after) {
			t.Fatalf("dead after %d: removal left %q instead of %q", n, after, before)
		}
		holds(t, s, other.CID, kept)
		if addErr == nil && removeErr == nil {
			if n < 4 {
				t.Fatalf("all was over after %d transactions: nothing was tested", n)
			}
			return
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := testOptions(t, newMemSpace())
	for name, spoil := range map[string]func(*Options){
		"Space": func(o *Options) { o.Space = nil },
		"Dir":   func(o *Options) { o.Dir = "" },
		"Stall": func(o *Options) { o.Stall = -1 },
	} {
		bad := good
		spoil(&bad)
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := newFile(t, nil)
	bad := good
	bad.Dir = filepath.Join(file, "models")
	_, err := New(bad)
	sentence(t, err, ErrUnusable, "state_unusable", file, "RELAY_MODELS_DIR")
}

func TestUnreadableRecordsAreLeftAlone(t *testing.T) {
	s, space := testStore(t)
	data := randomBytes(1, 100)
	c := mustAdd(t, s, newFile(t, data))
	space.data[string(keyFile(99))] = "{"
	space.data[string(keyFile(98))] = `{"id":98,"state":"of a later relay","root":"` + "AVUSIA" + `"}`
	s = newStore(t, s.opt)
	holds(t, s, c.CID, data)
	if _, ok := space.data[string(keyFile(99))]; !ok {
		t.Error("it was deleted")
	}
}

// Hash says what files are and changes nothing: what is known of their paths is
// replaced only when they are registered.
func TestHashChangesNothing(t *testing.T) {
	s, space := testStore(t)
	path := newFile(t, randomBytes(1, 300))
	old := mustAdd(t, s, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before := space.leftovers()
	record := space.data[string(keyFile(s.fileByPath(path).ID))]

	writeFile(t, path, randomBytes(2, 300))
	touch(t, path)
	h, err := s.Hash(t.Context(), []string{path}, nil)
	if err != nil || h.CID == old.CID || h.Bytes != 300 || !slices.Equal(h.Paths, []string{path}) {
		t.Errorf("%+v %v", h, err)
	}
	if after := space.leftovers(); !slices.Equal(before, after) || space.data[string(keyFile(s.fileByPath(path).ID))] != record {
		t.Error("the tables changed")
	}
	// The right bytes come back, and are what they were.
	writeFile(t, path, randomBytes(1, 300))
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(old.CID); err != nil {
		t.Error(err)
	}
	_, err = s.AddHashed(h)
	sentence(t, err, ErrFileChanged, "file_changed", path)
	if err := s.Check(old.CID); err != nil {
		t.Error(err)
	}
	holds(t, s, old.CID, randomBytes(1, 300))
}

// What Hash says is what is registered then: of a file, of a set, of what is known
// already and of what was moved.
func TestHashThenAdd(t *testing.T) {
	s, space := testStore(t)
	dir := t.TempDir()
	paths := newSetFiles(t, filepath.Join(dir, "x"), "a", "b", "c")
	add := func(paths ...string) {
		t.Helper()
		h, err := s.Hash(t.Context(), paths, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.AddHashed(h)
		if err != nil || c.CID != h.CID || c.Bytes != h.Bytes || c.Path != h.Paths[0] || (len(paths) > 1 && !slices.Equal(c.Files, h.Paths)) {
			t.Errorf("%+v is registered as %+v %v", h, c, err)
		}
	}
	add(paths[0])
	add(paths[2], paths[0], paths[1])
	add(paths...)
	rename(t, filepath.Join(dir, "x"), filepath.Join(dir, "y"))
	for i, path := range paths {
		paths[i] = filepath.Join(dir, "y", filepath.Base(path))
	}
	add(paths...)

	// Removed meanwhile.
	h, err := s.Hash(t.Context(), paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.List() {
		if _, err := s.Remove(c.CID, false); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.AddHashed(h)
	sentence(t, err, ErrFileChanged, "file_changed", paths[0])
	noLeftovers(t, space)
}
