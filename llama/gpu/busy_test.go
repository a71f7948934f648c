package gpu

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBusy(t *testing.T) {
	const limit = 256 * mib
	type step struct {
		after   time.Duration // Since the step before.
		foreign uint64
		known   bool
		want    bool
	}
	for name, steps := range map[string][]step{
		"two looks in a row":                {{0, limit + 1, true, false}, {5 * time.Second, limit + 1, true, true}},
		"at the limit it is ignored":        {{0, limit, true, false}, {5 * time.Second, limit, true, false}, {5 * time.Second, limit, true, false}},
		"not two looks apart":               {{0, limit + 1, true, false}, {5 * time.Second, 0, true, false}, {5 * time.Second, limit + 1, true, false}},
		"unknown makes none busy":           {{0, 1 << 40, false, false}, {5 * time.Second, 1 << 40, false, false}},
		"unknown between":                   {{0, gib, true, false}, {5 * time.Second, 0, false, false}, {5 * time.Second, gib, true, false}, {5 * time.Second, gib, true, true}},
		"free after 15 s":                   {{0, gib, true, false}, {1, gib, true, true}, {1, 0, true, true}, {14 * time.Second, 0, true, true}, {time.Second, 0, true, false}},
		"a little less does not free it":    {{0, gib, true, false}, {1, gib, true, true}, {1, limit, true, true}, {time.Hour, limit * 3 / 4, true, true}, {time.Hour, limit * 3 / 4, true, true}},
		"below three quarters does":         {{0, gib, true, false}, {1, gib, true, true}, {1, limit*3/4 - 1, true, true}, {15 * time.Second, limit*3/4 - 1, true, false}},
		"a short rest does not":             {{0, gib, true, false}, {1, gib, true, true}, {1, 0, true, true}, {10 * time.Second, gib, true, true}, {10 * time.Second, 0, true, true}, {14 * time.Second, 0, true, true}},
		"unknown frees it in time":          {{0, gib, true, false}, {1, gib, true, true}, {1, 0, false, true}, {15 * time.Second, 0, false, false}},
		"without a limit nothing is spared": {{0, 1, true, false}, {1, 1, true, true}},
	} {
		at, most := time.Duration(0), uint64(limit)
		if name == "without a limit nothing is spared" {
			most = 0
		}
		var b Busy
		for i, s := range steps {
			at += s.after
			if got := b.Look(s.foreign, s.known, most, at); got != s.want {
				t.Errorf("%s: step %d: busy %v", name, i, got)
			}
		}
	}
	// With a limit of 0 it can become free again.
	var b Busy
	b.Look(1, true, 0, 0)
	b.Look(1, true, 0, 1)
	b.Look(0, true, 0, 2)
	if b.Look(0, true, 0, 20*time.Second) {
		t.Error("busy for ever")
	}
}

// It changes to busy only at a look above the limit that follows another one,
// and to free only 15 s after the last look that found three quarters of it.
func TestBusyKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 100
		var b Busy
		var now, high time.Duration
		was, above := false, 0
		high = -time.Hour
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now += time.Duration(rapid.IntRange(0, 20).Draw(t, "after")) * time.Second
			foreign, known := rapid.Uint64Range(0, 200).Draw(t, "foreign"), rapid.Bool().Draw(t, "known")
			is := b.Look(foreign, known, limit, now)
			if known && foreign > limit {
				above++
			} else {
				above = 0
			}
			if known && foreign >= limit*3/4 {
				high = now
			}
			if is && !was && above < 2 || !is && was && now-high < 15*time.Second || !is && above >= 2 {
				t.Fatalf("%v to %v at %v, %d looks above, high at %v", was, is, now, above, high)
			}
			was = is
		}
	})
}
