package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"

	"relay/store"
	"relay/store/content/leases"
)

const (
	// Four requests of twelve leaves each: at most 48 MiB are on their way or
	// waiting to be written.
	fetchers   = 4
	perRequest = 12
	// maxInVain is how often blocks are asked for in a row without one coming.
	maxInVain = 3
	// maxBlock is the largest block that is looked at, in bytes.
	maxBlock = 2 << 20
	// maxBad is how many wrong blocks a pull puts up with.
	maxBad = 100
)

// plan gets the inner nodes, those kept here first, and with them the hash and
// the place of every leaf.
func (f *flight) plan(ctx context.Context, rec *partial) (*plan, error) {
	if rec.Bytes < 0 {
		bytes, err := f.askSize(ctx, rec)
		if err != nil {
			return nil, err
		}
		rec.Bytes = bytes
		if err := f.s.savePartial(rec); err != nil {
			return nil, err
		}
		if f.ranges == nil {
			if err := f.askDisk(bytes); err != nil {
				return nil, err
			}
		}
	}
	p, err := f.s.newPlan(f.root, rec.Bytes)
	if err != nil {
		return nil, err
	}
	keep := &nodeKeeper{s: f.s, id: rec.ID, b: batch{space: f.s.space}}
	err = p.walk(ctx, func(ctx context.Context, level []nodeAt, found func(digest, []byte) error) error {
		var missing []digest
		for _, at := range level {
			block, have := f.fetched[at.digest]
			var err error
			if !have {
				block, have, err = f.s.space.Get(keyNode(at.digest))
			}
			if err != nil {
				return err
			}
			if !have || sha256.Sum256(block) != at.digest {
				missing = append(missing, at.digest)
				continue
			}
			if err := found(at.digest, block); err != nil {
				return err
			}
			if err := keep.add(at.digest, block); err != nil {
				return err
			}
		}
		var mu sync.Mutex
		err := f.fetch(ctx, missing, false, func(d digest, block []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if err := found(d, block); err != nil {
				return err
			}
			return keep.add(d, block)
		})
		// Also after a failure: what came need not be fetched again.
		return first(err, keep.flush())
	})
	return p, err
}

// nodeKeeper stores the inner nodes of a pull, many at a time.
type nodeKeeper struct {
	s  *Store
	id uint64
	b  batch
}

func (k *nodeKeeper) add(d digest, block []byte) error {
	_, mine, err := k.s.space.Get(keyUse(d, k.id))
	if err != nil || mine {
		return err // a node with our mark on it stays
	}
	if k.b.size+len(block)+2*perWrite > store.MaxBytes/2 {
		if err := k.flush(); err != nil {
			return err
		}
	}
	return first(k.b.set(keyNode(d), block), k.b.set(keyUse(d, k.id), nil))
}

func (k *nodeKeeper) flush() error {
	k.s.tables.Lock()
	defer k.s.tables.Unlock()
	return k.b.flush()
}

// first returns the first of some errors: what followed from it is no news.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// askSize learns the size from the root itself.
func (f *flight) askSize(ctx context.Context, rec *partial) (int64, error) {
	root, err := rootOf(f.root)
	if err != nil {
		return 0, err
	}
	if root.leaf && root.digest == emptyDigest() {
		return 0, nil
	}
	size := int64(-1)
	read := func(d digest, block []byte) error {
		if root.leaf {
			size = int64(len(block))
			return nil
		}
		links, err := decodeNode(block, f.s.layout.links)
		if err != nil {
			return fmt.Errorf("%w: root %s: %w", ErrContentInvalid, f.root, err)
		}
		size = 0
		for _, l := range links {
			size += l.size
		}
		keep := &nodeKeeper{s: f.s, id: rec.ID, b: batch{space: f.s.space}}
		return first(keep.add(d, block), keep.flush())
	}
	if block, have := f.fetched[root.digest]; have {
		return size, first(read(root.digest, block))
	}
	err = f.fetch(ctx, []digest{root.digest}, root.leaf, read)
	return size, err
}

// openPart opens the unfinished file, or makes it: with all its space reserved,
// or, where only some of it is wanted, with none.
func (f *flight) openPart(rec *partial, p *plan) (*part, error) {
	want, err := f.want(p)
	if err != nil {
		return nil, err
	}
	m, err := f.s.loadMaps(rec)
	if errors.Is(err, errMaps) {
		f.s.log.Warn("a pull begins anew", "name", rec.Name, "error", err)
		m, err = marks{done: leases.NewSet(len(p.leaves))}, nil
	}
	if err != nil {
		return nil, err
	}
	if f.lock, err = f.s.lockPart(rec); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(rec.Part, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, unusable(f.s.dir, err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.Size() != p.bytes || !info.Mode().IsRegular():
		// New, or not what was left here: nothing in it is known.
		m = marks{done: leases.NewSet(len(p.leaves))}
		if err = f.makePart(rec, file, info, p); err == nil {
			info, err = file.Stat()
		}
	default:
		if !f.isPart(rec, info) {
			f.s.log.Warn("an unfinished file was changed; what is in it is hashed again", "path", rec.Part)
			m = m.doubted(len(p.leaves))
		}
		if rec.Sparse && f.ranges == nil {
			err = f.reserveSpace(rec, file, info, p)
		}
	}
	if err == nil && f.ranges != nil {
		err = f.askDisk(missingBytes(f.s.layout, p, want, m))
	}
	if err == nil {
		rec.Inode, rec.Left = stampOf(info).Inode, stamp{}
		err = f.s.savePartial(rec)
	}
	if err != nil {
		return nil, first(err, file.Close())
	}
	return newPart(f.s, rec, p, file, m, want, f.quit), nil
}

// isPart says whether the unfinished file is the one that a pull left. One that was
// killed did not say what it left but for the inode.
func (f *flight) isPart(rec *partial, info os.FileInfo) bool {
	now := stampOf(info)
	if rec.Left.Size != 0 {
		return now == rec.Left
	}
	return rec.Inode == 0 || now.Inode == rec.Inode
}

// missingBytes are those that are wanted and not here.
func missingBytes(l layout, p *plan, want leases.Set, m marks) (n int64) {
	for i := range p.leaves {
		if want.Has(i) && !m.done.Has(i) {
			n += l.leafSize(p.bytes, i)
		}
	}
	return n
}

// want is the set of leaves that the pull is for.
func (f *flight) want(p *plan) (leases.Set, error) {
	set := leases.NewSet(len(p.leaves))
	if f.ranges == nil {
		set.Fill(len(p.leaves))
		return set, nil
	}
	for _, r := range f.ranges {
		if r.From < 0 || r.To > p.bytes || r.From > r.To {
			return nil, fmt.Errorf("%w: bytes %d to %d are not within the %d of %s", errRange, r.From, r.To, p.bytes, f.root)
		}
		for at := r.From / f.s.layout.chunk; r.From < r.To && at*f.s.layout.chunk < r.To; at++ {
			set.Add(int(at))
		}
	}
	return set, nil
}

// errRange is a range that is asked for outside of the file.
var errRange = fmt.Errorf("%w in the range that is asked for", ErrContentInvalid)

// makePart makes a file of the right size with nothing in it.
func (f *flight) makePart(rec *partial, file *os.File, info os.FileInfo, p *plan) error {
	// The bitmap of an earlier file of that name must not outlive it.
	if err := f.s.space.Apply([]store.Write{{Key: keyMaps(f.root), Delete: true}}); err != nil {
		return err
	}
	if f.ranges == nil {
		if err := f.askDisk(p.bytes - allocated(info)); err != nil {
			return err
		}
	}
	if err := file.Truncate(0); err != nil {
		return unusable(f.s.dir, err)
	}
	if f.ranges == nil {
		return f.reserveSpace(rec, file, nil, p)
	}
	if err := file.Truncate(p.bytes); err != nil {
		return unusable(f.s.dir, err)
	}
	rec.Sparse = true
	return f.s.savePartial(rec)
}

// reserveSpace gives a file all the space that it is going to need.
func (f *flight) reserveSpace(rec *partial, file *os.File, info os.FileInfo, p *plan) error {
	if info != nil {
		if err := f.askDisk(p.bytes - allocated(info)); err != nil {
			return err
		}
	}
	if err := f.s.opt.allocate(file, p.bytes); err != nil {
		if !store.IsDiskFull(err) {
			return unusable(f.s.dir, err)
		}
		if info == nil {
			return first(f.diskFull(p.bytes), file.Truncate(0))
		}
		return f.diskFull(p.bytes)
	}
	if !rec.Sparse {
		return nil
	}
	rec.Sparse = false
	return f.s.savePartial(rec)
}

func (f *flight) diskFull(need int64) error {
	if err := f.askDisk(need); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q needs %s in %s, the disk or a quota on it does not give them; free some space or set RELAY_MODELS_DIR to a folder on another disk",
		store.ErrDiskFull, f.name, store.FormatBytes(uint64(need)), f.s.dir)
}

// fill brings every leaf that is wanted into the file: what a crash left there,
// what other files here have, and then what others send.
func (f *flight) fill(ctx context.Context, q *part) error {
	report := func(phase Phase) { f.report(Progress{Phase: phase, Done: q.have(), Total: q.total}) }
	work, stop := context.WithCancel(ctx)
	defer stop()
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return f.keepCommitting(work, q) })
	g.Go(func() error {
		defer stop()
		if err := f.recheck(work, q, report); err != nil {
			return err
		}
		if err := f.copyLocal(work, q, report); err != nil {
			return err
		}
		if q.bytes == 0 {
			// Nobody sends a block of no bytes.
			return f.withRoom(work, q, func() error {
				_, err := q.place(emptyDigest(), nil)
				return err
			})
		}
		f.filled(q)
		return f.gather(work, q)
	})
	return g.Wait()
}

// singlesAtOnce is how many leaves are asked for one by one before those who send
// ranges are tried again.
const singlesAtOnce = 2 * fetchers * perRequest

// gather has others send what is missing: in ranges, and one by one where nobody
// sends ranges.
func (f *flight) gather(ctx context.Context, q *part) error {
	var c *crew
	had, since := q.have(), time.Now()
	for {
		some := q.missing(1)
		if len(some) == 0 {
			return nil
		}
		if c == nil {
			c = newCrew(f, q)
		}
		if err := c.run(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f.singles(ctx, c, q)
		if now := q.have(); now != had {
			had, since = now, time.Now()
		}
		patient := time.Since(since) <= f.s.opt.Stall
		rest, ok := c.rested()
		switch {
		case err == nil && !patient:
			err = f.noBlocks(len(q.missing(singlesAtOnce)))
		case errors.Is(err, ErrNoBlocks) && patient && ok:
			err = pause(ctx, rest) // Then those who send ranges may have come back.
		}
		if trouble := c.troubles(); errors.Is(err, ErrNoBlocks) && trouble != nil {
			return fmt.Errorf("%w (%w)", err, trouble)
		}
		if err != nil {
			return err
		}
	}
}

// pause waits a while, a moment at least.
func pause(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(max(d, 10*time.Millisecond))
	defer over.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-over.C:
		return nil
	}
}

// singles has some leaves sent one by one. When somebody who sends ranges may be
// asked again, it ends, unless single ones are coming.
func (f *flight) singles(ctx context.Context, c *crew, q *part) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if rest, ok := c.rested(); ok {
		g, end := make(chan struct{}), make(chan struct{})
		defer func() { close(end); <-g }()
		go func() {
			defer close(g)
			for {
				again := time.NewTimer(max(rest, firstPause))
				select {
				case <-end:
					again.Stop()
					return
				case <-again.C:
				}
				if rest = 0; f.arrived.since() >= refreshEvery {
					cancel()
				}
			}
		}()
	}
	err := f.fetch(within, q.missing(singlesAtOnce), true, func(d digest, data []byte) error {
		err := f.withRoom(ctx, q, func() error {
			_, err := q.place(d, data)
			return err
		})
		f.filled(q)
		return err
	})
	if within.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// filled reports how far the file is.
func (f *flight) filled(q *part) {
	f.report(Progress{Phase: PhaseFetch, Done: q.have(), Total: q.total})
}

// keepCommitting commits what is written, now and then, until ctx is done.
func (f *flight) keepCommitting(ctx context.Context, q *part) error {
	tick := time.NewTicker(f.s.opt.commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.kick:
		case <-tick.C:
		}
		if err := f.withRoom(ctx, q, q.commit); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// recheck hashes what may have been written after the last commit before a
// crash, so that it is not fetched again.
func (f *flight) recheck(ctx context.Context, q *part, report func(Phase)) error {
	var indices []int
	for i := range q.leaves {
		if q.tried.Has(i) && !q.written.Has(i) {
			indices = append(indices, i)
		}
	}
	return f.s.layout.hashSome(ctx, readable{q.file}, q.bytes, indices, func(i int, d digest) {
		if d == q.leaves[i] {
			q.mark(i)
			report(PhaseCheck)
		}
	})
}

// readable reads zeros where a file cannot be read: what is there is then fetched
// again.
type readable struct{ io.ReaderAt }

func (r readable) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, at)
	if err != nil {
		clear(p[n:])
	}
	return len(p), nil
}

// copyLocal takes leaves that other files on this machine have.
func (f *flight) copyLocal(ctx context.Context, q *part, report func(Phase)) error {
	f.s.mu.RLock()
	alone := len(f.s.files) == 0
	f.s.mu.RUnlock()
	if alone {
		return nil
	}
	open := q.open()
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(q.leaves) {
					return nil
				}
				if !open.Has(i) || q.has(i) {
					continue
				}
				data, err := f.s.leafFromFiles(q.leaves[i], true)
				if err != nil || data == nil {
					continue // it will be fetched
				}
				err = f.withRoom(ctx, q, func() error {
					_, err := q.place(q.leaves[i], data)
					return err
				})
				if err != nil {
					return err
				}
				report(PhaseCheck)
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// fetch gets blocks from others, hashes each, and hands it to accept, from
// several goroutines. It asks again for what did not come, a few times when
// nothing comes at all.
func (f *flight) fetch(ctx context.Context, want []digest, leaf bool, accept func(digest, []byte) error) error {
	inVain := 0
	for len(want) > 0 {
		left, cause, err := f.round(ctx, want, leaf, accept)
		if err != nil {
			return err
		}
		if len(left) < len(want) {
			inVain = 0
		} else if inVain++; inVain == maxInVain || errors.Is(cause, errStalled) {
			err := f.noBlocks(len(left))
			if cause != nil {
				err = fmt.Errorf("%w (%w)", err, cause)
			}
			return err
		}
		want = left
	}
	return nil
}

// noBlocks says that blocks did not come.
func (f *flight) noBlocks(n int) error {
	return fmt.Errorf("%w: %d blocks of %q did not come; what is here is kept, pull again when a peer that has it is up", ErrNoBlocks, n, f.name)
}

// round asks once for each block and returns those that did not come, and a
// reason why.
func (f *flight) round(ctx context.Context, want []digest, leaf bool, accept func(digest, []byte) error) (left []digest, cause, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	fetchers, each := fetchers, perRequest
	if leaf && f.meter.limited() {
		fetchers, each = 1, 1 // They are counted when they have come.
	}
	for range fetchers {
		g.Go(func() error {
			for {
				mu.Lock()
				some := want[:min(each, len(want))]
				want = want[len(some):]
				mu.Unlock()
				if len(some) == 0 {
					return nil
				}
				missed, why, err := f.request(ctx, some, leaf, accept)
				if err != nil {
					return err
				}
				mu.Lock()
				left = append(left, missed...)
				if why != nil {
					cause = why
				}
				mu.Unlock()
			}
		})
	}
	err = g.Wait()
	return left, cause, err
}

var errStalled = errors.New("nothing came in time")

// request asks for some blocks at once.
func (f *flight) request(ctx context.Context, want []digest, leaf bool, accept func(digest, []byte) error) (missed []digest, cause, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	open := make(map[digest]bool, len(want))
	cids := make([]cid.Cid, len(want))
	for i, d := range want {
		open[d], cids[i] = true, makeCID(d, leaf)
	}
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.arrived.touch()
	if leaf {
		f.meter.begin("", "")
	}
	stall := time.NewTimer(f.s.opt.Stall)
	defer stall.Stop()
	coming, cause := f.get.GetBlocks(asking, cids)
	for cause == nil && len(open) > 0 {
		var b blocks.Block
		var ok bool
		select {
		case b, ok = <-coming:
		case <-stall.C:
			// Blocks of other requests count: a slow peer sends them in turn.
			if idle := f.arrived.since(); idle < f.s.opt.Stall {
				stall.Reset(f.s.opt.Stall - idle)
				continue
			}
			cancel(errStalled)
		case <-ctx.Done():
		}
		if !ok {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			cause = context.Cause(asking)
			break
		}
		d, good, err := f.verify(b, open, leaf)
		if err != nil {
			return nil, nil, err
		}
		if !good {
			continue
		}
		f.arrived.touch()
		if err := f.meter.wait(ctx, len(b.RawData()), f.arrived.touch); err != nil {
			return nil, nil, err
		}
		if err := accept(d, b.RawData()); err != nil {
			return nil, nil, err
		}
		delete(open, d)
	}
	for _, d := range want {
		if open[d] {
			missed = append(missed, d)
		}
	}
	return missed, cause, nil
}

// verify hashes a block that came and says whether it is one of those wanted.
func (f *flight) verify(b blocks.Block, open map[digest]bool, leaf bool) (d digest, good bool, err error) {
	data := b.RawData()
	f.meter.got.Add(int64(len(data)))
	if leaf {
		f.meter.came("", "", len(data))
	}
	if len(data) <= maxBlock {
		d = sha256.Sum256(data)
		if open[d] {
			if leaf {
				f.meter.good("", "", len(data))
			}
			return d, true, nil
		}
		if claimed, ok := digestOf(b.Cid()); ok && claimed == d {
			return d, false, nil // right, but twice or unasked
		}
	}
	f.s.log.Warn("a wrong block came", "cid", b.Cid(), "bytes", len(data))
	if f.bad.Add(1) > maxBad {
		return d, false, fmt.Errorf("%w: %d wrong blocks came for %q; what is here is kept, pull again when another peer that has it is up", ErrNoBlocks, maxBad, f.name)
	}
	return d, false, nil
}

// clock keeps the time at which something last arrived.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Now()
}

func (c *clock) since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.at)
}
