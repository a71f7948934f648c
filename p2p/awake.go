package p2p

import (
	"sync"
	"time"

	"relay/p2p/liveness"
)

// awake is the time for which this process could run: silences are counted on it. One
// that was stopped for a while, or got no processor, has heard nobody meanwhile, which
// says nothing about the others.
type awake struct {
	start time.Time

	mu     sync.Mutex
	ticked time.Duration // When that was last said to run; 0 before.
	slept  time.Duration
	told   time.Duration // The latest that was told: it does not go back.
	judges time.Duration // From when on the others are judged.
}

const (
	// tickEvery is the time between two ticks of a process that runs.
	tickEvery = liveness.ProbeEvery / 2
	// mostBetween is the most that counts between two of them, whole, since a machine
	// that is busy is late: four that are missed in a row are the pause of a process
	// that does not run, which counts as one tick.
	mostBetween = 4 * tickEvery
)

func newAwake() *awake { return &awake{start: time.Now()} }

// now is the time since the start without that in which the process did not run.
func (a *awake) now() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, _ := a.nowLocked()
	return now
}

// nowLocked also says whether the process was stopped since the last tick.
func (a *awake) nowLocked() (now time.Duration, stopped bool) {
	now = time.Since(a.start) - a.slept
	if stopped = a.ticked > 0 && now > a.ticked+mostBetween; stopped {
		now = a.ticked + tickEvery
	}
	a.told = max(a.told, now)
	return a.told, stopped
}

// tick says that the process runs, and returns whether the others are to be judged
// by their silence: not where it was stopped until now, since what they said
// meanwhile is still to be read, which has the time of one more tick.
func (a *awake) tick() (judge bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, stopped := a.nowLocked()
	if stopped && a.ticked >= a.judges { // One that is stopped all the time judges at every second tick.
		a.judges = now + tickEvery
	}
	a.slept = time.Since(a.start) - now
	a.ticked = max(now, 1)
	return now >= a.judges
}
