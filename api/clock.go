package api

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// deadlineError is a deadline of the door's own that passed.
type deadlineError struct {
	what  string
	after time.Duration
}

func (e *deadlineError) Error() string { return fmt.Sprintf("%s not within %s", e.what, e.after) }

// clock cancels an attempt that takes too long over one step.
type clock struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	timer  *time.Timer
	over   bool
	// until is when an answer that another replica began must have gone on, most after
	// that one was lost; zero sets no bound.
	until time.Time
	most  time.Duration
}

// set gives the next step its time, and takes away what was left of the last
// one's; 0 sets no bound.
func (k *clock) set(what string, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	late := &deadlineError{what, after}
	if left := time.Until(k.until); !k.until.IsZero() && (after <= 0 || left < after) {
		late, after = &deadlineError{"the answer was gone on with", k.most}, max(left, 1)
	}
	if after > 0 && !k.over {
		k.timer = time.AfterFunc(after, func() { k.cancel(late) })
	}
}

// goneOn takes the bound of until away.
func (k *clock) goneOn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = time.Time{}
}

// pause takes the time of the step away: it is done.
func (k *clock) pause() { k.set("", 0) }

// stop is pause, for good.
func (k *clock) stop() {
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
	k.pause()
}

// total is the time that all attempts at a request have together, once start was called.
func (d *Door) total(ctx context.Context) (_ context.Context, start, over func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	start = func() {
		if most := d.opt.Deadlines.Total; most > 0 && timer == nil {
			timer = time.AfterFunc(most, func() { cancel(&deadlineError{"the whole answer came", most}) })
		}
	}
	return ctx, start, func() {
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}
