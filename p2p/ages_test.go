package p2p

import (
	"bytes"
	"testing"
	"time"

	"relay/p2p/liveness"
)

func TestAgesOnTheWireAreNeverTooLow(t *testing.T) {
	for _, age := range []time.Duration{0, 1, liveness.AgeUnit, liveness.AgeUnit + 1, 12 * time.Second} {
		told := time.Duration(ageOnWire(age, true)) * liveness.AgeUnit
		if told < age || told >= age+liveness.AgeUnit {
			t.Errorf("%s is told as %s", age, told)
		}
	}
	if ageOnWire(time.Minute, true) != untold || ageOnWire(0, false) != untold {
		t.Error("what was not heard has an age")
	}
}

// TestNobodysWordGoesAgainstWhatOneHearsItself: a liar that calls a dead member
// fresh convinces nobody who has a link to it, nor does it get passed on.
func TestNobodysWordGoesAgainstWhatOneHearsItself(t *testing.T) {
	var k link
	k.own = true
	k.seen.Answer(0, time.Millisecond)
	now := liveness.GoneAfter
	k.told.Hear(now, 0)
	if s := k.state(now); s != liveness.Gone {
		t.Errorf("dead, and called fresh: %s", s)
	}
	if silence, _ := k.silence(now); silence != now {
		t.Errorf("silent for %s, and %s is passed on", now, silence)
	}
	k.own = false // The link is kept no more.
	if s := k.state(now); s != liveness.Alive {
		t.Errorf("only others can know, and it is %s", s)
	}
}

func FuzzReadAges(f *testing.F) {
	f.Add([]byte{0, 0})
	f.Add([]byte{0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 20, 0, 0, 21})
	f.Add([]byte{255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		var names []memberName
		for {
			var ages []byte
			var err error
			if names, ages, err = readAges(in, names); err != nil {
				return
			}
			if len(names) != len(ages) || len(names) > maxTold {
				t.Fatalf("%d names, %d ages", len(names), len(ages))
			}
			if len(names) == 0 && in.Len() == 0 {
				return
			}
		}
	})
}
