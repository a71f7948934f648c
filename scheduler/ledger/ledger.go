package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// Ledger is the account: bytes by device id, of each of the names that memory is
// reserved for. All its methods may be called from any goroutine.
type Ledger struct {
	mu       sync.Mutex
	lent     map[string]uint64
	reserved map[string]map[string]uint64
}

// New opens an account of nothing lent.
func New() *Ledger { return &Ledger{reserved: map[string]map[string]uint64{}} }

// SetLent changes how much is lent of each device. A device that is not named is
// not lent; one whose memory is not known is not to be named. What is reserved
// already stays reserved, even when it is more.
func (l *Ledger) SetLent(bytes map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent = maps.Clone(bytes)
}

// Reserve takes memory on each device for one name, which must not have any yet:
// all of it or nothing. What cannot be had is refused with a *Shortage: of
// several the one that does not pass, then the first by the device's id.
func (l *Ledger) Reserve(name string, need map[string]uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.reserved[name]; taken {
		return fmt.Errorf("memory is reserved for %s already", name)
	}
	var worst *Shortage
	for _, device := range slices.Sorted(maps.Keys(need)) {
		s := Shortage{Device: device, Need: need[device], Free: l.free(device), Lent: l.lent[device]}
		if s.Need > s.Free && (worst == nil || worst.Passing() && !s.Passing()) {
			worst = &s
		}
	}
	if worst != nil {
		return worst
	}
	l.reserved[name] = maps.Clone(need)
	return nil
}

// Adjust corrects what is reserved for a name to what it turned out to take,
// even where that is more than is lent. A name without a reservation gets none.
func (l *Ledger) Adjust(name string, has map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.reserved[name]; taken {
		l.reserved[name] = maps.Clone(has)
	}
}

// Release gives back what was reserved for one name, if anything was.
func (l *Ledger) Release(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, name)
}

// Reserved is the sum of what is reserved on each device, in bytes; sums stop at
// the largest figure there is.
func (l *Ledger) Reserved() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := map[string]uint64{}
	for _, bytes := range l.reserved {
		for device, n := range bytes {
			sums[device] = add(sums[device], n)
		}
	}
	return sums
}

// Of is what is reserved for one name, in bytes by device; nil where nothing is.
func (l *Ledger) Of(name string) map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.reserved[name])
}

// Free is what can still be reserved of each device that is lent, in bytes.
func (l *Ledger) Free() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := make(map[string]uint64, len(l.lent))
	for device := range l.lent {
		free[device] = l.free(device)
	}
	return free
}

// Names lists what memory is reserved for, sorted.
func (l *Ledger) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.reserved))
}

func (l *Ledger) free(device string) uint64 {
	var sum uint64
	for _, bytes := range l.reserved {
		sum = add(sum, bytes[device])
	}
	return l.lent[device] - min(l.lent[device], sum)
}

// add stops at the largest figure: what engines turned out to take is bounded by
// nothing that is known here.
func add(a, b uint64) uint64 {
	if b > math.MaxUint64-a {
		return math.MaxUint64
	}
	return a + b
}
