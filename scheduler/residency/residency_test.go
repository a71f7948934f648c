package residency_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/scheduler/residency"
)

type bytes = map[string]uint64

const now = 10 * time.Hour

// idle is a model that was loaded long ago and used that long ago, changed as told.
func idle(id string, used time.Duration, ram uint64, change ...func(*residency.Resident)) residency.Resident {
	r := residency.Resident{ID: id, Name: id, Bytes: bytes{"RAM": ram}, Loaded: now - 2*time.Hour, Used: now - used}
	for _, c := range change {
		c(&r)
	}
	return r
}

func kept(r *residency.Resident)   { r.Kept = true }
func busy(r *residency.Resident)   { r.InFlight = 1 }
func busier(r *residency.Resident) { r.InFlight = 3 }
func young(r *residency.Resident)  { r.Loaded, r.Used = now-residency.MinLife+1, now-1 }
func grown(r *residency.Resident)  { r.Loaded, r.Used = now-residency.MinLife, now-residency.MinLife }
func unused(r *residency.Resident) { r.Used = -1 }
func asked(r *residency.Resident)  { r.Asked, r.Used, r.Loaded = true, -1, now-residency.UnusedLife+1 }
func vain(r *residency.Resident)   { r.Asked, r.Used, r.Loaded = true, -1, now-residency.UnusedLife }
func served(r *residency.Resident) { asked(r); r.Used = now - time.Minute }
func onGPU(n uint64) func(*residency.Resident) {
	return func(r *residency.Resident) { r.Bytes["CUDA0"] = n }
}
func unload(after time.Duration) func(*residency.Resident) {
	return func(r *residency.Resident) { r.IdleUnload = after }
}

func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		name       string
		have       []residency.Resident
		need, free bytes
		goes       []string
		stays      []string
		ok         bool
	}{
		{"nothing is short", []residency.Resident{idle("a", time.Hour, 5)}, bytes{"RAM": 3}, bytes{"RAM": 3}, nil, nil, true},
		{"nothing is loaded", nil, bytes{"RAM": 3}, bytes{"RAM": 2}, nil, nil, false},
		{"the longest unused first", []residency.Resident{idle("a", time.Minute, 5), idle("b", time.Hour, 5), idle("c", time.Second, 5)},
			bytes{"RAM": 8}, bytes{"RAM": 4}, []string{"b"}, nil, true},
		{"as many as it takes", []residency.Resident{idle("a", time.Minute, 5), idle("b", time.Hour, 5), idle("c", time.Second, 5)},
			bytes{"RAM": 8}, nil, []string{"b", "a"}, nil, true},
		{"none where all are not enough", []residency.Resident{idle("a", time.Minute, 5), idle("b", time.Hour, 5)},
			bytes{"RAM": 11}, nil, nil, nil, false},
		{"a large one spares the small ones before it", []residency.Resident{idle("small", time.Hour, 1), idle("large", time.Minute, 9)},
			bytes{"RAM": 9}, nil, []string{"large"}, nil, true},
		{"of the ones spared the last used", []residency.Resident{idle("a", 3*time.Hour, 4), idle("b", 2*time.Hour, 4), idle("c", time.Hour, 6)},
			bytes{"RAM": 10}, nil, []string{"a", "c"}, nil, true},
		{"only where it is short", []residency.Resident{idle("ram", time.Hour, 5), idle("gpu", time.Minute, 1, onGPU(5))},
			bytes{"RAM": 1, "CUDA0": 4}, bytes{"RAM": 1}, []string{"gpu"}, nil, true},
		{"each device", []residency.Resident{idle("ram", time.Hour, 5), idle("gpu", time.Minute, 0, onGPU(5))},
			bytes{"RAM": 5, "CUDA0": 4}, nil, []string{"ram", "gpu"}, nil, true},
		{"a device nobody has", []residency.Resident{idle("ram", time.Hour, 5)}, bytes{"CUDA7": 1}, nil, nil, nil, false},
		{"guards", []residency.Resident{
			idle("kept", time.Hour, 5, kept), idle("busy", time.Hour, 5, busy), idle("busier", time.Hour, 5, busier),
			idle("young", time.Hour, 5, young), idle("asked", time.Hour, 5, asked)},
			bytes{"RAM": 1}, nil, nil, []string{
				"asked was asked for and has not been used yet", "busier is in use by 3 requests", "busy is in use by a request",
				"kept is pinned or needed for its minimum", "young was loaded only 29s ago"}, false},
		{"guards end", []residency.Resident{idle("grown", 0, 1, grown), idle("vain", 0, 1, vain), idle("served", 0, 1, served), idle("unused", 0, 1, unused)},
			bytes{"RAM": 4}, nil, []string{"unused", "vain", "served", "grown"}, nil, true},
		{"who stays is told beside who goes, where it would have helped", []residency.Resident{
			idle("a", time.Hour, 5), idle("pin", time.Hour, 5, kept), idle("elsewhere", time.Hour, 0, onGPU(5), kept)},
			bytes{"RAM": 1}, nil, []string{"a"}, []string{"pin is pinned or needed for its minimum"}, true},
		{"the largest figures", []residency.Resident{idle("a", time.Hour, math.MaxUint64), idle("b", time.Minute, math.MaxUint64)},
			bytes{"RAM": math.MaxUint64}, nil, []string{"a"}, nil, true},
	} {
		goes, stays, ok := residency.Choose(tc.have, tc.need, tc.free, now)
		var told []string
		for _, s := range stays {
			if s.ID != s.Name {
				t.Errorf("%s: %+v", tc.name, s)
			}
			told = append(told, s.Name+" "+s.Text)
		}
		if !slices.Equal(goes, tc.goes) || !slices.Equal(told, tc.stays) || ok != tc.ok {
			t.Errorf("%s: %v go, %q stay, %v", tc.name, goes, told, ok)
		}
	}
}

func TestIdle(t *testing.T) {
	for _, tc := range []struct {
		name string
		have residency.Resident
		goes bool
	}{
		{"for ever", idle("a", time.Hour, 5), false},
		{"not yet", idle("a", time.Hour-1, 5, unload(time.Hour)), false},
		{"now", idle("a", time.Hour, 5, unload(time.Hour)), true},
		{"in use", idle("a", time.Hour, 5, unload(time.Minute), busy), false},
		{"kept", idle("a", time.Hour, 5, unload(time.Minute), kept), false},
		{"young", idle("a", time.Hour, 5, unload(time.Second), young, unused), false},
		{"grown", idle("a", time.Hour, 5, unload(time.Second), grown), true},
		{"waited for", idle("a", time.Hour, 5, unload(time.Minute), asked), false},
		{"waited for in vain", idle("a", time.Hour, 5, unload(time.Minute), vain), true},
		{"never used counts from its loading", idle("a", time.Hour, 5, unload(2*time.Hour), unused), true},
		{"loaded on a clock that is ahead", idle("a", 0, 5, unload(1), func(r *residency.Resident) { r.Loaded = now + time.Hour }), false},
	} {
		if goes := residency.Idle([]residency.Resident{tc.have}, now); (len(goes) == 1) != tc.goes {
			t.Errorf("%s: %v", tc.name, goes)
		}
	}
	have := []residency.Resident{idle("b", time.Hour, 1, unload(1)), idle("a", time.Hour, 1, unload(1)), idle("c", 2*time.Hour, 1, unload(1))}
	if goes := residency.Idle(have, now); !slices.Equal(goes, []string{"c", "a", "b"}) {
		t.Errorf("in the order of %v", goes)
	}
}

// guarded is what the guards say, written down a second time.
func guarded(r residency.Resident) bool {
	age := now - r.Loaded
	return r.Kept || r.InFlight > 0 || age < 30*time.Second || r.Asked && r.Used < 0 && age < 5*time.Minute
}

func TestGuardsHold(t *testing.T) {
	devices := []string{"CUDA0", "CUDA1", "RAM"}
	rapid.Check(t, func(t *rapid.T) {
		figures := rapid.MapOfN(rapid.SampledFrom(devices), rapid.OneOf(rapid.Uint64Range(0, 10), rapid.Uint64()), 0, 3)
		ago := rapid.SampledFrom([]time.Duration{0, time.Second, 30*time.Second - 1, 30 * time.Second, time.Minute, 5*time.Minute - 1, 5 * time.Minute, time.Hour})
		var have []residency.Resident
		byID := map[string]residency.Resident{}
		for i := range rapid.IntRange(0, 8).Draw(t, "residents") {
			r := residency.Resident{ID: fmt.Sprint(i), Bytes: figures.Draw(t, "bytes"), Loaded: now - ago.Draw(t, "loaded"), Used: -1,
				Kept: rapid.IntRange(0, 4).Draw(t, "kept") == 0, InFlight: max(0, rapid.IntRange(-4, 2).Draw(t, "in flight")),
				Asked: rapid.Bool().Draw(t, "asked"), IdleUnload: ago.Draw(t, "idle unload")}
			if rapid.Bool().Draw(t, "used") {
				r.Used = max(r.Loaded, now-ago.Draw(t, "when"))
			}
			have, byID[r.ID] = append(have, r), r
		}
		need, free := figures.Draw(t, "need"), figures.Draw(t, "free")
		enough := func(gone []string) bool {
			for d, n := range need {
				got := free[d]
				for _, id := range gone {
					got += min(byID[id].Bytes[d], math.MaxUint64-got)
				}
				if got < n {
					return false
				}
			}
			return true
		}
		var may []string
		for _, r := range have {
			if !guarded(r) {
				may = append(may, r.ID)
			}
		}
		last := func(id string) time.Duration { return max(byID[id].Loaded, byID[id].Used) }
		goes, stays, ok := residency.Choose(have, need, free, now)
		if ok != enough(may) || ok && !enough(goes) || !ok && len(goes) > 0 {
			t.Fatalf("%v go, %v of %v may, ok is %v", goes, may, have, ok)
		}
		for i, id := range goes {
			if guarded(byID[id]) {
				t.Fatalf("%+v goes", byID[id])
			}
			if enough(slices.Delete(slices.Clone(goes), i, i+1)) {
				t.Fatalf("%v go, and without %s it would do", goes, id)
			}
			if i > 0 && last(goes[i-1]) > last(id) {
				t.Fatalf("%v are not in the order of use", goes)
			}
			// With all that was used less recently it would not have done without.
			var older []string
			for _, o := range may {
				if last(o) < last(id) {
					older = append(older, o)
				}
			}
			if enough(older) {
				t.Fatalf("%v go, though the less recently used %v would do", goes, older)
			}
		}
		for _, s := range stays {
			if !guarded(byID[s.ID]) || s.Text == "" {
				t.Fatalf("%+v stays: %+v", s, byID[s.ID])
			}
		}
		evictable := residency.Evictable(have, now)
		for d := range maps.Keys(need) {
			var sum uint64
			for _, id := range may {
				sum += min(byID[id].Bytes[d], math.MaxUint64-sum)
			}
			if evictable[d] != sum {
				t.Fatalf("%v is evictable of %v", evictable, have)
			}
		}
		for _, id := range residency.Idle(have, now) {
			if r := byID[id]; guarded(r) || r.IdleUnload == 0 || now-last(id) < r.IdleUnload {
				t.Fatalf("%+v is idle", r)
			}
		}
		slices.Reverse(have)
		if again, _, _ := residency.Choose(have, need, free, now); !slices.Equal(again, goes) {
			t.Fatalf("%v go, in another order %v", goes, again)
		}
	})
}
