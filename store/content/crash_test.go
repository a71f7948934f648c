package content

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// TestCrashWhilePulling lets the process die after each transaction of a pull, in
// turn: after a restart the pull goes on, fetches no leaf again that was written,
// and ends right.
func TestCrashWhilePulling(t *testing.T) {
	data := randomBytes(1, 16*200)
	for n := 0; ; n++ {
		p, held := holder(t, data)
		space := newMemSpace()
		opt := testOptions(t, space)
		opt.commitBytes = 16 * 20
		to := newStore(t, opt)
		space.dieAfter(n)
		_, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil)
		if err == nil {
			if n < 8 {
				t.Fatalf("all was over after %d transactions: nothing was tested", n)
			}
			return
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		space.dieAfter(-1)
		leaves, _ := p.sent()
		to = newStore(t, opt)
		if _, err := to.Get(held.CID); err == nil {
			t.Fatalf("dead after %d: half pulled, and it counts as here", n)
		}
		if _, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil); err != nil {
			t.Fatalf("dead after %d: it does not go on: %v", n, err)
		}
		for k, asked := range p.asked {
			if leaves > 0 && asked > 1 && k.Type() == cid.DagProtobuf {
				t.Errorf("dead after %d, and inner node %s came twice", n, k)
			}
		}
		// The leaves on their way when it died may come twice, no others.
		if again, _ := p.sent(); again > small.leaves(held.Bytes)+perRequest*fetchers {
			t.Errorf("dead after %d: %d leaves were sent before, %d in all, of %d", n, leaves, again, small.leaves(held.Bytes))
		}
		holds(t, to, held.CID, data)
		if _, err := to.Remove(held.CID, true); err != nil {
			t.Fatal(err)
		}
		noLeftovers(t, space)
		if names := files(t, to.dir); len(names) > 0 {
			t.Fatalf("dead after %d: left in the folder: %q", n, names)
		}
	}
}

// TestCrashThenRemoved is the same, but the pull is given up afterwards.
func TestCrashThenRemoved(t *testing.T) {
	data := randomBytes(1, 16*40)
	for n := 0; ; n++ {
		p, held := holder(t, data)
		space := newMemSpace()
		opt := testOptions(t, space)
		to := newStore(t, opt)
		space.dieAfter(n)
		_, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil)
		if err == nil {
			return
		}
		space.dieAfter(-1)
		to = newStore(t, opt)
		if err := to.RemovePartial(held.CID); err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		noLeftovers(t, space)
		if names := files(t, to.dir); len(names) > 0 {
			t.Fatalf("dead after %d: left in the folder: %q", n, names)
		}
	}
}

// TestPowerLossWhilePulling is the harder death: of the unfinished file only what
// was synced is left. If a bitmap were committed before its bytes, or a reference
// written before them, the pulled file would have holes.
func TestPowerLossWhilePulling(t *testing.T) {
	data := randomBytes(1, 16*200)
	for n := 0; ; n++ {
		p, held := holder(t, data)
		space := newMemSpace()
		opt := testOptions(t, space)
		opt.commitBytes = 16 * 20
		var mu sync.Mutex
		var synced []byte // the unfinished file as it was last synced
		var onDisk []byte // the same when the last transaction was done
		opt.sync = func(f *os.File) error {
			content, err := os.ReadFile(f.Name())
			mu.Lock()
			defer mu.Unlock()
			synced = content
			return err
		}
		space.applied = func() {
			mu.Lock()
			defer mu.Unlock()
			onDisk = synced
		}
		to := newStore(t, opt)
		space.dieAfter(n)
		_, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil)
		if err == nil {
			if n < 8 {
				t.Fatalf("all was over after %d transactions: nothing was tested", n)
			}
			return
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		for _, name := range files(t, to.dir) {
			if path := filepath.Join(to.dir, name); strings.HasSuffix(name, ".part") {
				// Allocated, and zeros where nothing was synced.
				left := make([]byte, len(data))
				copy(left, onDisk)
				writeOver(t, path, left)
			}
		}
		space.dieAfter(-1)
		to = newStore(t, opt)
		if _, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil); err != nil {
			t.Fatalf("dead after %d: it does not go on: %v", n, err)
		}
		holds(t, to, held.CID, data)
	}
}

// writeOver changes a file's bytes and nothing else about it.
func writeOver(t *testing.T, path string, data []byte) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// TestUnfinishedFileSpoilt: somebody deletes, cuts or damages the unfinished file
// between two tries.
func TestUnfinishedFileSpoilt(t *testing.T) {
	data := randomBytes(1, 16*100)
	for name, spoil := range map[string]func(path string) error{
		"deleted": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 100) },
		"longer":  func(path string) error { return os.Truncate(path, 5000) },
	} {
		p, held := holder(t, data)
		to, _ := testStore(t)
		p.reply = func(n int, b blocks.Block) []blocks.Block {
			if n > 90 {
				return nil
			}
			return []blocks.Block{b}
		}
		if _, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil); !errors.Is(err, ErrNoBlocks) {
			t.Fatal(err)
		}
		list, err := to.Partials()
		if err != nil || len(list) != 1 || list[0].Done == 0 {
			t.Fatalf("%+v %v", list, err)
		}
		if err := spoil(list[0].Path); err != nil {
			t.Fatal(err)
		}
		p.reply = nil
		if _, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		holds(t, to, held.CID, data)
	}
}
