package p2p

import (
	"testing"
	"testing/synctest"
	"time"
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
		want("after an hour without one", 13*time.Second)
		a.tick()
		pass(100 * time.Millisecond)
		want("soon after that", 13100*time.Millisecond)
		pass(800 * time.Millisecond)
		a.tick()
		pass(900 * time.Millisecond)
		want("after late ticks", 14800*time.Millisecond)
	})
}
