package residency

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// MinLife is how long a model stays once it is loaded: loading it cost more
	// than its first seconds could give.
	MinLife = 30 * time.Second
	// UnusedLife is how long one stays that somebody asked for and nobody has used.
	UnusedLife = 5 * time.Minute
)

// Resident is a model that is loaded. IDs are named once each.
type Resident struct {
	ID, Name string
	// Bytes is the memory that its end would free, by device.
	Bytes map[string]uint64
	// Kept: it is pinned, or needed for a minimum that somebody set.
	Kept bool
	// InFlight is how many requests it works on.
	InFlight int
	// Asked: it was loaded because somebody waits for it.
	Asked bool
	// Loaded and Used are when it was ready and when its last request ended, on one
	// monotonic clock; Used is below 0 where it never had any.
	Loaded, Used time.Duration
	// IdleUnload is how long it may go unused; 0 is for ever.
	IdleUnload time.Duration
}

// Stay is a model whose memory would have helped, and why it stays, as a part of
// a sentence whose subject is the model.
type Stay struct{ ID, Name, Text string }

// Choose picks the models to unload so that on each device as much as is needed
// is free, in bytes. Where that cannot be had none go and it is not ok. Those that
// stay for a reason of their own are told, by id, of the devices that are short.
func Choose(r []Resident, need, free map[string]uint64, now time.Duration) (goes []string, stays []Stay, ok bool) {
	short := map[string]uint64{}
	for device, n := range need {
		if n > free[device] {
			short[device] = n - free[device]
		}
	}
	var may []Resident
	for _, m := range r {
		if !helps(m, short) {
			continue
		}
		if text := stay(m, now); text != "" {
			stays = append(stays, Stay{m.ID, m.Name, text})
		} else {
			may = append(may, m)
		}
	}
	slices.SortFunc(stays, func(a, b Stay) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(may, older)
	var chosen []Resident
	for i := 0; i < len(may) && !covers(chosen, short); i++ {
		if helps(may[i], left(chosen, short)) {
			chosen = append(chosen, may[i])
		}
	}
	if !covers(chosen, short) {
		return nil, stays, false
	}
	// A large one that came late may have made smaller ones needless.
	for i := len(chosen) - 1; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(chosen), i, i+1); covers(without, short) {
			chosen = without
		}
	}
	return ids(chosen), stays, true
}

// Evictable is what could be freed on each device for another model, in bytes.
func Evictable(r []Resident, now time.Duration) map[string]uint64 {
	var may []Resident
	for _, m := range r {
		if stay(m, now) == "" {
			may = append(may, m)
		}
	}
	return sum(may)
}

// Idle picks the models that have gone unused for as long as they may, the least
// recently used first.
func Idle(r []Resident, now time.Duration) []string {
	var idle []Resident
	for _, m := range r {
		if m.IdleUnload > 0 && now-last(m) >= m.IdleUnload && stay(m, now) == "" {
			idle = append(idle, m)
		}
	}
	slices.SortFunc(idle, older)
	return ids(idle)
}

// stay is why a model is not to be unloaded, or "".
func stay(m Resident, now time.Duration) string {
	age := max(0, now-m.Loaded)
	switch {
	case m.InFlight == 1:
		return "is in use by a request"
	case m.InFlight > 1:
		return fmt.Sprintf("is in use by %d requests", m.InFlight)
	case m.Kept:
		return "is pinned or needed for its minimum"
	case age < MinLife:
		return fmt.Sprintf("was loaded only %s ago", age.Truncate(time.Second))
	case m.Asked && m.Used < 0 && age < UnusedLife:
		return "was asked for and has not been used yet"
	}
	return ""
}

// last is when a model was used last, or loaded where it never was.
func last(m Resident) time.Duration { return max(m.Used, m.Loaded) }

func older(a, b Resident) int { return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.ID, b.ID)) }

// helps says that a model has memory on a device that is short of it.
func helps(m Resident, short map[string]uint64) bool {
	for device, n := range short {
		if n > 0 && m.Bytes[device] > 0 {
			return true
		}
	}
	return false
}

// left is what is still short with some models gone.
func left(gone []Resident, short map[string]uint64) map[string]uint64 {
	freed, still := sum(gone), map[string]uint64{}
	for device, n := range short {
		still[device] = n - min(n, freed[device])
	}
	return still
}

func covers(gone []Resident, short map[string]uint64) bool {
	for _, n := range left(gone, short) {
		if n > 0 {
			return false
		}
	}
	return true
}

// sum is the memory of some models by device; it stops at the largest figure.
func sum(r []Resident) map[string]uint64 {
	sums := map[string]uint64{}
	for _, m := range r {
		for device, n := range m.Bytes {
			sums[device] += min(n, math.MaxUint64-sums[device])
		}
	}
	return sums
}

func ids(r []Resident) (list []string) {
	for _, m := range r {
		list = append(list, m.ID)
	}
	return list
}
