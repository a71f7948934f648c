package quota

import "time"

// Minute is how long a window looks back.
const Minute = time.Minute

// seconds is in how many slots a window remembers: what happened within the second
// in which the minute ends counts still, so that no minute, wherever it begins,
// holds more than was let in.
const seconds = int64(Minute/time.Second) + 1

// Window counts what happened in the last minute. The time is the caller's own,
// from any beginning, and never goes back.
type Window struct {
	last  int64 // The second of the last Add.
	slots [seconds]int64
}

// Add counts n things that happen now.
func (w *Window) Add(now time.Duration, n int64) {
	second := int64(now / time.Second)
	for s := max(w.last+1, second-seconds+1); s <= second; s++ {
		w.slots[s%seconds] = 0
	}
	w.last = max(w.last, second)
	w.slots[second%seconds] += n
}

// Sum is how many things count at a time, which may lie ahead.
func (w *Window) Sum(at time.Duration) (sum int64) {
	second := int64(at / time.Second)
	for s := max(0, second-seconds+1, w.last-seconds+1); s <= w.last; s++ {
		sum += w.slots[s%seconds]
	}
	return sum
}

// empty is in how long nothing counts any more that counts now.
func (w *Window) empty(now time.Duration) time.Duration {
	if w.Sum(now) == 0 {
		return 0
	}
	for s := w.last; ; s-- {
		if w.slots[s%seconds] > 0 {
			return time.Duration(s+seconds)*time.Second - now
		}
	}
}

// wait is in how long ok holds at the latest; it is asked about each time from now on
// at which a window can have changed. All that is counted now is gone after Minute
// and a second.
func wait(now time.Duration, ok func(at time.Duration) bool) time.Duration {
	if ok(now) {
		return 0
	}
	for at := now.Truncate(time.Second) + time.Second; ; at += time.Second {
		if ok(at) || at-now > Minute+time.Second {
			return at - now
		}
	}
}
