package liveness

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestStatesByHearsay(t *testing.T) {
	var h Hearsay
	if s := h.State(time.Hour); s != Gone {
		t.Errorf("one that nobody ever heard is %s", s)
	}
	h.Hear(10*time.Second, time.Second)
	h.Hear(10*time.Second, 2*time.Second) // Somebody who knows less.
	h.Hear(10*time.Second, -time.Second)  // Nobody hears what is still to come.
	for age, want := range map[time.Duration]State{
		time.Second: Alive, FarSuspectAfter - 1: Alive, FarSuspectAfter: Suspect, FarGoneAfter - 1: Suspect, FarGoneAfter: Gone,
	} {
		if got := h.State(9*time.Second + age); got != want {
			t.Errorf("at the age of %s: %s, want %s", age, got, want)
		}
	}
}

func TestHearsayIsInTime(t *testing.T) {
	if FarGoneAfter+ProbeEvery/2 > 5*time.Second {
		t.Error("one that was killed is not gone within 5 s")
	}
	const ways = 3
	if ProbeEvery+ways*(ProbeEvery+AgeUnit+250*time.Millisecond) > FarSuspectAfter {
		t.Error("one that answers is suspect where every way takes a quarter of a second")
	}
}

// TestAgesOnlyGrow: however a member's age goes round, nobody ever holds it for
// younger than the time since it was really heard.
func TestAgesOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const peers = 6
		var known [peers]Hearsay
		now, last := time.Duration(0), time.Duration(-1)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
			from, to := rapid.IntRange(0, peers-1).Draw(t, "from"), rapid.IntRange(0, peers-1).Draw(t, "to")
			if rapid.IntRange(0, 4).Draw(t, "heard itself") == 0 {
				known[to].Hear(now, 0)
				last = now
			} else if age, ok := known[from].Age(now); ok {
				known[to].Hear(now, age+time.Duration(rapid.IntRange(0, 1000).Draw(t, "way"))*time.Millisecond)
			}
			for i := range known {
				age, ok := known[i].Age(now)
				if ok && (last < 0 || age < now-last) {
					t.Fatalf("an age of %s, and it was heard at %s, now %s", age, last, now)
				}
			}
		}
	})
}
