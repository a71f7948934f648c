package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"relay/scheduler/ways"
)

// occupy takes a place on this peer's own replica, and its turn on the cores,
// until leave is called, with the error that ended the request; process is nil
// where no replica serves. The error is ctx's.
func (w *worker) occupy(ctx context.Context, uid string) (process Process, leave func(error), err error) {
	e := w.enter(uid)
	if e == nil {
		return nil, nil, nil
	}
	yield := func() {}
	if e.cores > 0 {
		w.mu.Lock()
		e.queued++
		w.mu.Unlock()
		open, over := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { // Until the turn has come, or there is none to wait for.
			select {
			case <-e.shut:
				over()
			case <-open.Done():
			}
		})
		yield, err = w.s.cores.Enter(open, e.name, e.cores)
		over()
		watch.Wait()
		w.mu.Lock()
		e.queued--
		shut := e.isShut()
		w.mu.Unlock()
		switch {
		case shut && ctx.Err() == nil: // Another engine may serve by now.
			if err == nil {
				yield()
			}
			w.leave(e, nil)
			return nil, nil, nil
		case err != nil:
			w.leave(e, nil)
			return nil, nil, err
		}
	}
	return e.process, w.leaving(e, yield), nil
}

// isShut says that nothing new is let in; worker.mu is held.
func (e *engine) isShut() bool {
	select {
	case <-e.shut:
		return true
	default:
		return false
	}
}

// close lets nothing new in; worker.mu is held.
func (e *engine) close() {
	if !e.isShut() {
		close(e.shut)
	}
}

// occupyNow is occupy for whoever does not wait for the cores; busy says that it
// would have to.
func (w *worker) occupyNow(uid string) (process Process, leave func(error), busy bool) {
	e := w.enter(uid)
	if e == nil {
		return nil, nil, false
	}
	yield := func() {}
	if e.cores > 0 {
		var ok bool
		if yield, ok = w.s.cores.Try(e.name, e.cores); !ok {
			w.leave(e, nil)
			return nil, nil, true
		}
	}
	return e.process, w.leaving(e, yield), false
}

// enter counts a request on the engine that serves a model; nil where none does.
func (w *worker) enter(uid string) *engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runs[uid]
	if r == nil || r.engine == nil {
		return nil
	}
	e := r.engine
	e.inFlight++
	e.peak = max(e.peak, e.inFlight)
	for o := range w.engines { // What two of them do at a time says little about one.
		if o != e && o.inFlight > 0 && sharesDevice(o.way, e.way) {
			o.peak, e.peak = max(o.peak, 2), max(e.peak, 2)
		}
	}
	return e
}

func sharesDevice(a, b ways.Way) bool {
	return slices.ContainsFunc(a.Parts, func(p ways.Part) bool {
		return p.Layers > 0 && slices.ContainsFunc(b.Parts, func(q ways.Part) bool { return q.Device == p.Device && q.Layers > 0 })
	})
}

// leaving ends a request's place and turn, once.
func (w *worker) leaving(e *engine, yield func()) func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			yield()
			w.leave(e, err)
		})
	}
}

func (w *worker) leave(e *engine, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.inFlight--
	e.used = time.Now()
	if r := w.runs[e.uid]; r != nil && err == nil {
		r.served = true
	}
	if err != nil && ReasonOf(err) == Timeout {
		select {
		case e.doubt <- struct{}{}:
		default:
		}
	}
	if e.inFlight > 0 {
		return
	}
	if e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
	select {
	case e.rest <- struct{}{}:
	default:
	}
}

// quiet is closed once no request runs on an engine.
func (w *worker) quiet(e *engine) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.inFlight == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if e.idle == nil {
		e.idle = make(chan struct{})
	}
	return e.idle
}

// share is how many cores an engine keeps busy while it computes, or an rpc-server
// where r is nil: all that are lent where no other model is here, half of them where
// one is, or layers of one, so that two can work at a time.
func (w *worker) share(r *run, own *share) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.runs {
		if o != r && !o.failed && onCPU(o.way) {
			return max(1, w.s.CoresLent/2)
		}
	}
	for _, o := range w.shares {
		if o != own && !o.failed && o.onCPU() {
			return max(1, w.s.CoresLent/2)
		}
	}
	return max(1, w.s.CoresLent)
}

// shareCores has an engine that got all the cores replaced by one with half of
// them, when another one is here and it is idle, or the other one's requests wait:
// then both can work at a time.
func (w *worker) shareCores(r *run, e *engine) {
	half := max(1, w.s.CoresLent/2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.cores <= half || e.halved || r.engine != e || e.way.Group != nil {
		return
	}
	for _, o := range w.shares {
		if o.onCPU() && o.server != nil && e.inFlight == 0 {
			w.halve(r, e)
			return
		}
	}
	for o := range w.engines {
		// Sooner than that where requests of the other one wait: what runs finishes.
		if o.uid != e.uid && o.onCPU() && !o.ready.IsZero() && (e.inFlight == 0 || o.queued > 0) {
			w.halve(r, e)
			return
		}
	}
}

// halve has an engine replaced by one with half the cores; worker.mu is held.
func (w *worker) halve(r *run, e *engine) {
	select {
	case r.renewal <- renewalOrder{text: "it shares the cores that are lent with another model", spare: true}:
		e.halved = true
	default:
	}
}
