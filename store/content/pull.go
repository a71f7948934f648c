package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/ipfs/go-cid"

	"relay/store"
)

// PullOptions say what to bring here, and how.
type PullOptions struct {
	// Root is the CID of a file, or of a set of files.
	Root cid.Cid
	// Bytes is its size as its model says; -1 if nobody does. 0 is an empty file.
	Bytes int64
	// Name is for the file's name.
	Name string
	// Swarm is where it comes from. Required.
	Swarm Swarm
	// Limit is the most that is received, in bytes a second; 0 is as much as comes.
	Limit int64
	// Progress may be nil; it is called from one goroutine at a time and not after
	// the pull returned.
	Progress func(Progress)
}

// Pull brings content here, into plain files in the models folder, and registers
// it. Content that is here already is returned at once; a pull that was cut off,
// by whatever, goes on where it was. One that has no room on the disk in the
// middle waits for it.
//
// Concurrent pulls of one root are one pull, which uses the first caller's swarm
// and the last limit that was set, and ends with the last caller's context.
//
// It fails with ErrContentInvalid when root, size and what comes do not fit
// together, with store.ErrDiskFull when there is no room to begin, with
// ErrNoBlocks when nothing came for a while, with ErrRemoved, and with the cause of
// the context's end, such as ErrPaused. Except after ErrContentInvalid what is here is kept
// for the next try.
func (s *Store) Pull(ctx context.Context, o PullOptions) (Content, error) {
	return s.ride(ctx, orderOf(o), o.Limit, o.Progress)
}

// PullRanges brings some bytes of one file here, and the rest of the leaves that
// they lie in; OpenRange then has them. They stay an unfinished pull, which Pull
// goes on with. It fails like Pull, and with ErrContentInvalid when a range is
// not within the file.
func (s *Store) PullRanges(ctx context.Context, o PullOptions, ranges []ByteRange) error {
	r := orderOf(o)
	r.ranges = append([]ByteRange{}, ranges...)
	_, err := s.ride(ctx, r, o.Limit, o.Progress)
	return err
}

// ByteRange is the bytes [From, To) of a file.
type ByteRange struct{ From, To int64 }

// order is what a pull is to do.
type order struct {
	root  cid.Cid
	bytes int64 // -1: nobody says
	name  string
	get   Swarm
	// ranges are what is wanted of the file; nil is all.
	ranges []ByteRange
	// member is set where the file belongs to a set that is pulled.
	member *member
}

func orderOf(o PullOptions) order {
	return order{root: o.Root, bytes: max(o.Bytes, -1), name: o.Name, get: o.Swarm}
}

// ride carries out an order, together with others that want the same.
func (s *Store) ride(ctx context.Context, o order, limit int64, progress func(Progress)) (Content, error) {
	if _, err := rootOf(o.root); err != nil {
		return Content{}, err
	}
	report := &reporter{fn: progress}
	defer report.stop()
	for {
		if c, ok := s.here(o); ok {
			if o.bytes >= 0 && c.Bytes != o.bytes {
				return Content{}, wrongSize(o.root, c.Bytes, o.bytes)
			}
			if o.member == nil && o.ranges == nil {
				return c, s.claim(o.root)
			}
			return c, nil
		}
		f, on := s.board(ctx, o, report)
		if on {
			f.meter.setLimit(limit)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
		}
		if !on {
			// It had been given up when we came, or is for something else; begin anew
			// once it is gone.
			if ctx.Err() != nil {
				return Content{}, stopped(ctx, o.name)
			}
			continue
		}
		if last := s.leave(f, report); last {
			<-f.done
		}
		select {
		case <-f.done:
			if f.err != nil && ctx.Err() != nil {
				return Content{}, stopped(ctx, o.name)
			}
			if f.err == nil && o.ranges == nil && o.bytes >= 0 && f.content.Bytes != o.bytes {
				return Content{}, wrongSize(o.root, f.content.Bytes, o.bytes)
			}
			return f.content, f.err
		default:
			return Content{}, stopped(ctx, o.name)
		}
	}
}

func stopped(ctx context.Context, name string) error {
	return fmt.Errorf("the pull of %q stopped and keeps what is here: %w", name, context.Cause(ctx))
}

func wrongSize(root cid.Cid, is, want int64) error {
	return fmt.Errorf("%w: %s has %d bytes, its model says %d", ErrContentInvalid, root, is, want)
}

// flight is one running pull, shared by all who asked for it.
type flight struct {
	order
	s      *Store
	cancel context.CancelCauseFunc
	bad    atomic.Int64 // wrong blocks received
	meter  *meter       // of a file of a set, that of the set
	// fetched are inner nodes that came before there was a record to keep them for.
	fetched map[digest][]byte
	// arrived is when the last block did.
	arrived clock
	buffers sync.Pool // of leaves
	lock    *flock.Flock
	quit    <-chan struct{} // Closed when the pull is to end.

	// done is closed when the pull is over; content and err are set by then.
	done    chan struct{}
	content Content
	err     error

	// Guarded by the store's mu.
	callers int
	part    *part // while leaves are being written

	// room is held by whoever waits for room on the disk.
	room sync.Mutex

	mu      sync.Mutex
	reports map[*reporter]bool
	said    Progress
	saidAt  time.Time
}

// buffer is one for a leaf of that size; recycle takes it back.
func (f *flight) buffer(size int64) []byte {
	if b, ok := f.buffers.Get().(*[]byte); ok {
		return (*b)[:size]
	}
	return make([]byte, size, f.s.layout.chunk)
}

func (f *flight) recycle(b []byte) { f.buffers.Put(&b) }

// board joins the pull of a root, or starts it. on is false when there is one
// that everybody has left and that is about to end, or one for something else.
func (s *Store) board(ctx context.Context, o order, r *reporter) (f *flight, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.pulls[o.root]
	if f == nil {
		run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		f = &flight{s: s, order: o, cancel: cancel, quit: run.Done(), done: make(chan struct{}), reports: map[*reporter]bool{}}
		if f.meter = new(meter); o.member != nil {
			f.meter = o.member.set.meter
		}
		s.pulls[o.root] = f
		// Its callers wait for it; the last one to leave ends it.
		go func() {
			defer cancel(nil)
			content, err := f.run(run)
			s.mu.Lock()
			f.content, f.err = content, err
			delete(s.pulls, o.root)
			s.mu.Unlock()
			close(f.done)
		}()
	} else if f.callers == 0 || f.ranges != nil || o.ranges != nil || f.member != nil || o.member != nil {
		return f, false
	}
	f.callers++
	f.mu.Lock()
	f.reports[r] = true
	f.mu.Unlock()
	return f, true
}

// leave says whether the caller was the last one; the pull is then ending.
func (s *Store) leave(f *flight, r *reporter) (last bool) {
	f.mu.Lock()
	delete(f.reports, r)
	f.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	f.callers--
	if f.callers == 0 {
		f.cancel(context.Canceled)
	}
	return f.callers == 0
}

// report tells those who asked for the pull how far it is.
func (f *flight) report(p Progress) {
	f.mu.Lock()
	now := time.Now()
	soon := p.Phase == f.said.Phase && p.Why == f.said.Why && p.Done < p.Total && now.Sub(f.saidAt) < reportEvery
	if soon {
		f.mu.Unlock()
		return
	}
	f.said, f.saidAt = p, now
	reports := make([]*reporter, 0, len(f.reports))
	for r := range f.reports {
		reports = append(reports, r)
	}
	f.mu.Unlock()
	p.Fetched, p.Left = f.meter.got.Load(), -1
	if p.Phase == PhaseFetch || p.Phase == PhaseWait {
		p.Rate, p.From = f.meter.now()
		if p.Rate > 0 {
			p.Left = time.Duration(float64(p.Total-p.Done) / p.Rate * float64(time.Second))
		}
	}
	for _, r := range reports {
		r.report(p)
	}
}

// roomEvery is how often what needed room on the disk is tried again, and roomPatience
// how long.
const (
	roomEvery    = time.Second
	roomPatience = 24 * time.Hour
)

// withRoom does something that needs room on a disk, and where there is none,
// says so and does it again until there is.
func (f *flight) withRoom(ctx context.Context, q *part, do func() error) error {
	return f.roomFor(ctx, q.have(), q.total, do)
}

// roomFor is withRoom where done of total bytes are here.
func (f *flight) roomFor(ctx context.Context, done, total int64, do func() error) error {
	err := do()
	if !store.IsDiskFull(err) {
		return err
	}
	f.room.Lock() // One tries for all.
	defer f.room.Unlock()
	tick := time.NewTicker(f.s.opt.roomEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < roomPatience; {
		if err = do(); !store.IsDiskFull(err) {
			return err
		}
		f.arrived.touch() // Nobody else is to blame for the silence.
		f.report(Progress{Phase: PhaseWait, Done: done, Total: total, Why: err.Error()})
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
	return err
}

// run is the pull from beginning to end.
func (f *flight) run(ctx context.Context) (Content, error) {
	rec, content, err := f.begin(ctx)
	if err != nil || rec == nil {
		return content, err
	}
	content, err = f.pull(ctx, rec)
	if err == nil {
		return content, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, ErrContentInvalid) && !errors.Is(err, errRange) || store.IsDiskFull(err) && f.s.nothingOf(rec) {
		// Nothing of it can be used again, or nothing is there.
		if drop := f.s.dropPartial(rec); drop != nil {
			f.s.log.Warn("an unfinished pull could not be removed", "path", rec.Part, "error", drop)
		}
	}
	return Content{}, err
}

// begin finds or makes the record of the pull. Without one, and without an
// error, the content was found to be here.
func (f *flight) begin(ctx context.Context) (*partial, Content, error) {
	// Another pull may have ended just before this one began.
	if content, ok := f.s.here(f.order); ok {
		return nil, content, nil
	}
	if err := f.s.makeDir(); err != nil {
		return nil, Content{}, err
	}
	rec, err := f.s.partialOf(f.root)
	if err != nil {
		return nil, Content{}, err
	}
	if rec != nil {
		if f.bytes >= 0 && rec.Bytes >= 0 && f.bytes != rec.Bytes {
			return nil, Content{}, wrongSize(f.root, rec.Bytes, f.bytes)
		}
		if rec.Bytes < 0 {
			rec.Bytes = f.bytes
		}
		return rec, Content{}, nil
	}
	if f.bytes >= 0 {
		if content, ok := f.adopt(ctx); ok {
			return nil, content, nil
		}
	}
	entries, err := f.directory(ctx)
	if err != nil {
		return nil, Content{}, err
	}
	if entries != nil && f.ranges == nil && f.member == nil {
		rec, err := f.beginSet(entries)
		return rec, Content{}, err
	}
	if f.bytes >= 0 {
		if _, err := f.s.newPlan(f.root, f.bytes); err != nil {
			return nil, Content{}, err
		}
		if f.ranges == nil {
			if err := f.askDisk(f.bytes); err != nil {
				return nil, Content{}, err
			}
		}
	}
	rec = &partial{Root: f.root, Name: f.name, Bytes: f.bytes, Dest: f.dest()}
	if rec.Part, err = f.s.partName(f.name, f.root); err != nil {
		return nil, Content{}, err
	}
	return rec, Content{}, f.s.newPartial(rec)
}

// adopt registers a file that lies already where the pull would put it, such as
// one whose model was removed without its file, if it is the right one. It may
// be its owner's by now, so it counts as registered in place.
func (f *flight) adopt(ctx context.Context) (Content, bool) {
	path := filepath.Join(f.s.dir, fileName(f.name, f.root)+".gguf")
	info, err := os.Stat(path)
	if err != nil || info.Size() != f.bytes {
		return Content{}, false
	}
	h, err := f.s.hashFile(ctx, path, &reporter{direct: true, fn: func(p Progress) {
		f.report(Progress{Phase: PhaseCheck, Done: p.Done, Total: p.Total})
	}})
	if err != nil || h.known != nil {
		return Content{}, false
	}
	root, err := f.s.layout.buildTree(f.bytes, h.leaves, func(digest, []byte) error { return nil })
	if err != nil || root.cid() != f.root {
		return Content{}, false
	}
	rec := &file{Bytes: f.bytes, Path: path, Stamp: h.stamp}
	if err := f.s.register(rec, h.leaves); err != nil {
		f.s.log.Warn("a file that is here already could not be registered", "path", path, "error", err)
		return Content{}, false
	}
	return contentOf(rec, nil), true
}

// askDisk refuses when the disk has no room for that many more bytes and the
// reserve.
func (f *flight) askDisk(need int64) error {
	free, _, err := f.s.opt.free(f.s.dir)
	if err != nil {
		return nil // the write itself will tell
	}
	if need > 0 && free < uint64(need)+reserve {
		return fmt.Errorf("%w: %q needs %s in %s and %s to spare, %s are free; free some space or set RELAY_MODELS_DIR to a folder on another disk",
			store.ErrDiskFull, f.name, store.FormatBytes(uint64(need)), f.s.dir, store.FormatBytes(reserve), store.FormatBytes(free))
	}
	return nil
}

// pull does what is left to do for a record.
func (f *flight) pull(ctx context.Context, rec *partial) (Content, error) {
	if rec.Set && f.ranges != nil {
		return Content{}, fmt.Errorf("%w: %s is a set of files, and ranges are of one", errRange, f.root)
	}
	if rec.Set {
		entries, err := f.directory(ctx)
		if err == nil && entries == nil {
			err = fmt.Errorf("%w: %s is no set of files", ErrContentInvalid, f.root)
		}
		if err != nil {
			return Content{}, err
		}
		return f.pullSet(ctx, rec, entries)
	}
	if err := f.claim(rec); err != nil {
		return Content{}, err
	}
	f.report(Progress{Phase: PhasePlan, Total: rec.Bytes})
	p, err := f.plan(ctx, rec)
	if err != nil {
		return Content{}, err
	}
	if f.member != nil {
		if err := f.checkTotal(p); err != nil {
			return Content{}, err
		}
	}
	if rec.Final != "" {
		content, found, err := f.finish(rec, p)
		if found || err != nil {
			return content, err
		}
		rec.Final = "" // neither name exists any more: all over again
	}
	defer f.unlockPart()
	q, err := f.openPart(rec, p)
	if err != nil {
		return Content{}, err
	}
	if f.member != nil && f.member.reserve {
		return Content{CID: f.root, Bytes: p.bytes}, q.close()
	}
	f.setPart(q)
	err = f.fill(ctx, q)
	if err == nil {
		err = f.withRoom(ctx, q, q.commit)
	}
	f.setPart(nil)
	// Also after a failure: what was written need not be fetched again.
	err = first(err, q.commit(), q.close())
	rec.Left = stampAt(rec.Part)
	err = first(err, f.s.savePartial(rec))
	if err != nil || f.ranges != nil {
		return Content{CID: f.root, Bytes: p.bytes, Path: rec.Part}, err
	}
	f.report(Progress{Phase: PhaseFinish, Done: p.bytes, Total: p.bytes})
	rec.Final, rec.Stamp = f.finalName(), rec.Left
	var content Content
	var found bool
	err = f.withRoom(ctx, q, func() (err error) {
		if err := f.s.savePartial(rec); err != nil {
			return err
		}
		content, found, err = f.finish(rec, p)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: %w: it changed while it was pulled", rec.Part, ErrFileChanged)
	}
	return content, err
}

func (f *flight) setPart(q *part) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.part = q
}

// claim notes in the record where the file is to lie, if that is new.
func (f *flight) claim(rec *partial) error {
	if rec.Dest == f.dest() || rec.Final != "" { // It has come to its end already.
		return nil
	}
	rec.Dest = f.dest()
	return f.s.savePartial(rec)
}

// dest is where a file of a set is to lie, "" for one by itself.
func (f *flight) dest() string {
	if f.member == nil {
		return ""
	}
	return f.member.dest
}

// finalName is a name in the models folder that is free, or the file's own in the
// folder of its set.
func (f *flight) finalName() string {
	if f.member != nil {
		return f.member.dest
	}
	base := filepath.Join(f.s.dir, fileName(f.name, f.root))
	for n := 1; ; n++ {
		path := base + ".gguf"
		if n > 1 {
			path = base + "-" + strconv.Itoa(n) + ".gguf"
		}
		if _, err := os.Lstat(path); err != nil {
			return path
		}
	}
}

// finish gives the whole file its name and registers it. found is false when
// neither the unfinished nor the finished file is the one that was recorded.
func (f *flight) finish(rec *partial, p *plan) (content Content, found bool, err error) {
	switch {
	case isAt(rec.Final, rec.Stamp):
		// Killed in the middle of giving it its name: the other one goes.
		if isAt(rec.Part, rec.Stamp) {
			if err := os.Remove(rec.Part); err != nil {
				return Content{}, true, unusable(f.s.dir, err)
			}
		}
	case !isAt(rec.Part, rec.Stamp):
		return Content{}, false, nil
	default:
		if err := f.giveFinal(rec); err != nil {
			return Content{}, true, err
		}
	}
	if err := store.SyncDir(filepath.Dir(rec.Final)); err != nil {
		return Content{}, true, unusable(f.s.dir, err)
	}
	done := &file{ID: rec.ID, Bytes: p.bytes, Path: rec.Final, Stamp: rec.Stamp, Pulled: true,
		Part: rec.Dest != "" && rec.Final == rec.Dest, Nested: rec.Dest != "" && rec.Final == rec.Dest}
	err = f.s.register(done, p.leaves,
		store.Write{Key: keyPull(rec.Root), Delete: true},
		store.Write{Key: keyMaps(rec.Root), Delete: true})
	if err != nil {
		return Content{}, true, err
	}
	return contentOf(done, nil), true, nil
}

// giveFinal gives the whole file its name, or another one where that is taken. A
// file of a set has only the one.
func (f *flight) giveFinal(rec *partial) error {
	for {
		err := giveName(rec.Part, rec.Final)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrExist):
			return unusable(f.s.dir, err)
		case f.member != nil:
			return fmt.Errorf("%w: %s is in the way of a file that was pulled; move it away and pull again", ErrUnusable, rec.Final)
		}
		next := f.finalName()
		if next == rec.Final { // Nothing is there any more.
			continue
		}
		rec.Final = next
		if err := f.s.savePartial(rec); err != nil {
			return err
		}
	}
}

// isAt says whether the file with that stamp is at a path.
func isAt(path string, is stamp) bool {
	at := stampAt(path)
	return at.Size >= 0 && at == is
}

func stampAt(path string) stamp {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return stamp{Size: -1}
	}
	return stampOf(info)
}
