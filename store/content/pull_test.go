package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipfs/boxo/exchange/offline"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"pgregory.net/rapid"

	"relay/store"
)

func TestPullInTheRealLayoutThroughBoxosExchange(t *testing.T) {
	from, to := realStore(t), realStore(t)
	for _, size := range []int{0, 1, chunkSize, chunkSize + 1, 7*chunkSize + 5} {
		data := randomBytes(uint64(size), size)
		held := mustAdd(t, from, newFile(t, data))
		name := fmt.Sprintf("model %d", size)
		c, err := pullFrom(t.Context(), to, held.CID, int64(size), name, offline.Exchange(from.Blocks()), nil)
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if c.CID != held.CID || c.Bytes != int64(size) || c.InPlace || !c.Complete ||
			c.Path != filepath.Join(to.dir, fileName(name, held.CID)+".gguf") {
			t.Errorf("%d bytes: %+v", size, c)
		}
		holds(t, to, held.CID, data)
	}
	if n := len(files(t, to.dir)); n != 5 {
		t.Errorf("%d files in the models folder: %q", n, files(t, to.dir))
	}
	if list, err := to.Partials(); err != nil || len(list) > 0 {
		t.Errorf("unfinished: %v %v", list, err)
	}
}

// TestPullAnySize holds pulls of files of any size and repetition, with the size
// known or not, against the file, and against what had to be fetched for it.
func TestPullAnySize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(0, 1200).Draw(rt, "size")
		data := randomBytes(1, size)
		if rapid.Bool().Draw(rt, "repeating") {
			for i := range data {
				data[i] = byte(i / 16 % 3)
			}
		}
		p, held := holder(t, data)
		to, space := testStore(t)
		bytes := rapid.SampledFrom([]int64{int64(size), -1}).Draw(rt, "bytes")
		c, err := pullFrom(t.Context(), to, held.CID, bytes, "m", p, nil)
		if err != nil {
			rt.Fatal(err)
		}
		holds(t, to, c.CID, data)
		for k, n := range p.asked {
			// The root is asked for by itself when the size is not known.
			if n > 1 && !(k == held.CID && held.CID.Type() == cid.Raw && bytes < 0) {
				rt.Fatalf("%s was asked for %d times", k, n)
			}
		}
		if _, err := to.Remove(c.CID, true); err != nil {
			rt.Fatal(err)
		}
		if keys := space.leftovers(); len(keys) > 0 {
			rt.Fatalf("left in the tables: %q", keys)
		}
		if names := files(t, to.dir); len(names) > 0 {
			rt.Fatalf("left in the folder: %q", names)
		}
	})
}

func TestPullOfWhatIsHere(t *testing.T) {
	data := randomBytes(1, 300)
	p, held := holder(t, data)
	to, _ := testStore(t)
	first, err := pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, before := p.sent()
	again, err := pullFrom(t.Context(), to, held.CID, 300, "another name", p, nil)
	if _, after := p.sent(); err != nil || !same(again, first) || after != before {
		t.Errorf("pulled again: %+v %v, %d blocks", again, err, after-before)
	}
	_, err = pullFrom(t.Context(), to, held.CID, 299, "m", p, nil)
	sentence(t, err, ErrContentInvalid, "file_invalid", "300", "299")
	// Also what was added, not pulled.
	c, err := pullFrom(t.Context(), p.from, held.CID, 300, "m", nil, nil)
	if err != nil || !c.InPlace {
		t.Errorf("from its holder: %+v %v", c, err)
	}
	// Its file gone, it comes again.
	if err := os.Remove(first.Path); err != nil {
		t.Fatal(err)
	}
	sentence(t, to.Check(held.CID), ErrFileChanged, "file_changed", first.Path, "pull the model again")
	c, err = pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if err != nil || !same(c, first) {
		t.Errorf("after its file was deleted: %+v %v", c, err)
	}
	holds(t, to, held.CID, data)
	// Its file changed by its owner: that stays.
	writeFile(t, first.Path, []byte("mine now"))
	c, err = pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if err != nil || c.Path == first.Path {
		t.Errorf("after its file was changed: %+v %v", c, err)
	}
	holds(t, to, held.CID, data)
	if got, err := os.ReadFile(first.Path); err != nil || string(got) != "mine now" {
		t.Errorf("the changed file was overwritten: %q %v", got, err)
	}
}

func TestPullsOfOneRootAreOne(t *testing.T) {
	data := randomBytes(1, 2000)
	p, held := holder(t, data)
	to, _ := testStore(t)
	const callers = 20
	var wg sync.WaitGroup
	var reports [callers]atomic.Int64
	// No block before all are on board.
	gate := make(chan struct{})
	p.reply = func(_ int, b blocks.Block) []blocks.Block { <-gate; return []blocks.Block{b} }
	for i := range callers {
		wg.Go(func() {
			c, err := pullFrom(context.Background(), to, held.CID, 2000, "m", p, func(pr Progress) { reports[i].Store(pr.Done) })
			if err != nil || !c.Complete {
				t.Errorf("%+v %v", c, err)
			}
		})
	}
	onBoard(to, held.CID, callers)
	close(gate)
	wg.Wait()
	for k, n := range p.asked {
		if n != 1 {
			t.Errorf("%s was asked for %d times", k, n)
		}
	}
	for i := range reports {
		if reports[i].Load() != 2000 {
			t.Errorf("caller %d heard of %d bytes", i, reports[i].Load())
		}
	}
	if n := len(files(t, to.dir)); n != 1 {
		t.Errorf("%d files", n)
	}
	holds(t, to, held.CID, data)
}

// onBoard waits until that many callers share the pull of a root.
func onBoard(s *Store, root cid.Cid, callers int) {
	for {
		s.mu.RLock()
		f := s.pulls[root]
		all := f != nil && f.callers == callers
		s.mu.RUnlock()
		if all {
			return
		}
		runtime.Gosched()
	}
}

// TestPullEndsWithItsLastCaller: one of two callers may leave; when both have,
// it stops, and the next one goes on from there.
func TestPullEndsWithItsLastCaller(t *testing.T) {
	data := randomBytes(1, 3000)
	p, held := holder(t, data)
	to, _ := testStore(t)
	halfway, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.reply = func(n int, b blocks.Block) []blocks.Block {
		if n == 150 {
			once.Do(func() { close(halfway) })
			<-goOn
		}
		return []blocks.Block{b}
	}
	pull := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := pullFrom(ctx, to, held.CID, 3000, "m", p, nil)
			done <- err
		}()
		return done
	}
	ctx1, cancel1 := context.WithCancelCause(t.Context())
	ctx2, cancel2 := context.WithCancel(t.Context())
	one, two := pull(ctx1), pull(ctx2)
	<-halfway
	onBoard(to, held.CID, 2)
	why := errors.New("enough of it")
	cancel1(why)
	if err := <-one; !errors.Is(err, why) || !strings.Contains(err.Error(), "keeps what is here") {
		t.Errorf("the one who left got %v", err)
	}
	select {
	case err := <-two:
		t.Fatalf("the one who stayed got %v", err)
	default:
	}
	list, err := to.Partials()
	if err != nil || len(list) != 1 || !list[0].Running || list[0].Name != "m" || list[0].Bytes != 3000 {
		t.Errorf("while it runs: %+v %v", list, err)
	}
	cancel2()
	if err := <-two; !errors.Is(err, context.Canceled) {
		t.Errorf("the last one got %v", err)
	}
	close(goOn)
	list, err = to.Partials()
	leaves, _ := p.sent()
	if len(list) != 1 {
		t.Fatalf("after it stopped: %v %v", list, err)
	}
	if err != nil || list[0].Running || list[0].Done < int64(16*(leaves-perRequest*fetchers)) || list[0].Done == 0 || list[0].Done >= 3000 {
		t.Errorf("after it stopped: %+v %v, %d leaves were sent", list, err, leaves)
	}
	// After a restart too.
	to = newStore(t, to.opt)
	again := &peer{from: p.from}
	var least int64 = -1
	c, err := pullFrom(t.Context(), to, held.CID, 3000, "m", again, func(pr Progress) {
		if pr.Phase == PhaseFetch && least < 0 {
			least = pr.Done
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if leaves, _ := again.sent(); leaves != int(3000-list[0].Done+15)/16 {
		t.Errorf("%d leaves were sent in the second run, %d bytes were here", leaves, list[0].Done)
	}
	if least != list[0].Done {
		t.Errorf("it went on from %d, %d bytes were here", least, list[0].Done)
	}
	holds(t, to, c.CID, data)
}

func TestPullPutsUpWithFaults(t *testing.T) {
	data := randomBytes(1, 1500)
	wrong := blocks.NewBlock([]byte("not what you asked for"))
	huge := blocks.NewBlock(make([]byte, maxBlock+1))
	for name, reply := range map[string]func(n int, b blocks.Block) []blocks.Block{
		"every third left out": func(n int, b blocks.Block) []blocks.Block {
			if n%3 == 0 {
				return nil
			}
			return []blocks.Block{b}
		},
		"twice": func(_ int, b blocks.Block) []blocks.Block { return []blocks.Block{b, b} },
		"some wrong": func(n int, b blocks.Block) []blocks.Block {
			if n%9 == 0 {
				return []blocks.Block{wrong}
			}
			return []blocks.Block{b}
		},
		"some with bytes that are not their CID's": func(n int, b blocks.Block) []blocks.Block {
			if n%9 == 0 {
				bad, _ := blocks.NewBlockWithCid(append(bytes.Clone(b.RawData()), 1), b.Cid())
				return []blocks.Block{bad}
			}
			return []blocks.Block{b}
		},
		"under a wrong CID": func(_ int, b blocks.Block) []blocks.Block {
			other, _ := blocks.NewBlockWithCid(b.RawData(), wrong.Cid())
			return []blocks.Block{other}
		},
		"a huge one first": func(n int, b blocks.Block) []blocks.Block {
			if n == 20 {
				return []blocks.Block{huge, b}
			}
			return []blocks.Block{b}
		},
	} {
		p, held := holder(t, data)
		p.reply = reply
		to, _ := testStore(t)
		if _, err := pullFrom(t.Context(), to, held.CID, 1500, "m", p, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		holds(t, to, held.CID, data)
	}
}

// TestEveryBlockWrongOnce: each block of a model in turn comes wrong the first
// time.
func TestEveryBlockWrongOnce(t *testing.T) {
	data := randomBytes(1, 200)
	p, held := holder(t, data)
	all := small.leaves(200) + 8
	for bad := 1; bad <= all; bad++ {
		p.n = 0
		p.reply = func(n int, b blocks.Block) []blocks.Block {
			if n == bad {
				flipped := bytes.Clone(b.RawData())
				flipped[len(flipped)/2] ^= 0x40
				b, _ = blocks.NewBlockWithCid(flipped, b.Cid())
			}
			return []blocks.Block{b}
		}
		to, _ := testStore(t)
		if _, err := pullFrom(t.Context(), to, held.CID, 200, "m", p, nil); err != nil {
			t.Errorf("block %d: %v", bad, err)
			continue
		}
		holds(t, to, held.CID, data)
	}
}

func TestPullGivesUpInWords(t *testing.T) {
	data := randomBytes(1, 3000)
	broken := errors.New("the line is cut")
	for name, spoil := range map[string]func(*peer, *Options){
		"nothing is sent":     func(p *peer, _ *Options) { p.reply = func(int, blocks.Block) []blocks.Block { return nil } },
		"it cannot be asked":  func(p *peer, _ *Options) { p.fail = broken },
		"it falls silent":     func(p *peer, o *Options) { p.silent = true; o.Stall = 20 * time.Millisecond },
		"the leaves are held": func(p *peer, _ *Options) { p.reply = onlyNodes },
		"all leaves are wrong": func(p *peer, _ *Options) {
			p.reply = func(_ int, b blocks.Block) []blocks.Block {
				if b.Cid().Type() == cid.Raw {
					b, _ = blocks.NewBlockWithCid([]byte("wrong"), b.Cid())
				}
				return []blocks.Block{b}
			}
		},
	} {
		p, held := holder(t, data)
		space := newMemSpace()
		opt := testOptions(t, space)
		spoil(p, &opt)
		to := newStore(t, opt)
		_, err := pullFrom(t.Context(), to, held.CID, 3000, "qwen", p, nil)
		sentence(t, err, ErrNoBlocks, "no_holder", "qwen", "pull again")
		if p.fail != nil && !errors.Is(err, broken) {
			t.Errorf("%s: the cause is lost: %v", name, err)
		}
		// Nothing is lost for the next try.
		good := &peer{from: p.from}
		if _, err := pullFrom(t.Context(), to, held.CID, 3000, "qwen", good, nil); err != nil {
			t.Errorf("%s: next try: %v", name, err)
		}
		holds(t, to, held.CID, data)
	}
}

// babbler sends wrong blocks for ever, or says what it was told to say.
type babbler struct {
	hostile
	say blocks.Block
}

func (b babbler) GetBlocks(ctx context.Context, _ []cid.Cid) (<-chan blocks.Block, error) {
	out := make(chan blocks.Block)
	go func() {
		defer close(out)
		for {
			select {
			case out <- b.say:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func TestPullFromABabbler(t *testing.T) {
	_, held := holder(t, randomBytes(1, 3000))
	to, _ := testStore(t)
	lie, err := blocks.NewBlockWithCid([]byte("a lie"), held.CID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pullFrom(t.Context(), to, held.CID, 3000, "m", babbler{say: lie}, nil)
	sentence(t, err, ErrNoBlocks, "no_holder", "100 wrong blocks", "pull again")
}

// TestPullFromOneWhoSaysNothingNew: right blocks that nobody asked for must not
// keep a pull waiting for ever.
func TestPullFromOneWhoSaysNothingNew(t *testing.T) {
	_, held := holder(t, randomBytes(1, 3000))
	opt := testOptions(t, newMemSpace())
	opt.Stall = 20 * time.Millisecond
	to := newStore(t, opt)
	unasked, err := blocks.NewBlockWithCid([]byte("true"), makeCID(sumOf([]byte("true")), true))
	if err != nil {
		t.Fatal(err)
	}
	_, err = pullFrom(t.Context(), to, held.CID, 3000, "m", babbler{say: unasked}, nil)
	sentence(t, err, ErrNoBlocks, "no_holder", "nothing came in time")
}

// TestEverythingAtOnce: pulls, their removal, additions, removals and readers of
// one content at the same time end in order.
func TestEverythingAtOnce(t *testing.T) {
	data := randomBytes(1, 16*120)
	p, held := holder(t, data)
	to, space := testStore(t)
	path := newFile(t, data)
	ctx := context.Background()
	var wg sync.WaitGroup
	do := func(times int, what func() error, expected ...error) {
		wg.Go(func() {
			for range times {
				err := what()
				for _, e := range expected {
					if errors.Is(err, e) {
						err = nil
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		do(15, func() error {
			_, err := pullFrom(ctx, to, held.CID, held.Bytes, "m", &peer{from: p.from}, nil)
			return err
		}, ErrRemoved)
	}
	do(40, func() error { return to.RemovePartial(held.CID) }, ErrNotFound)
	do(15, func() error { _, err := to.Remove(held.CID, true); return err }, ErrNotFound)
	do(10, func() error { _, err := to.Add(ctx, []string{path}, nil); return err })
	do(100, func() error {
		to.List()
		_, err := to.Partials()
		return err
	})
	do(100, func() error {
		b, err := to.Blocks().Get(ctx, held.CID)
		if err == nil && sumOf(b.RawData()) != namedBy(held.CID) {
			err = errors.New("a wrong block was handed out")
		}
		return err
	}, ErrFileChanged, ipld.ErrNotFound{})
	wg.Wait()
	if _, err := pullFrom(ctx, to, held.CID, held.Bytes, "m", p, nil); err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
	if _, err := to.Remove(held.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the owner's file: %v", err)
	}
	for _, name := range files(t, to.dir) {
		t.Errorf("left in the folder: %s", name)
	}
}

func namedBy(c cid.Cid) digest {
	d, _ := digestOf(c)
	return d
}

func onlyNodes(_ int, b blocks.Block) []blocks.Block {
	if b.Cid().Type() == cid.Raw {
		return nil
	}
	return []blocks.Block{b}
}

// TestSlowButMovingIsNotStalled: a request whose own blocks wait behind those of
// others must not be given up.
func TestSlowButMovingIsNotStalled(t *testing.T) {
	data := randomBytes(1, 16*100)
	p, held := holder(t, data)
	opt := testOptions(t, newMemSpace())
	opt.Stall = 500 * time.Millisecond
	to := newStore(t, opt)
	// One block each 20 ms over all requests: each request takes far longer than
	// the stall limit, the pull never stands still.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	p.reply = func(_ int, b blocks.Block) []blocks.Block { <-tick.C; return []blocks.Block{b} }
	if _, err := pullFrom(t.Context(), to, held.CID, 1600, "m", p, nil); err != nil {
		t.Fatal(err)
	}
	for k, n := range p.asked {
		if n != 1 {
			t.Errorf("%s was asked for %d times", k, n)
		}
	}
	holds(t, to, held.CID, data)
}

func TestPullAsksForLittleAtATime(t *testing.T) {
	p, held := holder(t, randomBytes(1, 16*1000))
	to, _ := testStore(t)
	if _, err := pullFrom(t.Context(), to, held.CID, 16*1000, "m", p, nil); err != nil {
		t.Fatal(err)
	}
	if p.most*chunkSize > 64<<20 {
		t.Errorf("%d leaves were on their way at once: %d MiB in the real layout", p.most, p.most)
	}
	if p.most < fetchers {
		t.Errorf("only %d leaves were on their way at once", p.most)
	}
}

// hostile serves blocks made up by a test.
type hostile map[cid.Cid][]byte

func (h hostile) GetBlock(context.Context, cid.Cid) (blocks.Block, error) { panic("not used") }
func (h hostile) GetBlocks(_ context.Context, want []cid.Cid) (<-chan blocks.Block, error) {
	out := make(chan blocks.Block, len(want))
	for _, c := range want {
		if data, ok := h[c]; ok {
			b, _ := blocks.NewBlockWithCid(data, c)
			out <- b
		}
	}
	close(out)
	return out, nil
}

func (h hostile) leaf(data []byte) link {
	l := link{digest: sumOf(data), leaf: true, size: int64(len(data)), total: int64(len(data))}
	h[l.cid()] = data
	return l
}

func (h hostile) node(links ...link) link {
	block := encodeNode(links)
	l := link{digest: sumOf(block), total: int64(len(block))}
	for _, c := range links {
		l.size += c.size
		l.total += c.total
	}
	h[l.cid()] = block
	return l
}

func (h hostile) raw(block []byte) link {
	l := link{digest: sumOf(block), size: 32, total: 32}
	h[l.cid()] = block
	return l
}

// TestHostileDAGs: whatever a root leads to that is not the one layout of the
// size at hand is refused, and leaves nothing behind.
func TestHostileDAGs(t *testing.T) {
	h := hostile{}
	a, b, c := h.leaf(randomBytes(1, 16)), h.leaf(randomBytes(2, 16)), h.leaf(randomBytes(3, 16))
	short := h.leaf(randomBytes(4, 5))
	long := h.leaf(randomBytes(5, 17))
	changed := func(l link, change func(*link)) link { change(&l); return l }
	full := h.node(a, b, c)
	for name, bad := range map[string]struct {
		root  link
		bytes int64
	}{
		"fewer bytes than it has":       {h.node(a, b), 31},
		"more bytes than it has":        {h.node(a, b), 33},
		"a leaf as large as two":        {h.node(long), 17},
		"a short leaf in the middle":    {h.node(short, a), 21},
		"a short leaf that says long":   {h.node(changed(short, func(l *link) { l.size, l.total = 16, 16 }), a), 32},
		"a long leaf that says short":   {h.node(a, changed(long, func(l *link) { l.size, l.total = 5, 5 })), 21},
		"too many links":                {h.node(a, b, c, a), 64},
		"a leaf that says total 17":     {h.node(a, changed(b, func(l *link) { l.total = 17 })), 32},
		"a node where a leaf belongs":   {h.node(a, changed(full, func(l *link) { l.size, l.total = 16, 16 })), 32},
		"a leaf where a node belongs":   {h.node(full, a), 64},
		"a node that says total 1":      {h.node(changed(full, func(l *link) { l.total = 1 }), h.node(a)), 64},
		"a node that says size 49":      {h.node(changed(full, func(l *link) { l.size = 49 }), h.node(a)), 65},
		"a node with one child missing": {h.node(changed(h.node(a, b), func(l *link) { l.size = 48 }), h.node(a)), 64},
		"an empty node":                 {h.raw([]byte{0x0a, 0x04, 0x08, 0x02, 0x18, 0x00}), 32},
		"no node at all":                {h.raw([]byte("hello")), 32},
		"nothing":                       {h.raw(nil), 32},
		"a huge node":                   {h.raw(make([]byte, maxNode+1)), 32},
		"a node too deep":               {h.node(h.node(a), h.node(b)), 32},
		"a node not deep enough":        {h.node(a, b, c), 64},
		"split otherwise":               {h.node(h.node(a, b), h.node(c, a)), 64},
		"a leaf for a root, too long":   {long, 17},
		"a node for a small file":       {h.node(short), 5},
	} {
		for _, bytes := range []int64{bad.bytes, -1} {
			to, space := testStore(t)
			_, err := pullFrom(t.Context(), to, bad.root.cid(), bytes, "m", h, nil)
			if bytes < 0 && err == nil {
				// With its true size it may be in order; then it is what it says.
				holdsItsSize(t, to, bad.root.cid())
				continue
			}
			if err == nil {
				t.Errorf("%s was taken", name)
				continue
			}
			if !errors.Is(err, ErrContentInvalid) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			sentence(t, err, ErrContentInvalid, "file_invalid")
			noLeftovers(t, space)
			if names := files(t, to.dir); len(names) > 0 {
				t.Errorf("%s: left in the folder: %q", name, names)
			}
		}
	}
	to, _ := testStore(t)
	for _, root := range []cid.Cid{cid.Undef, cid.NewCidV0(full.cid().Hash()), cid.NewCidV1(cid.DagCBOR, full.cid().Hash())} {
		_, err := pullFrom(t.Context(), to, root, 48, "m", h, nil)
		sentence(t, err, ErrContentInvalid, "file_invalid")
	}
	_, err := pullFrom(t.Context(), to, full.cid(), MaxBytes+1, "m", h, nil)
	sentence(t, err, ErrContentInvalid, "file_invalid")
}

func holdsItsSize(t *testing.T, s *Store, root cid.Cid) {
	t.Helper()
	c, err := s.Get(root)
	if err != nil {
		t.Error(err)
		return
	}
	data, err := os.ReadFile(c.Path)
	if err != nil || int64(len(data)) != c.Bytes {
		t.Errorf("%d bytes of %d: %v", len(data), c.Bytes, err)
	}
	if got, _ := ourImport(t, bytes.NewReader(data), c.Bytes, small); got != root {
		t.Errorf("%s was taken for %s", got, root)
	}
}

// TestDAGBomb: a few small nodes that link to one another a thousand times over
// promise terabytes. That must not cost more than its plan, nor any disk.
func TestDAGBomb(t *testing.T) {
	h := hostile{}
	l := h.leaf(make([]byte, chunkSize))
	for range 2 {
		links := make([]link, linkCount)
		for i := range links {
			links[i] = l
		}
		l = h.node(links...)
	}
	opt := testOptions(t, newMemSpace())
	opt.layout = layout{}
	opt.free = func(string) (uint64, uint64, error) { return 100 << 30, 1 << 40, nil }
	to := newStore(t, opt)
	for _, bytes := range []int64{1 << 40, -1} {
		_, err := pullFrom(t.Context(), to, l.cid(), bytes, "bomb", h, nil)
		sentence(t, err, store.ErrDiskFull, "disk_full", "bomb", "1.0 TiB", "100.0 GiB")
	}
	if list, err := to.Partials(); err != nil || len(list) > 0 {
		t.Errorf("kept: %v %v", list, err)
	}
}

func TestDiskIsAskedFirst(t *testing.T) {
	data := randomBytes(1, 3000)
	p, held := holder(t, data)
	space := newMemSpace()
	opt := testOptions(t, space)
	free := uint64(3000+reserve) - 1
	opt.free = func(string) (uint64, uint64, error) { return free, roomy, nil }
	to := newStore(t, opt)
	for _, bytes := range []int64{3000, -1} {
		_, err := pullFrom(t.Context(), to, held.CID, bytes, "qwen", p, nil)
		sentence(t, err, store.ErrDiskFull, "disk_full", "qwen", "2.9 KiB", "128.0 MiB", to.dir, "RELAY_MODELS_DIR")
		noLeftovers(t, space)
		if names := files(t, to.dir); len(names) > 0 {
			t.Errorf("left in the folder: %q", names)
		}
	}
	free++
	if _, err := pullFrom(t.Context(), to, held.CID, 3000, "qwen", p, nil); err != nil {
		t.Errorf("with just enough room: %v", err)
	}
}

func TestPullTakesWhatOtherFilesHere(t *testing.T) {
	base := randomBytes(1, 16*60)
	tuned := append(bytes.Clone(base[:16*50]), randomBytes(2, 16*10)...)
	p, held := holder(t, tuned)
	to, _ := testStore(t)
	mustAdd(t, to, newFile(t, base))
	if _, err := pullFrom(t.Context(), to, held.CID, 16*60, "tuned", p, nil); err != nil {
		t.Fatal(err)
	}
	if leaves, _ := p.sent(); leaves != 10 {
		t.Errorf("%d leaves were fetched, 10 are new", leaves)
	}
	holds(t, to, held.CID, tuned)
}

func TestPullAdoptsItsOwnFile(t *testing.T) {
	data := randomBytes(1, 300)
	p, held := holder(t, data)
	to, _ := testStore(t)
	first, err := pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Remove(held.CID, false); err != nil {
		t.Fatal(err)
	}
	_, before := p.sent()
	c, err := pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if _, after := p.sent(); err != nil || c.Path != first.Path || after != before {
		t.Errorf("%+v %v, %d blocks asked for", c, err, after-before)
	}
	if _, err := to.Remove(held.CID, true); err != nil {
		t.Fatal(err)
	}
	// Something else under that name is not taken, and not touched.
	writeFile(t, first.Path, randomBytes(9, 300))
	c, err = pullFrom(t.Context(), to, held.CID, 300, "m", p, nil)
	if err != nil || c.Path == first.Path {
		t.Errorf("%+v %v", c, err)
	}
	holds(t, to, held.CID, data)
	if got, err := os.ReadFile(first.Path); err != nil || !bytes.Equal(got, randomBytes(9, 300)) {
		t.Errorf("overwritten: %v", err)
	}
	if _, err := to.Remove(held.CID, true); err != nil {
		t.Fatal(err)
	}
	if names := files(t, to.dir); len(names) != 1 || names[0] != filepath.Base(first.Path) {
		t.Errorf("in the folder: %q", names)
	}
}

func TestRemovePartial(t *testing.T) {
	data := randomBytes(1, 3000)
	p, held := holder(t, data)
	to, space := testStore(t)
	sentence(t, to.RemovePartial(held.CID), ErrNotFound, "not_found", held.CID.String())
	// One that rests.
	p.reply = onlyNodes
	if _, err := pullFrom(t.Context(), to, held.CID, 3000, "m", p, nil); err == nil {
		t.Fatal("it came without its leaves")
	}
	if list, err := to.Partials(); err != nil || len(list) != 1 || list[0].Done != 0 || list[0].CID != held.CID {
		t.Fatalf("%+v %v", list, err)
	}
	if err := to.RemovePartial(held.CID); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
	// One that runs.
	running := make(chan struct{})
	var once sync.Once
	p.reply = func(n int, b blocks.Block) []blocks.Block {
		if b.Cid().Type() == cid.Raw {
			once.Do(func() { close(running) })
		}
		return []blocks.Block{b}
	}
	p.after = func(n int) {
		select {
		case <-running:
			// Never more than a few leaves, so that it cannot end by itself.
			if n > 200 {
				<-t.Context().Done()
			}
		default:
		}
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := pullFrom(ctx, to, held.CID, 3000, "m", p, nil)
		done <- err
	}()
	<-running
	if err := to.RemovePartial(held.CID); err != nil {
		t.Fatal(err)
	}
	sentence(t, <-done, ErrRemoved, "not_found")
	noLeftovers(t, space)
	if names := files(t, to.dir); len(names) > 0 {
		t.Errorf("left in the folder: %q", names)
	}
}

// TestRunningPullServesAndTakesBlocks: what is here already is handed to others
// at once, and blocks that are put need not be fetched.
func TestRunningPullServesAndTakesBlocks(t *testing.T) {
	data := randomBytes(1, 16*100)
	p, held := holder(t, data)
	to, _ := testStore(t)
	leaves, err := p.from.storedLeaves(held.CID, held.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	put := 90 // of the last request, which is not asked for before the first are over
	// Held until the other blocks were looked at.
	looked := make(chan struct{})
	first := make(chan struct{})
	var once sync.Once
	p.after = func(int) {
		if n, _ := p.sent(); n > 0 {
			once.Do(func() { close(first) })
			<-looked
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := pullFrom(context.Background(), to, held.CID, held.Bytes, "m", p, nil)
		done <- err
	}()
	<-first
	bs := to.Blocks()
	block, err := p.from.Blocks().Get(t.Context(), makeCID(leaves[put], true))
	if err != nil {
		t.Fatal(err)
	}
	if has, err := bs.Has(t.Context(), block.Cid()); err != nil || has {
		t.Errorf("leaf %d is here before it came: %v %v", put, has, err)
	}
	if err := bs.Put(t.Context(), block); err != nil {
		t.Errorf("put: %v", err)
	}
	got, err := bs.Get(t.Context(), block.Cid())
	if err != nil || !bytes.Equal(got.RawData(), block.RawData()) {
		t.Errorf("what was put: %v", err)
	}
	if size, err := bs.GetSize(t.Context(), block.Cid()); err != nil || size != 16 {
		t.Errorf("its size: %d %v", size, err)
	}
	if _, err := to.Get(held.CID); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unfinished pull counts as content: %v", err)
	}
	close(looked)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	holds(t, to, held.CID, data)
}

func TestPullReportsProgress(t *testing.T) {
	p, held := holder(t, randomBytes(1, 3000))
	to, _ := testStore(t)
	var all []Progress
	if _, err := pullFrom(t.Context(), to, held.CID, 3000, "m", p, func(pr Progress) { all = append(all, pr) }); err != nil {
		t.Fatal(err)
	}
	var phases []Phase
	for i, pr := range all {
		if len(phases) == 0 || phases[len(phases)-1] != pr.Phase {
			phases = append(phases, pr.Phase)
		} else if pr.Done < all[i-1].Done {
			t.Errorf("it goes backwards: %+v", all)
		}
		if pr.Total != 3000 {
			t.Errorf("total %d", pr.Total)
		}
	}
	if !slices.Equal(phases, []Phase{PhasePlan, PhaseFetch, PhaseFinish}) {
		t.Errorf("phases %v", phases)
	}
	last := all[len(all)-1]
	if last.Done != 3000 || last.Fetched < 3000 {
		t.Errorf("the last: %+v", last)
	}
}
