// Package ledger keeps the account of the memory that one peer lends. Whoever
// orders something, the ledger of the peer that is to run it has the last word:
// it never hands out more than is lent.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Ledger is the account. All its methods may be called from any goroutine.
type Ledger struct {
	mu       sync.Mutex
	lent     uint64
	reserved map[string]uint64
}

// New opens an account of so many bytes.
func New(lent uint64) *Ledger { return &Ledger{lent: lent, reserved: map[string]uint64{}} }

// SetLent changes how much is lent. What is reserved already stays reserved,
// even when it is more.
func (l *Ledger) SetLent(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent = bytes
}

// Reserve takes bytes for one thing, which must not have any yet; the error is
// a sentence with both figures.
func (l *Ledger) Reserve(name string, bytes uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.reserved[name]; taken {
		return fmt.Errorf("memory for %s is reserved already", name)
	}
	if free := l.free(); bytes > free {
		return fmt.Errorf("needs %s, %s of the lent memory is free", size(bytes), size(free))
	}
	l.reserved[name] = bytes
	return nil
}

// Release gives back what was reserved for one thing, if anything was.
func (l *Ledger) Release(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, name)
}

// Reserved is the sum of what is reserved, in bytes.
func (l *Ledger) Reserved() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum()
}

// Free is what can still be reserved, in bytes.
func (l *Ledger) Free() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free()
}

// Names lists what memory is reserved for.
func (l *Ledger) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.reserved))
}

func (l *Ledger) sum() uint64 {
	var sum uint64
	for _, n := range l.reserved {
		sum += n
	}
	return sum
}

func (l *Ledger) free() uint64 {
	sum := l.sum()
	return l.lent - min(l.lent, sum)
}

func size(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
