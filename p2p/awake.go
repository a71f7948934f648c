package p2p

import (
	"sync"
	"time"
)

// awake is the time for which this process could run: silences are counted on it. One
// that was stopped for a while, or got no processor, has heard nobody meanwhile, which
// says nothing about the others.
type awake struct {
	start time.Time

	mu     sync.Mutex
	ticked time.Duration // When that was last said to run; 0 before.
	slept  time.Duration
}

// mostBetween is how much time counts between two ticks, which come every 250 ms: four
// that are missed in a row are the pause of a process that does not run.
const mostBetween = time.Second

func newAwake() *awake { return &awake{start: time.Now()} }

// now is the time since the start without that in which the process did not run.
func (a *awake) now() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nowLocked()
}

func (a *awake) nowLocked() time.Duration {
	now := time.Since(a.start) - a.slept
	if a.ticked > 0 {
		now = min(now, a.ticked+mostBetween)
	}
	return now
}

// tick says that the process runs.
func (a *awake) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.nowLocked()
	a.slept = time.Since(a.start) - now
	a.ticked = max(now, 1)
}
