package scheduler

import (
	"context"
	"fmt"
	"time"
)

const (
	// pulseEvery is how often an engine that has requests is asked whether it is there,
	// and pulseTime how long it may take to answer that: it does at once, also while it
	// computes.
	pulseEvery = time.Second
	pulseTime  = 2 * time.Second
	// pulsesMissed is how often in a row it may leave that unanswered, doing nothing
	// meanwhile.
	pulsesMissed = 3
	// idleShare is the share of a processor that is nothing: one that reads a long prompt
	// on a CPU, or waits for a GPU, takes more.
	idleShare = 0.01
)

// pulse ends an engine that has requests and neither answers nor does anything: its
// process was stopped, or hangs. Nobody else would notice, for its peer answers, until the
// deadline of a request; so answers go on elsewhere. It returns once the engine is gone.
func (w *worker) pulse(r *run, e *engine) {
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-e.process.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		asked := e.inFlight > e.queued
		w.mu.Unlock()
		if !asked || e.beats() {
			missed = 0
			continue
		}
		if missed++; missed < pulsesMissed {
			continue
		}
		w.s.log.Warn("an engine that neither answers nor computes is ended", "model", r.name)
		w.mu.Lock()
		e.hung = true
		w.mu.Unlock()
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.process.Stop(now) // It would not hear that it is to end.
		return
	}
}

// beats says whether an engine answers, or at least does something.
func (e *engine) beats() bool {
	before, err := e.process.Worked()
	if err != nil {
		return true // It has ended, or this system does not tell.
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), pulseTime)
	defer cancel()
	if e.process.Alive(ctx) == nil {
		return true
	}
	after, err := e.process.Worked()
	return err != nil || float64(after-before) > idleShare*float64(time.Since(began))
}

// ended is why a run is over whose engine ended by itself, or had to be ended; worker.mu is
// not held.
func (w *worker) ended(e *engine) error {
	w.mu.Lock()
	hung := e.hung
	w.mu.Unlock()
	if hung {
		return Errorf(EngineFailed, "the engine neither answered nor computed, although it had requests, and was ended")
	}
	return &Error{Why: EngineFailed, Message: fmt.Sprintf("the engine ended: %v", e.process.Err()), Err: e.process.Err()}
}
