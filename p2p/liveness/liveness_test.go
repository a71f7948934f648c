package liveness

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestStates(t *testing.T) {
	var o Observed
	if s := o.State(time.Hour); s != Gone {
		t.Errorf("one that never answered is %s", s)
	}
	o.Answer(10*time.Second, 20*time.Millisecond)
	for _, c := range []struct {
		after time.Duration
		want  State
	}{
		{0, Alive}, {SuspectAfter - 1, Alive}, {SuspectAfter, Suspect}, {GoneAfter - 1, Suspect}, {GoneAfter, Gone}, {time.Hour, Gone},
	} {
		if got := o.State(10*time.Second + c.after); got != c.want {
			t.Errorf("after %s: %s, want %s", c.after, got, c.want)
		}
	}
}

func TestSuspectAndGoneComeInTime(t *testing.T) {
	// What the mesh promises: suspect within 1.5 s of a kill, gone within 5 s,
	// counted from just after an answer, the state being looked at at every probe.
	if SuspectAfter+ProbeEvery/2 > 1500*time.Millisecond || GoneAfter+ProbeEvery/2 > 5*time.Second {
		t.Error("the constants are too slow")
	}
	if SuspectAfter <= ProbeEvery+AnswerWithin {
		t.Error("one lost probe makes a member suspect")
	}
}

func TestOneThatOthersHearIsNotGone(t *testing.T) {
	var o Observed
	o.Answer(0, time.Millisecond)
	for now := time.Second; now < time.Minute; now += time.Second {
		o.Vouch(now, 300*time.Millisecond)
		if s := o.State(now); now >= SuspectAfter && s != Suspect {
			t.Fatalf("at %s: %s", now, s)
		}
	}
	if s := o.State(time.Minute + GoneAfter); s != Gone {
		t.Errorf("after the last who vouched: %s", s)
	}
	o.Vouch(2*time.Minute, SuspectAfter) // A witness that is in doubt itself.
	o.Vouch(2*time.Minute, -time.Second)
	if s := o.State(2 * time.Minute); s != Gone {
		t.Errorf("brought back by a witness who has not heard it: %s", s)
	}
	o.Answer(3*time.Minute, time.Millisecond)
	if s := o.State(3 * time.Minute); s != Alive {
		t.Errorf("after an answer: %s", s)
	}
}

func TestAClosedPortIsADeadProcess(t *testing.T) {
	var o Observed
	o.Answer(10*time.Second, time.Millisecond)
	o.Refuse(10*time.Second + 100*time.Millisecond)
	for after, want := range map[time.Duration]State{0: Alive, SuspectAfter - 1: Alive, SuspectAfter: Gone} {
		if got := o.State(10*time.Second + after); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
	o.Vouch(12*time.Second, 100*time.Millisecond) // Somebody hears it: it was another machine's port.
	if s := o.State(12 * time.Second); s != Suspect {
		t.Errorf("heard by another: %s", s)
	}
	o.Answer(20*time.Second, time.Millisecond) // Back again; what was refused before counts no more.
	if s := o.State(20*time.Second + SuspectAfter); s != Suspect {
		t.Errorf("silent again: %s", s)
	}
}

// TestNobodyIsAliveByHearsay: only an answer to this peer makes a member alive,
// and silence never makes one better.
func TestNobodyIsAliveByHearsay(t *testing.T) {
	order := map[State]int{Alive: 0, Suspect: 1, Gone: 2}
	rapid.Check(t, func(t *rapid.T) {
		var o Observed
		now := time.Duration(0)
		last := time.Duration(-1)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 3:
				o.Refuse(now)
			case 0:
				o.Answer(now, time.Millisecond)
				last = now
			case 1:
				o.Vouch(now, time.Duration(rapid.IntRange(-10, 5000).Draw(t, "silence"))*time.Millisecond)
			}
			state := o.State(now)
			if fresh := last >= 0 && now-last < SuspectAfter; (state == Alive) != fresh {
				t.Fatalf("%s, and the last answer was at %s, now %s", state, last, now)
			}
			if later := o.State(now + time.Second); order[later] < order[state] {
				t.Fatalf("%s became %s by silence", state, later)
			}
		}
	})
}
