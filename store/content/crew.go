package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"relay/store/content/leases"
)

const (
	// maxHands is how many holders a file is pulled from at a time.
	maxHands = 16
	// refreshEvery is how often it is asked who holds the file, and those who hold a
	// part of it what that is.
	refreshEvery = 2 * time.Second
	// askPatience is how long a holder may take to say what it has.
	askPatience = 5 * time.Second
	// firstPause is how long a holder that failed is left alone; it doubles up to
	// lastPause.
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
	// pieceBytes is how much is read at a time.
	pieceBytes = 256 << 10
)

// crew fills a file from those who hold it, each asked for one range at a time.
//
// A leaf that comes wrong is asked for again where it came from, to be hashed
// there first: its file may be damaged, and that is how its owner learns. It is
// then asked for elsewhere.
type crew struct {
	f *flight
	q *part

	mu      sync.Mutex
	book    *leases.Book
	hands   map[string]*hand
	changed chan struct{} // closed when there may be something to do
	at      time.Time     // the zero of the book's times
}

// hand is one holder.
type hand struct {
	Holder
	id string
	// Guarded by the crew's mu.
	working bool
	fails   int // in a row
	rest    time.Time
	dropped bool
	whole   bool
	asked   time.Time
	trouble error // the last
}

func newCrew(f *flight, q *part) *crew {
	want := q.open()
	return &crew{
		f: f, q: q, hands: map[string]*hand{}, changed: make(chan struct{}), at: time.Now(),
		book: leases.New(len(q.leaves), q.layout.chunk, want, rand.IntN(len(want))),
	}
}

// run has holders send what is missing until all is here, or nobody is left who
// would send anything: then it returns nil as well. It may be called again.
func (c *crew) run(ctx context.Context) error {
	c.sync()
	g, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	c.f.arrived.touch()
	for {
		c.enlist(ctx, g)
		if !c.worthIt() {
			stop()
			break
		}
		select {
		case <-ctx.Done():
		case <-c.next():
			continue
		case <-tick.C:
			c.complain()
			continue
		}
		break
	}
	return g.Wait()
}

// complain says that nothing comes, if that is so for a while.
func (c *crew) complain() {
	silent := c.f.arrived.since()
	if silent < 2*refreshEvery {
		return
	}
	c.mu.Lock()
	var names []string
	for _, h := range c.hands {
		if h.working {
			names = append(names, h.Name())
		}
	}
	c.mu.Unlock()
	slices.Sort(names)
	c.f.report(Progress{Phase: PhaseWait, Done: c.q.have(), Total: c.q.total,
		Why: fmt.Sprintf("nothing has come from %s for %.0f seconds", strings.Join(names, ", "), silent.Seconds())})
}

// sync takes over what has come by other ways.
func (c *crew) sync() {
	open := c.q.open()
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.book.Open()
	for i := range c.q.leaves {
		if mine.Has(i) && !open.Has(i) {
			c.book.Here(i)
		}
	}
}

// next is closed at the next change.
func (c *crew) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// stir says that there may be something to do. The lock must be held.
func (c *crew) stir() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// enlist starts work with the holders there are now.
func (c *crew) enlist(ctx context.Context, g *errgroup.Group) {
	holders := c.f.get.Holders()
	c.mu.Lock()
	defer c.mu.Unlock()
	working := 0
	for _, h := range c.hands {
		if h.working {
			working++
		}
	}
	for _, holder := range holders {
		h := c.hands[holder.ID()]
		if h == nil {
			h = &hand{Holder: holder, id: holder.ID()}
			c.hands[h.id] = h
		}
		if h.working || !h.able() || working >= c.f.meter.most() || c.book.Left() == 0 {
			continue
		}
		h.working = true
		working++
		g.Go(func() error {
			err := c.work(ctx, h)
			c.mu.Lock()
			defer c.mu.Unlock()
			h.working, h.asked = false, time.Time{}
			c.book.Forget(h.id)
			c.stir()
			return err
		})
	}
}

// rested is how long it takes until a holder that failed may be asked again; ok is
// false where there is none.
func (c *crew) rested() (wait time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hands {
		if left := time.Until(h.rest); !h.dropped && (!ok || left < wait) {
			wait, ok = left, true
		}
	}
	return wait, ok
}

// able says whether a holder may be asked now.
func (h *hand) able() bool { return !h.dropped && !time.Now().Before(h.rest) }

// worthIt says whether to go on: something is missing, somebody is at work, and
// something came of late.
func (c *crew) worthIt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.book.Left() == 0 || c.f.arrived.since() > c.f.s.opt.Stall {
		return false
	}
	for _, h := range c.hands {
		if h.working {
			return true
		}
	}
	return false
}

// work asks one holder for one range after the other. It returns when all is
// here, when the holder fails, and with an error when this machine does.
func (c *crew) work(ctx context.Context, h *hand) error {
	for ctx.Err() == nil {
		if c.stale(h) {
			if err := c.ask(ctx, h); err != nil {
				c.failed(ctx, h, err)
				return nil
			}
		}
		c.mu.Lock()
		lease := c.book.Next(h.id, time.Since(c.at))
		left, changed := c.book.Left(), c.changed
		useless := lease == nil && !c.book.Useful(h.id)
		if useless {
			h.rest = time.Now().Add(refreshEvery) // It makes room for another one.
		}
		c.mu.Unlock()
		switch {
		case left == 0 || useless:
			return nil
		case lease == nil:
			again := time.NewTimer(refreshEvery)
			select {
			case <-ctx.Done():
			case <-changed:
			case <-again.C:
			}
			again.Stop()
			continue
		}
		theirs, err := c.fetch(ctx, h, lease.From, lease.To)
		if err != nil {
			return err
		}
		if theirs != nil {
			c.failed(ctx, h, theirs)
			return nil
		}
	}
	return nil
}

// stale says whether a holder has to be asked what it has: it never was, or has
// nothing of use and may have more by now.
func (c *crew) stale(h *hand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case h.asked.IsZero():
		return true
	case h.whole:
		return false
	case c.book.Useful(h.id):
		return time.Since(h.asked) > 2*refreshEvery
	}
	return time.Since(h.asked) >= refreshEvery
}

func (c *crew) ask(ctx context.Context, h *hand) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	have, whole, err := h.Have(ctx, c.f.root)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.asked, h.whole = time.Now(), whole
	if whole {
		c.book.Offer(h.id, nil)
	} else {
		c.book.Offer(h.id, setOf(have, len(c.q.leaves)))
	}
	c.stir()
	return nil
}

// setOf reads a bitmap from outside; bits beyond n are not looked at.
func setOf(have []byte, n int) leases.Set {
	set := leases.NewSet(n)
	for i := range min(n, 8*len(have)) {
		if have[i/8]&(1<<(i%8)) != 0 {
			set.Add(i)
		}
	}
	return set
}

// failed leaves a holder alone for a while.
func (c *crew) failed(ctx context.Context, h *hand, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.trouble = err
	h.rest = time.Now().Add(min(firstPause<<min(h.fails, 10), lastPause))
	h.fails++
	h.asked = time.Time{}
	c.f.s.log.Info("a holder failed", "holder", h.Name(), "error", err, "fails", h.fails, "dropped", h.dropped)
}

// readAhead is how many leaves of a range wait to be hashed and written while the
// next one is read: else the sender stands still meanwhile.
const readAhead = 2

// received is a leaf as it came.
type received struct {
	i    int
	data []byte
}

// fetch reads leaves [from, to) from a holder and puts each into its place; it
// ends early where others came first. theirs is what is wrong with the holder,
// err what is wrong here.
func (c *crew) fetch(ctx context.Context, h *hand, from, to int) (theirs, err error) {
	r, theirs := c.open(ctx, h, from, to, false)
	if theirs != nil {
		return theirs, nil
	}
	defer r.close()
	coming := make(chan received, readAhead)
	var spoilt []int
	var stop atomic.Bool
	var work errgroup.Group
	work.Go(func() error {
		var failed error
		for l := range coming {
			switch {
			case failed != nil:
			case sha256.Sum256(l.data) != c.q.leaves[l.i]:
				spoilt = append(spoilt, l.i)
				stop.Store(true)
			default:
				if failed = c.take(ctx, h, l.i, l.data); failed != nil {
					stop.Store(true)
				}
			}
			c.f.recycle(l.data)
		}
		return failed
	})
	theirs = c.read(r, coming, from, &stop)
	close(coming)
	err = work.Wait()
	r.close()
	for _, i := range spoilt {
		if err == nil && theirs == nil {
			theirs, err = c.wrong(ctx, h, i)
		} else {
			c.blame(h, i)
		}
	}
	return theirs, err
}

// read hands on the leaves of a range as they come, until the lease ends or there
// is a reason to stop. It returns what is wrong with the holder.
func (c *crew) read(r *ranged, coming chan<- received, from int, stop *atomic.Bool) error {
	for !stop.Load() {
		c.mu.Lock()
		i, ok := c.book.Due(r.h.id)
		c.mu.Unlock()
		if !ok {
			return nil
		}
		data, err := r.leaf(c.q.layout.leafSize(c.q.bytes, i))
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return err
			}
			c.mu.Lock()
			c.book.Lacks(r.h.id, i) // It has no more than that.
			c.mu.Unlock()
			if i > from {
				return nil
			}
			return fmt.Errorf("it does not send what it says it has: %w", err)
		}
		c.mu.Lock()
		more := c.book.Passed(r.h.id)
		c.mu.Unlock()
		r.stall.Stop() // If the disk stands still, that is not the holder's fault.
		coming <- received{i, data}
		r.stall.Reset(c.f.s.opt.holderStall)
		if !more {
			return nil
		}
	}
	return nil
}

// take puts a leaf that is right into its places.
func (c *crew) take(ctx context.Context, h *hand, i int, data []byte) error {
	var placed []uint32
	err := c.f.withRoom(ctx, c.q, func() (err error) {
		placed, err = c.q.place(c.q.leaves[i], data)
		return err
	})
	if err != nil {
		return err
	}
	c.f.arrived.touch()
	c.f.meter.good(h.id, h.Name(), len(data))
	c.mu.Lock()
	h.fails, h.trouble = 0, nil
	c.book.Here(i)
	for _, n := range placed {
		c.book.Here(int(n))
	}
	if c.book.Left() == 0 {
		c.stir()
	}
	c.mu.Unlock()
	c.f.filled(c.q)
	return nil
}

// wrong deals with a leaf that came wrong: it is asked for once more, to be
// hashed over there.
func (c *crew) wrong(ctx context.Context, h *hand, i int) (theirs, err error) {
	c.f.s.log.Warn("a wrong leaf came", "holder", h.Name(), "cid", c.f.root, "leaf", i)
	if c.blame(h, i) {
		return errWrong, nil
	}
	r, refused := c.open(ctx, h, i, i+1, true)
	if refused != nil {
		return nil, nil // The rest of what it has may be right.
	}
	defer r.close()
	data, failed := r.leaf(c.q.layout.leafSize(c.q.bytes, i))
	if failed != nil {
		return nil, nil
	}
	defer c.f.recycle(data)
	if sha256.Sum256(data) == c.q.leaves[i] {
		return nil, c.take(ctx, h, i, data)
	}
	if c.blame(h, i) {
		return errWrong, nil
	}
	return nil, nil
}

// blame counts a wrong leaf and says whether the holder is dropped for it.
func (c *crew) blame(h *hand, i int) (dropped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.trouble = errWrong
	if c.book.Wrong(h.id, i) {
		h.dropped = true
	}
	c.stir()
	return h.dropped
}

var errWrong = errors.New("it sent wrong blocks")

// troubles says who failed, and how; nil if nobody did.
func (c *crew) troubles() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []error
	for _, h := range c.hands {
		if h.trouble != nil {
			list = append(list, fmt.Errorf("%s: %w", h.Name(), h.trouble))
		}
	}
	return joinShort(list)
}

// ranged reads one range from a holder. It ends when nothing comes for a while.
type ranged struct {
	c      *crew
	h      *hand
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	stall  *time.Timer
	some   int // bytes since something was last said to have arrived
}

// leastBytes are worth to be called something that arrived: a leaf may take a slow
// link longer than nothing may come.
const leastBytes = 4 << 10

func (c *crew) open(ctx context.Context, h *hand, from, to int, check bool) (*ranged, error) {
	r := &ranged{c: c, h: h}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.stall = time.AfterFunc(c.f.s.opt.holderStall, func() { r.cancel(errStalled) })
	begin := int64(from) * c.q.layout.chunk
	end := min(int64(to)*c.q.layout.chunk, c.q.bytes)
	c.f.meter.begin(h.id, h.Name())
	var err error
	if r.body, err = h.Range(r.ctx, c.f.root, begin, end, check); err != nil {
		err = r.because(err)
		r.close()
		return nil, err
	}
	return r, nil
}

// because is the reason why a read failed.
func (r *ranged) because(err error) error {
	if errors.Is(context.Cause(r.ctx), errStalled) {
		return errStalled
	}
	return err
}

// leaf reads the next leaf, into a buffer of the flight's. io.EOF means that there
// is none.
func (r *ranged) leaf(size int64) ([]byte, error) {
	data := r.c.f.buffer(size)
	for got := 0; got < len(data); {
		n, err := r.body.Read(data[got:min(len(data), got+pieceBytes)])
		if n > 0 {
			got += n
			r.came(n)
		}
		if err != nil && got < len(data) {
			if got > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			r.c.f.recycle(data)
			return nil, r.because(err)
		}
	}
	return data, nil
}

// came counts what was read, and waits where that is too fast.
func (r *ranged) came(n int) {
	r.c.f.meter.got.Add(int64(n))
	if r.c.f.meter.limited() {
		r.stall.Stop()
		_ = r.c.f.meter.wait(r.ctx, n, func() {}) // The next read fails if ctx has ended.
	}
	r.stall.Reset(r.c.f.s.opt.holderStall)
	if r.some += n; r.some >= leastBytes {
		r.some = 0
		r.c.f.arrived.touch()
	}
	rate := r.c.f.meter.came(r.h.id, r.h.Name(), n)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.book.Moved(r.h.id, time.Since(r.c.at), rate)
}

// close ends the range; it may be called again.
func (r *ranged) close() {
	r.stall.Stop()
	r.cancel(nil)
	if r.body != nil {
		_ = r.body.Close()
		r.body = nil
	}
}

// joinShort joins a few errors into one sentence.
func joinShort(list []error) error {
	var joined error
	for _, err := range list[:min(3, len(list))] {
		if joined == nil {
			joined = err
			continue
		}
		joined = fmt.Errorf("%w; %w", joined, err)
	}
	return joined
}
