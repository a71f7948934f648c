package p2p

import (
	"testing"
	"testing/synctest"
	"time"

	"relay/p2p/liveness"
)

// The time in which a process does not run does not count, and all other time does.
func TestTimeAsleepDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAwake()
		pass := func(d time.Duration) { <-time.After(d) }
		want := func(when string, d time.Duration) {
			t.Helper()
			if got := a.now(); got != d {
				t.Errorf("%s it is %s, want %s", when, got, d)
			}
		}
		pass(10 * time.Second)
		want("before the first tick", 10*time.Second)
		for range 8 {
			a.tick()
			pass(250 * time.Millisecond)
		}
		want("after some ticks", 12*time.Second)
		a.tick()
		pass(time.Hour)
		want("after an hour without one", 12250*time.Millisecond)
		a.tick()
		pass(100 * time.Millisecond)
		want("soon after that", 12350*time.Millisecond)
		pass(800 * time.Millisecond)
		a.tick()
		pass(900 * time.Millisecond)
		want("after late ticks", 14050*time.Millisecond)
		a.tick()
		pass(950 * time.Millisecond)
		want("when it is late", 15*time.Second)
		pass(time.Hour)
		want("when it was late before it stopped", 15*time.Second)
		a.tick()
		pass(100 * time.Millisecond)
		want("after both", 15100*time.Millisecond)
	})
}

// Whoever answered as usual is alive to a process that was stopped, until its
// answers can have been read, at whatever moment between two probes that was.
func TestNobodyIsSuspectAfterAPause(t *testing.T) {
	for _, pause := range []time.Duration{1500 * time.Millisecond, 20 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			pass := func(d time.Duration) { <-time.After(d) }
			a := newAwake()
			var other liveness.Observed
			for range 8 {
				a.tick()
				other.Answer(a.now(), time.Millisecond)
				pass(tickEvery)
			}
			a.tick()
			pass(tickEvery) // Its answer comes later than most.
			a.tick()
			pass(tickEvery - time.Millisecond)
			pass(pause)
			alive := func(when string) {
				t.Helper()
				if s := other.State(a.now()); s != liveness.Alive {
					t.Errorf("%s, after %s: %s", when, pause, s)
				}
			}
			alive("before the first tick")
			if a.tick() {
				t.Errorf("after %s all are judged before anything is read", pause)
			}
			alive("at the first tick")
			pass(10 * time.Millisecond)
			if a.tick() {
				t.Errorf("after %s all are judged at the next word", pause)
			}
			pass(tickEvery - 10*time.Millisecond)
			other.Answer(a.now(), time.Millisecond)
			if !a.tick() {
				t.Errorf("after %s nobody is judged", pause)
			}
			alive("at the next tick")
		})
	}
}

// A machine that has much to do is late, and sees a silence as soon as another one.
func TestSilenceCountsOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAwake()
		var other liveness.Observed
		a.tick()
		other.Answer(a.now(), time.Millisecond)
		silent := time.Now()
		for late := tickEvery; ; late = (late + 100*time.Millisecond) % (500 * time.Millisecond) {
			<-time.After(tickEvery + late)
			judged := a.tick()
			if !judged {
				t.Errorf("nobody is judged by a tick that is %s late", late)
			}
			silence, state := time.Since(silent), other.State(a.now())
			if got, _ := other.Silence(a.now()); got != silence {
				t.Errorf("of %s count %s", silence, got)
			}
			if (silence >= liveness.SuspectAfter) != (state != liveness.Alive) {
				t.Errorf("after %s it is %s", silence, state)
			}
			if state == liveness.Gone {
				return
			}
		}
	})
}

// One that is stopped again and again judges all the same.
func TestPausesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAwake()
		a.tick()
		judged := 0
		for range 10 {
			<-time.After(time.Minute)
			if a.tick() {
				judged++
			}
		}
		if judged != 5 {
			t.Errorf("judged at %d ticks of 10", judged)
		}
	})
}
