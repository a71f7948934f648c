package content

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"relay/store"
)

// smallDisk mounts a file system of that many bytes, which takes root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small disk cannot be mounted (%v); run this test as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFillsWhilePulling: another program takes the room in the middle, on a
// disk that cannot reserve. The pull says why it waits, keeps what came, and goes
// on by itself when there is room.
func TestDiskFillsWhilePulling(t *testing.T) {
	p, held, data := bigHolder(t)
	opt := testOptions(t, newMemSpace())
	opt.layout = layout{chunk: 4096, links: 16}
	opt.Dir = smallDisk(t, "1m")
	opt.allocate = func(f *os.File, size int64) error { return f.Truncate(size) }
	opt.commitBytes = 64 << 10
	opt.roomEvery = time.Millisecond
	to := newStore(t, opt)
	waits := make(chan Progress, 1)
	pulled := make(chan error, 1)
	go func() {
		_, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "qwen", p, func(pr Progress) {
			if pr.Phase == PhaseWait {
				select {
				case waits <- pr:
				default:
				}
			}
		})
		pulled <- err
	}()
	pr := <-waits
	if pr.Done < 900<<10 || !strings.Contains(pr.Why, "free some space") || !strings.Contains(pr.Why, "2.0 MiB") {
		t.Errorf("it waits: %+v", pr)
	}
	list, err := to.Partials()
	if err != nil || len(list) != 1 || list[0].Done < 900<<10 || !list[0].Running {
		t.Fatalf("kept: %+v %v", list, err)
	}
	if err := unix.Mount("", opt.Dir, "", unix.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	if leaves, _ := p.sent(); leaves > int(held.Bytes)/4096 {
		t.Errorf("%d leaves were fetched", leaves)
	}
	holds(t, to, held.CID, data)
}

// TestDiskCannotReserve: the disk has less than it says, such as under a quota.
// That shows when space is reserved, before anything is fetched, and leaves
// nothing behind.
func TestDiskCannotReserve(t *testing.T) {
	p, held, _ := bigHolder(t)
	space := newMemSpace()
	opt := testOptions(t, space)
	opt.layout = layout{chunk: 4096, links: 16}
	opt.Dir = smallDisk(t, "1m")
	to := newStore(t, opt)
	_, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "qwen", p, nil)
	sentence(t, err, store.ErrDiskFull, "disk_full", "qwen", "2.0 MiB", opt.Dir)
	if leaves, _ := p.sent(); leaves > 0 {
		t.Errorf("%d leaves were fetched all the same", leaves)
	}
	noLeftovers(t, space)
	if names := files(t, opt.Dir); len(names) > 0 {
		t.Errorf("left in the folder: %q", names)
	}
}

// TestPullReservesItsSpace: nothing else can take the room once a pull has begun.
func TestPullReservesItsSpace(t *testing.T) {
	p, held, _ := bigHolder(t)
	opt := testOptions(t, newMemSpace())
	opt.layout = layout{chunk: 4096, links: 16}
	opt.Dir = smallDisk(t, "8m")
	to := newStore(t, opt)
	before, _, err := store.DiskFree(opt.Dir)
	if err != nil {
		t.Fatal(err)
	}
	checked := make(chan error, 1)
	var once sync.Once
	p.after = func(int) {
		if n, _ := p.sent(); n == 0 {
			return // Of inner nodes there is none before the space is there.
		}
		once.Do(func() {
			free, _, err := store.DiskFree(opt.Dir)
			if err == nil && before-free < uint64(held.Bytes) {
				err = fmt.Errorf("only %d of %d bytes are reserved", before-free, held.Bytes)
			}
			checked <- err
		})
	}
	if _, err := pullFrom(t.Context(), to, held.CID, held.Bytes, "m", p, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-checked; err != nil {
		t.Error(err)
	}
}

func bigHolder(t *testing.T) (*peer, Content, []byte) {
	t.Helper()
	opt := testOptions(t, newMemSpace())
	opt.layout = layout{chunk: 4096, links: 16}
	from := newStore(t, opt)
	data := randomBytes(1, 2<<20)
	return &peer{from: from}, mustAdd(t, from, newFile(t, data)), data
}
