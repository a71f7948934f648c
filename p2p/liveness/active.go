package liveness

import "time"

const (
	// ActiveEvery is the time between two probes of a member while requests are under way
	// there.
	ActiveEvery = 125 * time.Millisecond
	// leastMissed and mostMissed bound after how many of them in a row without a sign
	// such a member is quiet: half a second at least, and no later than it is suspect.
	leastMissed = 4
	mostMissed  = int(SuspectAfter / ActiveEvery)
	// activeSpan is for how many of them a silence is remembered that ended: five minutes,
	// and up to twice that.
	activeSpan = int(5 * time.Minute / ActiveEvery)
)

// Active is what is known of a member while requests are under way there: bytes of their
// answers are signs of it too, so that a silence says more than that of probes alone. It is
// counted in looks, not in time: what happens between two looks, however far apart, is one
// silence. A machine that falls silent for a moment now and then, as on a wireless network,
// has twice that before it is quiet; what lasts until it is suspect is none. The zero value is ready.
type Active struct {
	missed int
	worst  [2]int // The longest silence that ended, in this span and the last one.
	looks  int    // Of this span.
	quiet  bool
}

// Look is told, every ActiveEvery, whether there was a sign since the last look. What is
// under way at a member that is quiet had better go on elsewhere; nothing else follows.
// It is quiet until there is a sign.
func (a *Active) Look(sign bool) (quiet bool) {
	if a.looks++; a.looks == activeSpan {
		a.worst, a.looks = [2]int{0, a.worst[0]}, 0
	}
	if sign {
		if a.missed < mostMissed { // Longer ones are no moments.
			a.worst[0] = max(a.worst[0], a.missed)
		}
		a.missed, a.quiet = 0, false
		return false
	}
	a.missed++
	if a.missed >= min(max(2*a.worst[0], 2*a.worst[1], leastMissed), mostMissed) {
		a.quiet = true
	}
	return a.quiet
}

// Quiet is what the last look said.
func (a *Active) Quiet() bool { return a.quiet }

// Rest is told that nothing is under way any more: silences are not counted meanwhile.
func (a *Active) Rest() {
	if !a.quiet {
		a.missed = 0
	}
}

// Lost is told that the link to the member is lost: what silence there was is not one of
// its moments.
func (a *Active) Lost() {
	a.missed = 0
	if a.quiet {
		a.missed = mostMissed
	}
}
