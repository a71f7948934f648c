package eviction

import (
	"cmp"
	"math"
	"slices"
)

// Item is one thing on a disk that could be deleted. IDs are named once each.
type Item struct {
	ID string
	// Bytes is what its end would free.
	Bytes uint64
	// Used orders the items by their last use: the lower, the longer ago.
	Used int64
	// Unfinished: a pull that was not brought to its end.
	Unfinished bool
	// Pinned: an admin wants it to stay. Running: it is used right now. Last: no
	// other whole copy is known for sure to stay.
	Pinned, Running, Last bool
}

// The reasons for which an item stays.
const (
	Pinned  = "pinned"
	Running = "running"
	Last    = "last_copy"
	// Spared: it could go, and enough is freed without it.
	Spared = "spared"
)

// All is the need of those who want everything to go that may.
const All = math.MaxUint64

// Stay is an item that stays, and why.
type Stay struct {
	Item
	Reason string
}

// Choose picks what goes so that at least need bytes are freed, or everything
// that may go where that is less, in the order in which it is to go. The others
// stay; they are in the order in which they would go.
func Choose(items []Item, need uint64) (goes []Item, stays []Stay) {
	var freed uint64
	for _, i := range slices.SortedFunc(slices.Values(items), order) {
		reason := mustStay(i)
		if reason == "" && freed >= need {
			reason = Spared
		}
		if reason != "" {
			stays = append(stays, Stay{i, reason})
			continue
		}
		goes = append(goes, i)
		freed = plus(freed, i.Bytes)
	}
	return goes, stays
}

// Freeable is how many bytes could be freed in all.
func Freeable(items []Item) (bytes uint64) {
	for _, i := range items {
		if mustStay(i) == "" {
			bytes = plus(bytes, i.Bytes)
		}
	}
	return bytes
}

func order(a, b Item) int {
	return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Used, b.Used), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ID, b.ID))
}

func rank(i Item) int {
	if i.Unfinished {
		return 0
	}
	return 1
}

// mustStay is why an item may not go, whatever is needed; "" where it may. An
// unfinished pull is no whole copy, and so never the last one.
func mustStay(i Item) string {
	switch {
	case i.Running:
		return Running
	case i.Pinned:
		return Pinned
	case i.Last && !i.Unfinished:
		return Last
	}
	return ""
}

func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
