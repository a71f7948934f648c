package liveness

import (
	"testing"
	"time"
)

// silence looks in vain for so many times, and says at which of them the member was quiet
// first; 0 is never.
func (a *Active) silence(looks int) (first int) {
	for i := 1; i <= looks; i++ {
		if a.Look(false) && first == 0 {
			first = i
		}
	}
	return first
}

func TestActive(t *testing.T) {
	var a Active
	a.Look(true)
	if at := a.silence(20); at != leastMissed {
		t.Errorf("quiet at look %d", at)
	}
	if a.Rest(); !a.Quiet() {
		t.Error("that nothing is under way any more is no sign of it")
	}
	if a.Look(true) || a.Quiet() {
		t.Error("quiet after a sign")
	}
	if at := a.silence(20); at != leastMissed {
		t.Errorf("after an outage, quiet at look %d", at)
	}
	a.Look(true)
	a.silence(6)
	a.Lost()
	if !a.Quiet() || a.Look(true) || a.silence(20) != leastMissed {
		t.Error("a link that was lost counts as a moment of silence")
	}
	a.Look(true)
	a.silence(mostMissed - 1)
	a.Look(true)
	if at := a.silence(20); at != mostMissed {
		t.Errorf("after a long silence that ended, quiet at look %d", at)
	}
	if most := time.Duration(mostMissed) * ActiveEvery; most > SuspectAfter || most < SuspectAfter-ActiveEvery {
		t.Errorf("quiet %s at most, suspect %s", most, SuspectAfter)
	}
}

// A silence that ended counts for five minutes at least and for ten at most.
func TestActiveForgets(t *testing.T) {
	var a Active
	a.silence(3)
	a.Look(true)
	for range activeSpan {
		a.Look(true)
	}
	if at := a.silence(20); at != 6 {
		t.Errorf("after five minutes, quiet at look %d", at)
	}
	a = Active{}
	a.silence(3)
	for range 2 * activeSpan {
		a.Look(true)
	}
	if at := a.silence(20); at != leastMissed {
		t.Errorf("after ten minutes, quiet at look %d", at)
	}
}

// A request that begins does not find a silence from before.
func TestActiveAtRest(t *testing.T) {
	var a Active
	for range 10 {
		a.silence(leastMissed - 1)
		a.Rest()
		if a.Quiet() {
			t.Fatal("quiet")
		}
	}
}
