package scheduler

import (
	"context"
	"slices"
	"time"

	"relay/scheduler/admission"
	"relay/scheduler/ways"
)

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

// enter counts a request on the engine that serves a model; nil where none does.
func (w *worker) enter(uid string) *engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runs[uid]
	if r == nil || r.engine == nil {
		return nil
	}
	r.engine.inFlight++
	return r.engine
}

// computes notes how many requests an engine computes at a time; worker.mu is held.
func (w *worker) computes(e *engine) {
	e.peak = max(e.peak, e.queue.Running())
	for o := range w.engines { // What two of them do at a time says little about one.
		if o != e && o.queue.Running() > 0 && sharesDevice(o.way, e.way) {
			o.peak, e.peak = max(o.peak, 2), max(e.peak, 2)
		}
	}
}

func sharesDevice(a, b ways.Way) bool {
	return slices.ContainsFunc(a.Parts, func(p ways.Part) bool {
		return p.Layers > 0 && slices.ContainsFunc(b.Parts, func(q ways.Part) bool { return q.Device == p.Device && q.Layers > 0 })
	})
}

// leave takes a request off an engine, with the slots that it has or waits for, nil where
// it takes none.
func (w *worker) leave(e *engine, slots *admission.Place, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left(e, slots, err)
}

// undo takes a request off an engine that made no use of the slots that it has, or waits
// for, nil where it has asked for none; worker.mu is held.
func (w *worker) undo(e *engine, slots *admission.Place) {
	if slots != nil {
		e.queue.Undo(slots, w.now())
	}
	w.left(e, nil, context.Canceled)
}

// left is leave with worker.mu held.
func (w *worker) left(e *engine, slots *admission.Place, err error) {
	if slots != nil {
		e.queue.Leave(slots, w.now())
	}
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
