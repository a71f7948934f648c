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
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// holding is a store that has a file.
func holding(t testing.TB, data []byte, l layout) (*Store, Content) {
	t.Helper()
	opt := testOptions(t, newMemSpace())
	opt.layout = l
	s := newStore(t, opt)
	return s, mustAdd(t, s, newFile(t, data))
}

// puller is a store that gives silent holders little time.
func puller(t testing.TB, l layout) *Store {
	t.Helper()
	opt := testOptions(t, newMemSpace())
	opt.layout = l
	opt.holderStall = 100 * time.Millisecond
	return newStore(t, opt)
}

func pullRanged(ctx context.Context, s *Store, held Content, progress func(Progress), holders ...Holder) (Content, error) {
	// Inner nodes come from the first, one by one; leaves do not.
	nodes := &peer{from: holders[0].(*ranger).from, nodesOnly: true}
	return s.Pull(ctx, PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m", Swarm: swarmOf{nodes, holders}, Progress: progress})
}

func TestPullInRanges(t *testing.T) {
	for _, size := range []int{1, 15, 16, 17, 300, 5000, 64*16 + 1, 130 * 16} {
		data := randomBytes(uint64(size), size)
		from, held := holding(t, data, small)
		to := puller(t, small)
		attic, den := &ranger{name: "attic", from: from}, &ranger{name: "den", from: from}
		var last Progress
		if _, err := pullRanged(t.Context(), to, held, func(p Progress) {
			if p.Phase == PhaseFetch {
				last = p
			}
		}, attic, den); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		holds(t, to, held.CID, data)
		if sent := attic.sent.Load() + den.sent.Load(); sent != int64(size) {
			t.Errorf("%d bytes: %d were sent", size, sent)
		}
		var good int64
		for _, s := range last.From {
			good += s.Bytes
		}
		if last.Done != int64(size) || good != int64(size) || last.Fetched < int64(size) {
			t.Errorf("%d bytes: the last word is %+v", size, last)
		}
	}
}

// TestEveryBlockCorruptedByOneOfTwo: each leaf in turn comes wrong from one of
// two holders, whichever is asked.
func TestEveryBlockCorruptedByOneOfTwo(t *testing.T) {
	const leaves = 20
	data := randomBytes(1, leaves*16)
	from, held := holding(t, data, small)
	for i := range int64(leaves) {
		to := puller(t, small)
		bad := &ranger{name: "bad", from: from, spoil: func(at int64, data []byte) {
			if n := i*16 + 3 - at; 0 <= n && n < int64(len(data)) {
				data[n] ^= 1
			}
		}}
		if _, err := pullRanged(t.Context(), to, held, nil, bad, &ranger{name: "good", from: from}); err != nil {
			t.Fatalf("leaf %d: %v", i, err)
		}
		holds(t, to, held.CID, data)
	}
}

// TestSenderOfWrongBlocksIsDropped: whoever sends one wrong block after the other
// is soon asked no more, and named where nobody else has the file.
func TestSenderOfWrongBlocksIsDropped(t *testing.T) {
	data := randomBytes(1, 200*16)
	from, held := holding(t, data, small)
	spoil := func(_ int64, data []byte) {
		for i := range data {
			data[i] ^= 1
		}
	}
	to := puller(t, small)
	bad := &ranger{name: "bad", from: from, spoil: spoil}
	asked := make(chan struct{})
	var once sync.Once
	bad.gate = func(context.Context) {
		if bad.checks.Load() > 0 {
			once.Do(func() { close(asked) })
		}
	}
	good := &ranger{name: "good", from: from, gate: func(ctx context.Context) { <-asked }}
	if _, err := pullRanged(t.Context(), to, held, nil, bad, good); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	if n := bad.sent.Load(); n > 64*16 {
		t.Errorf("%d bytes were taken from it", n)
	}
	opt := testOptions(t, newMemSpace())
	opt.Stall = 100 * time.Millisecond
	_, err := pullRanged(t.Context(), newStore(t, opt), held, nil, &ranger{name: "bad", from: from, spoil: spoil})
	sentence(t, err, ErrNoBlocks, "no_holder", "bad", "wrong block")
}

// TestHolderThatLiesAboutWhatItHas offers all and has half.
func TestHolderThatLiesAboutWhatItHas(t *testing.T) {
	data := randomBytes(1, 200*16)
	from, held := holding(t, data, small)
	half := puller(t, small)
	err := half.PullRanges(t.Context(), PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m",
		Swarm: swarmOf{&peer{from: from}, nil}}, []ByteRange{{0, 100 * 16}})
	if err != nil {
		t.Fatal(err)
	}
	to := puller(t, small)
	liar := &ranger{name: "liar", from: half, lies: true}
	honest := &ranger{name: "honest", from: from}
	if _, err := pullRanged(t.Context(), to, held, nil, honest, liar); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

// TestTwoOfThreeHoldersDie in the middle: the third one sends the rest.
func TestTwoOfThreeHoldersDie(t *testing.T) {
	data := randomBytes(1, 2000*16)
	from, held := holding(t, data, small)
	to := puller(t, small)
	one := &ranger{name: "one", from: from, dies: 200 * 16}
	two := &ranger{name: "two", from: from, dies: 300*16 + 5}
	if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "three", from: from}, one, two); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

// TestHolderThatNeverSends takes ranges and sends nothing, beside a good one and
// alone.
func TestHolderThatNeverSends(t *testing.T) {
	data := randomBytes(1, 300*16)
	from, held := holding(t, data, small)
	to := puller(t, small)
	if _, err := pullRanged(t.Context(), to, held, nil, &ranger{name: "mute", from: from, silent: true}, &ranger{name: "good", from: from}); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	opt := testOptions(t, newMemSpace())
	opt.Stall, opt.holderStall = 100*time.Millisecond, 50*time.Millisecond
	_, err := pullRanged(t.Context(), newStore(t, opt), held, nil, &ranger{name: "mute", from: from, silent: true})
	sentence(t, err, ErrNoBlocks, "no_holder", "mute", "nothing came in time")
}

// TestSlowLeafIsNotStalled: a leaf may take longer than nothing may come at all.
func TestSlowLeafIsNotStalled(t *testing.T) {
	large := layout{chunk: 64 << 10, links: 16}
	from, held := holding(t, randomBytes(1, 100<<10), large)
	opt := testOptions(t, newMemSpace())
	opt.layout, opt.Stall = large, 300*time.Millisecond
	source := &ranger{name: "source", from: from, piece: 4 << 10, gate: slow(25)}
	if _, err := pullRanged(t.Context(), newStore(t, opt), held, nil, source); err != nil {
		t.Fatal(err)
	}
	if sent := source.sent.Load(); sent != held.Bytes {
		t.Errorf("%d bytes were sent of %d", sent, held.Bytes)
	}
}

// TestNobodyIsAskedForTwoRangesAtATime: more streams to one peer are slower than
// one.
func TestNobodyIsAskedForTwoRangesAtATime(t *testing.T) {
	data := randomBytes(1, 3000*16)
	from, held := holding(t, data, small)
	a, b := &ranger{name: "a", from: from}, &ranger{name: "b", from: from}
	if _, err := pullRanged(t.Context(), puller(t, small), held, nil, a, b); err != nil {
		t.Fatal(err)
	}
	if a.most > 1 || b.most > 1 {
		t.Errorf("%d and %d ranges at a time", a.most, b.most)
	}
}

// TestPartialHolderHelps: who has not all yet sends others what it has.
func TestPartialHolderHelps(t *testing.T) {
	data := randomBytes(1, 1000*16)
	from, held := holding(t, data, small)
	den, attic := puller(t, small), puller(t, small)
	asDen := &ranger{name: "den", from: den}
	begun := make(chan struct{})
	var once sync.Once
	slowly := slow(1_000)
	source := &ranger{name: "source", from: from}
	source.gate = func(ctx context.Context) {
		if source.sent.Load() > 100*16 {
			once.Do(func() { close(begun) })
		}
		slowly(ctx)
	}
	var g errgroup.Group
	g.Go(func() error {
		_, err := pullRanged(t.Context(), den, held, nil, source)
		return err
	})
	<-begun
	if _, err := pullRanged(t.Context(), attic, held, nil, source, asDen); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	hasAll := func(s *Store) {
		if got, err := readRange(s, held.CID, 0, held.Bytes, true); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	hasAll(den)
	hasAll(attic)
	if asDen.sent.Load() == 0 {
		t.Error("den sent nothing")
	}
}

// slow lets that many reads a second pass.
func slow(perSecond int) func(context.Context) {
	l := rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/100))
	return func(ctx context.Context) { _ = l.Wait(ctx) }
}

// TestRangesOfAFile: only what is wanted comes, it can be read and served, stays
// an unfinished pull, and a whole pull goes on with it.
func TestRangesOfAFile(t *testing.T) {
	data := randomBytes(1, 200*16+5)
	from, held := holding(t, data, small)
	space := newMemSpace()
	opt := testOptions(t, space)
	to := newStore(t, opt)
	source := &ranger{name: "source", from: from}
	o := PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m", Swarm: swarmOf{&peer{from: from, nodesOnly: true}, []Holder{source}}}
	wanted := []ByteRange{{40, 50}, {160, 161}, {20, 41}, {3200, 3205}, {77, 77}}
	if err := to.PullRanges(t.Context(), o, wanted); err != nil {
		t.Fatal(err)
	}
	if sent := source.sent.Load(); sent != 3*16+16+5 {
		t.Errorf("%d bytes were sent", sent)
	}
	for range 2 {
		for _, r := range wanted[:4] {
			got, err := readRange(to, held.CID, r.From, r.To, true)
			if err != nil || !bytes.Equal(got, data[r.From:r.To]) {
				t.Errorf("bytes %d to %d: %d came, %v", r.From, r.To, len(got), err)
			}
		}
		if _, err := readRange(to, held.CID, 64, 80, false); !errors.Is(err, ErrNotFound) {
			t.Errorf("what did not come: %v", err)
		}
		if got, err := readRange(to, held.CID, 30, 200, false); err != nil || !bytes.Equal(got, data[30:64]) {
			t.Errorf("up to a gap: %d bytes, %v", len(got), err)
		}
		list, err := to.Partials()
		if err != nil || len(list) != 1 || list[0].Running {
			t.Errorf("unfinished: %+v %v", list, err)
		}
		if err := to.PullRanges(t.Context(), o, wanted); err != nil || source.sent.Load() != 3*16+16+5 {
			t.Errorf("again: %v, %d bytes sent", err, source.sent.Load())
		}
		to = newStore(t, opt) // And after a restart.
	}
	for _, bad := range []ByteRange{{-1, 5}, {0, held.Bytes + 1}, {9, 8}, {1 << 62, 1<<62 + 1}} {
		sentence(t, to.PullRanges(t.Context(), o, []ByteRange{bad}), ErrContentInvalid, "file_invalid", "not within")
	}
	if _, err := to.Pull(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	if sent := source.sent.Load(); sent != held.Bytes {
		t.Errorf("%d bytes were sent in all of %d", sent, held.Bytes)
	}
	if err := to.PullRanges(t.Context(), o, wanted); err != nil {
		t.Errorf("of what is here whole: %v", err)
	}
}

// readRange reads what OpenRange gives.
func readRange(s *Store, root cid.Cid, from, to int64, check bool) ([]byte, error) {
	r, n, err := s.OpenRange(context.Background(), root, from, to, check)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(r)
	if err == nil && int64(buf.Len()) != n {
		err = fmt.Errorf("%d bytes instead of %d", buf.Len(), n)
	}
	return buf.Bytes(), err
}

// TestLimit: a pull keeps to its limit.
func TestLimit(t *testing.T) {
	data := randomBytes(1, 600<<10)
	from, held := holding(t, data, layout{chunk: 16 << 10, links: 16})
	to := puller(t, layout{chunk: 16 << 10, links: 16})
	began := time.Now()
	_, err := to.Pull(t.Context(), PullOptions{Root: held.CID, Bytes: held.Bytes, Name: "m", Limit: 1 << 20,
		Swarm: swarmOf{&peer{from: from}, []Holder{&ranger{name: "a", from: from}, &ranger{name: "b", from: from}}}})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	// What may come at once is a quarter of a second's worth.
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("600 KiB at 1 MiB a second came in %v", took)
	}
}

// TestPause: those who wait are told, what is here stays, and a later pull goes
// on with it.
func TestPause(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	to := puller(t, small)
	half := make(chan struct{})
	var once sync.Once
	source := &ranger{name: "source", from: from}
	source.gate = func(ctx context.Context) {
		if source.sent.Load() > 200*16 {
			once.Do(func() { close(half) })
			<-ctx.Done()
		}
	}
	ctx, pause := context.WithCancelCause(t.Context())
	pulled := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := pullRanged(ctx, to, held, nil, source)
			pulled <- err
		}()
	}
	<-half
	pause(ErrPaused)
	for range 2 {
		sentence(t, <-pulled, ErrPaused, "paused")
	}
	list, err := to.Partials()
	if err != nil || len(list) != 1 || list[0].Running || list[0].Done < 100*16 {
		t.Fatalf("kept: %+v %v", list, err)
	}
	rest := &ranger{name: "rest", from: from}
	if _, err := pullRanged(t.Context(), to, held, nil, rest); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	if rest.sent.Load() != held.Bytes-list[0].Done {
		t.Errorf("%d bytes were fetched, %d of %d were here", rest.sent.Load(), list[0].Done, held.Bytes)
	}
}

// TestTwoStoresDoNotWriteOneFile: with a copied state folder two relays know of
// one unfinished file.
func TestTwoStoresDoNotWriteOneFile(t *testing.T) {
	data := randomBytes(1, 500*16)
	from, held := holding(t, data, small)
	space := newMemSpace()
	opt := testOptions(t, space)
	to := newStore(t, opt)
	hold, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	source := &ranger{name: "source", from: from, gate: func(context.Context) {
		once.Do(func() { close(entered) })
		<-hold
	}}
	pulled := make(chan error, 1)
	go func() {
		_, err := pullRanged(context.Background(), to, held, nil, source)
		pulled <- err
	}()
	<-entered
	other := opt
	other.Space = space.copy()
	twin := newStore(t, other)
	_, err := pullRanged(t.Context(), twin, held, nil, &ranger{name: "source", from: from})
	sentence(t, err, ErrUnusable, "state_unusable", "another relay", ".part")
	close(hold)
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	if names := files(t, opt.Dir); len(names) != 1 || strings.Contains(names[0], ".part") {
		t.Errorf("left in the folder: %q", names)
	}
}

// TestFinalNameOfAnother: where another process takes the name just before, its
// file stays.
func TestFinalNameOfAnother(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := writeFile(t, filepath.Join(dir, "ours"), []byte("ours")), writeFile(t, filepath.Join(dir, "theirs"), []byte("theirs"))
	if err := giveName(ours, theirs); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(theirs); err != nil || string(data) != "theirs" {
		t.Errorf("theirs is %q, %v", data, err)
	}
	if err := giveName(ours, filepath.Join(dir, "free")); err != nil {
		t.Error(err)
	}
	if names := files(t, dir); !slices.Equal(names, []string{"free", "theirs"}) {
		t.Errorf("there is %q", names)
	}
}
