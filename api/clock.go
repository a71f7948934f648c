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
}

// set gives the next step its time, and takes away what was left of the last
// one's; 0 sets no bound.
func (k *clock) set(what string, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	if after > 0 && !k.over {
		k.timer = time.AfterFunc(after, func() { k.cancel(&deadlineError{what, after}) })
	}
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
