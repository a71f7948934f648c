package gpu

import "time"

const (
	// busyLooks is how many looks in a row must find too much in use: a program
	// that starts and ends between two of them disturbs nobody.
	busyLooks = 2
	// calmTime is how long little must be in use before a GPU is free again.
	calmTime = 15 * time.Second
)

// Busy says whether a GPU is left to other programs: they hold more of its
// memory than is ignored. It takes two looks in a row to become busy, and 15 s
// below three quarters of the limit to become free again. The zero value is a
// GPU that is not busy.
type Busy struct {
	busy  bool
	above int           // Looks in a row that found more than the limit.
	calm  bool          // Since then, on the clock of Look.
	since time.Duration // When it became calm.
}

// Look takes in what others hold, in bytes, and says whether the GPU is busy.
// now is on one clock that never goes back. What is not known makes no GPU busy,
// and keeps none so.
func (b *Busy) Look(foreign uint64, known bool, limit uint64, now time.Duration) bool {
	if !known || foreign <= limit {
		b.above = 0
	} else if b.above++; b.above >= busyLooks {
		b.busy = true
	}
	switch {
	case known && foreign >= limit-limit/4 && foreign > 0:
		b.calm = false
	case !b.calm:
		b.calm, b.since = true, now
	}
	if b.calm && now-b.since >= calmTime {
		b.busy = false
	}
	return b.busy
}
