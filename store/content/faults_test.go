package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/time/rate"

	"relay/store"
)

// cutOff pulls until so many bytes were sent and leaves it at that.
func cutOff(t testing.TB, to *Store, held Content, from *Store, bytes int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := &ranger{name: "source", from: from}
	source.gate = func(rctx context.Context) {
		if source.sent.Load() >= bytes {
			cancel()
			<-rctx.Done()
		}
	}
	if _, err := pullRanged(ctx, to, held, nil, source); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// TestSetOnAFullDisk: a disk that is full, when an unfinished set goes on or is
// registered, costs nothing of what is here.
func TestSetOnAFullDisk(t *testing.T) {
	from, _ := testStore(t)
	held, all := newSetOf(t, from, 16*90, 16*90)
	space := newMemSpace()
	opt := testOptions(t, space)
	opt.roomEvery = time.Millisecond
	room := uint64(roomy)
	opt.free = func(string) (uint64, uint64, error) { return room, roomy, nil }
	to := newStore(t, opt)
	cutOff(t, to, held, from, 16*100)
	room = 1 << 20
	// All space is reserved: there is nothing to ask for.
	_, err := pullRanged(t.Context(), to, held, func(p Progress) {
		if p.Phase == PhaseWait {
			t.Errorf("it waits for room that it has: %s", p.Why)
		}
	}, &ranger{name: "source", from: from})
	if err != nil {
		t.Fatal(err)
	}
	hasPulledSet(t, to, held, all)
	// One that cannot begin again for want of room loses nothing either.
	opt.Dir, opt.Space = filepath.Join(t.TempDir(), "models"), newMemSpace()
	room = roomy
	to = newStore(t, opt)
	cutOff(t, to, held, from, 16*100)
	list, err := to.Partials()
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	parts, err := filepath.Glob(filepath.Join(opt.Dir, "*.part"))
	if err != nil || len(parts) != 1 || os.Remove(parts[0]) != nil {
		t.Fatalf("%q %v", parts, err)
	}
	room = 1 << 20
	_, err = pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from})
	sentence(t, err, store.ErrDiskFull, "disk_full", `"m"`)
	if _, whole, err := to.Have(rootsOf(t, from, held)[0]); err != nil || !whole {
		t.Errorf("the file that was whole: %v %v", whole, err)
	}
}

// TestSetWaitsForRoomAtItsEnd, when it is to be registered.
func TestSetWaitsForRoomAtItsEnd(t *testing.T) {
	from, _ := testStore(t)
	held, all := newSetOf(t, from, 16*9, 16*9)
	space := newMemSpace()
	opt := testOptions(t, space)
	opt.roomEvery = time.Millisecond
	to := newStore(t, opt)
	var full, waited atomic.Bool
	space.refuse = func() error {
		if full.Load() {
			return fmt.Errorf("%w: no room", store.ErrDiskFull)
		}
		return nil
	}
	source := &ranger{name: "source", from: from}
	source.gate = func(context.Context) {
		if source.sent.Load() >= 16*17 { // The last leaf.
			full.Store(true)
		}
	}
	_, err := pullRanged(t.Context(), to, held, func(p Progress) {
		if p.Phase == PhaseWait {
			waited.Store(true)
			full.Store(false)
		}
	}, source)
	if err != nil || !waited.Load() {
		t.Fatalf("%v, waited: %v", err, waited.Load())
	}
	hasPulledSet(t, to, held, all)
}

// TestUnfinishedFileOfAnother: an unfinished file that was replaced, or changed
// after a pull let go of it, is hashed again.
func TestUnfinishedFileOfAnother(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	for name, spoil := range map[string]func(path string) error{
		"other bytes in it": func(path string) error { return os.WriteFile(path, make([]byte, len(data)), 0o600) },
		"another file": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", make([]byte, len(data)), 0o600), os.Rename(path+".new", path))
		},
	} {
		to := puller(t, small)
		cutOff(t, to, held, from, 300*16)
		list, err := to.Partials()
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %+v %v", name, list, err)
		}
		if err := spoil(list[0].Path); err != nil {
			t.Fatal(err)
		}
		if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		holds(t, to, held.CID, data)
	}
}

// TestUnfinishedFileGone: where it vanishes in the middle, the pull says so and
// begins anew the next time.
func TestUnfinishedFileGone(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	to := puller(t, small)
	source := &ranger{name: "source", from: from}
	var once sync.Once
	source.gate = func(context.Context) {
		if source.sent.Load() > 100*16 {
			once.Do(func() {
				if list, err := to.Partials(); err != nil || len(list) != 1 || os.Remove(list[0].Path) != nil {
					t.Errorf("%+v %v", list, err)
				}
			})
		}
	}
	_, err := pullRanged(t.Context(), to, held, nil, source)
	sentence(t, err, ErrFileChanged, "file_changed", ".part")
	// What is left of it can be removed, though nothing is where it was to be.
	if err := to.RemovePartial(held.CID); err != nil {
		t.Error(err)
	}
	if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from}); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

// TestModelsFolderNotMounted: where the folder of pulled models is missing, no
// other one is filled in its place.
func TestModelsFolderNotMounted(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	opt := testOptions(t, newMemSpace())
	cutOff(t, newStore(t, opt), held, from, 300*16)
	if err := os.Rename(opt.Dir, opt.Dir+".away"); err != nil {
		t.Fatal(err)
	}
	to := newStore(t, opt)
	_, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from})
	sentence(t, err, ErrUnusable, "state_unusable", "mount its disk", opt.Dir)
	if err := os.Rename(opt.Dir+".away", opt.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from}); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

// TestIdleHoldersMakeRoom: many who have nothing of use do not keep out the one
// who has all, nor single blocks.
func TestIdleHoldersMakeRoom(t *testing.T) {
	data := randomBytes(1, 300*16)
	from, held := holding(t, data, small)
	var holders []Holder
	for i := range 2 * maxHands {
		holders = append(holders, hollow{id: fmt.Sprintf("hollow %d", i)})
	}
	to := puller(t, small)
	whole := &ranger{name: "whole", from: from}
	nodes := &peer{from: from, nodesOnly: true}
	if _, err := to.Pull(t.Context(), PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m", Swarm: swarmOf{nodes, append(holders, whole)}}); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	opt := testOptions(t, newMemSpace())
	opt.Stall = time.Minute
	to = newStore(t, opt)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := to.Pull(ctx, PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m", Swarm: swarmOf{&peer{from: from}, holders[:1]}}); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

// hollow says that it has a part of the file, which is nothing.
type hollow struct{ id string }

func (h hollow) ID() string   { return h.id }
func (h hollow) Name() string { return h.id }
func (h hollow) Have(context.Context, cid.Cid) ([]byte, bool, error) {
	return []byte{0}, false, nil
}
func (h hollow) Range(context.Context, cid.Cid, int64, int64, bool) (io.ReadCloser, error) {
	return nil, errDead
}

// TestHolderComesBack: one that pauses, or fails once, is asked for ranges again.
func TestHolderComesBack(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	to := puller(t, small) // Who sends nothing for 0.1 s has failed.
	source := &ranger{name: "source", from: from}
	var once sync.Once
	source.gate = func(ctx context.Context) {
		if source.sent.Load() > 100*16 {
			once.Do(func() { <-ctx.Done() })
		}
	}
	if _, err := pullRanged(t.Context(), to, held, nil, source); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

// TestWhoDoesNotListenHoldsUpNobody: of two who pull one model, one does not take
// what he is told.
func TestWhoDoesNotListenHoldsUpNobody(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	to := puller(t, small)
	deaf, listens := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	source := &ranger{name: "source", from: from, gate: slow(2_000)}
	var once sync.Once
	go func() {
		_, err := pullRanged(t.Context(), to, held, func(Progress) {
			once.Do(func() { close(listens) })
			<-deaf
		}, source)
		first <- err
	}()
	<-listens
	if _, err := pullRanged(t.Context(), to, held, func(Progress) {}, source); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	close(deaf)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

// TestTakenNames: another file has the name that a pulled one is to get.
func TestTakenNames(t *testing.T) {
	from, _ := testStore(t)
	set, all := newSetOf(t, from, 300, 400)
	opt := testOptions(t, newMemSpace())
	to := newStore(t, opt)
	cutOff(t, to, set, from, 400)
	list, err := to.Partials()
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	inTheWay := writeFile(t, filepath.Join(list[0].Path, filepath.Base(set.Files[1])), []byte("somebody else's"))
	_, err = pullRanged(t.Context(), to, set, nil, &ranger{name: "source", from: from})
	sentence(t, err, ErrUnusable, "state_unusable", inTheWay, "move it away")
	if err := os.Rename(inTheWay, inTheWay+".moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := pullRanged(t.Context(), to, set, nil, &ranger{name: "source", from: from}); err != nil {
		t.Fatal(err)
	}
	hasPulledSet(t, to, set, all)
}

// TestKilledBetweenTwoNames: with both names on the file only one is left.
func TestKilledBetweenTwoNames(t *testing.T) {
	data := randomBytes(1, 300)
	from, held := holding(t, data, small)
	space := newMemSpace()
	opt := testOptions(t, space)
	to := newStore(t, opt)
	died := errors.New("died")
	space.refuse = func() error {
		if names, _ := filepath.Glob(filepath.Join(opt.Dir, "*.gguf")); len(names) > 0 {
			return died
		}
		return nil
	}
	if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from}); !errors.Is(err, died) {
		t.Fatalf("got %v", err)
	}
	space.refuse = nil
	names, _ := filepath.Glob(filepath.Join(opt.Dir, "*.gguf"))
	list, err := to.Partials()
	if err != nil || len(list) != 1 || len(names) != 1 || os.Link(names[0], list[0].Path) != nil {
		t.Fatalf("%+v %v %v", list, names, err)
	}
	if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "source", from: from}); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	if left := files(t, opt.Dir); len(left) != 1 {
		t.Errorf("in the folder: %q", left)
	}
}

// TestRangesTakeOnlyWhatIsWanted of the disk, asked for first, and of files that
// have one leaf everywhere.
func TestRangesTakeOnlyWhatIsWanted(t *testing.T) {
	data := make([]byte, 5000*16)
	from, held := holding(t, data, small)
	opt := testOptions(t, newMemSpace())
	free := uint64(reserve + 100)
	opt.free = func(string) (uint64, uint64, error) { return free, roomy, nil }
	to := newStore(t, opt)
	o := PullOptions{Root: held.CID, Bytes: -1, Name: "m", Swarm: swarmOf{&peer{from: from}, nil}}
	if err := to.PullRanges(t.Context(), o, []ByteRange{{0, 1}}); err != nil {
		t.Fatal(err)
	}
	have, whole, err := to.Have(held.CID)
	if err != nil || whole || have[0] != 1 || strings.Trim(string(have[1:]), "\x00") != "" {
		t.Errorf("it has %v %v %v", have[:4], whole, err)
	}
	err = to.PullRanges(t.Context(), o, []ByteRange{{0, 20 * 16}})
	sentence(t, err, store.ErrDiskFull, "disk_full", `"m"`)
	got, err := readRange(to, held.CID, 0, 16, true)
	if err != nil || !bytes.Equal(got, data[:16]) {
		t.Errorf("what was there: %d bytes, %v", len(got), err)
	}
}

// TestNewLimitHelpsWhoWaits: a limit that is lifted counts at once.
func TestNewLimitHelpsWhoWaits(t *testing.T) {
	var m meter
	m.limit.Store(rate.NewLimiter(1000, 1000))
	done := make(chan error, 1)
	passed := make(chan struct{}, 1000)
	go func() { done <- m.wait(t.Context(), 1<<20, func() { passed <- struct{}{} }) }()
	<-passed
	m.setLimit(1 << 30)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it still waits")
	}
}
