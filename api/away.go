package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"relay/scheduler"
)

// away ends an attempt once its answer had better go on elsewhere.
type away struct {
	mu     sync.Mutex // held while the answer comes farther
	cancel context.CancelCauseFunc
	// left is why the replica was left, over says that the attempt ended otherwise.
	left error
	over bool
	// looked is when it was last looked whether the answer can go on elsewhere; zero before
	// the route said that it had better.
	looked time.Time
}

// lookAgain is how often it is looked.
const lookAgain = time.Second

// leftError is why an attempt ends whose replica was left.
type leftError struct{ error }

func (e leftError) Unwrap() error { return e.error }

// watch leaves the replica when its route says so. over must be called at the attempt's end.
func (a *attempt) watch(cancel context.CancelCauseFunc) (over func()) {
	if a.route.Away == nil {
		return func() {}
	}
	a.away.cancel = cancel
	ran := make(chan struct{})
	stop := context.AfterFunc(a.route.Away, func() {
		defer close(ran)
		a.away.mu.Lock()
		defer a.away.mu.Unlock()
		a.leave()
	})
	return func() {
		a.away.mu.Lock()
		a.away.over = true
		a.away.mu.Unlock()
		if !stop() {
			<-ran
		}
	}
}

// leave ends the attempt, where the answer can go on elsewhere; else it may finish. The
// lock is held.
func (a *attempt) leave() {
	if a.away.over || a.away.left != nil {
		return
	}
	if a.away.looked = time.Now(); a.mayLeave() {
		a.away.left = leftError{context.Cause(a.route.Away)}
		a.away.cancel(a.away.left)
	}
}

// look leaves a replica that had to be left before, once the answer can go on: there may be
// no other by now.
func (a *attempt) look(ctx context.Context) {
	if a.away.looked.IsZero() || time.Since(a.away.looked) < lookAgain {
		return
	}
	if a.away.looked = time.Now(); a.mayLeave() && a.elsewhere(ctx) {
		a.leave()
	}
}

// elsewhere says whether another replica would take the request now.
func (a *attempt) elsewhere(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	want := a.headway.want
	want.Continues = a.headway.taken
	want.Tried = append(slices.Clone(want.Tried), cmp.Or(a.route.Mark, a.route.Peer))
	rt, err := a.door.opt.Scheduler.Route(ctx, want)
	if err != nil || rt.Done == nil {
		return false
	}
	rt.Done(context.Canceled)
	return true
}

// mayLeave says whether the answer can go on, or begin, elsewhere.
func (a *attempt) mayLeave() bool {
	h := a.headway
	if h.goesOn() {
		if _, why := h.plan(); why != "" {
			return false
		}
		if a.farther {
			return true
		}
	}
	// From one that is gone nothing comes any more; by others the request is not to be led
	// about for ever.
	return scheduler.ReasonOf(context.Cause(a.route.Away)) == scheduler.PeerGone || h.left+1 < a.door.opt.Attempts
}

// hasLeft is the end of an attempt whose replica was left.
func (a *attempt) hasLeft() *refusal {
	no := refusalOf(a.away.left, a.call.id)
	if no.reason == scheduler.Internal {
		no = a.failure(scheduler.PeerGone, "%s had better be left", a.who())
	}
	no.retry, no.cause = scheduler.RetryElsewhere, a.away.left
	return no
}
