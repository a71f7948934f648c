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
	sum      uint64 // of reserved; no more than lent ever was, so it cannot overflow
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

// Reserve takes bytes for one thing, which must not have any yet. What cannot be
// had is refused with a *Shortage.
func (l *Ledger) Reserve(name string, bytes uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if had, taken := l.reserved[name]; taken {
		return fmt.Errorf("%s of memory are reserved for %s already", size(had), name)
	}
	if free := l.free(); bytes > free {
		return &Shortage{Need: bytes, Free: free, Lent: l.lent}
	}
	l.reserved[name] = bytes
	l.sum += bytes
	return nil
}

// Release gives back what was reserved for one thing, if anything was.
func (l *Ledger) Release(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum -= l.reserved[name]
	delete(l.reserved, name)
}

// Reserved is the sum of what is reserved, in bytes.
func (l *Ledger) Reserved() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum
}

// Free is what can still be reserved, in bytes.
func (l *Ledger) Free() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free()
}

// Names lists what memory is reserved for, sorted.
func (l *Ledger) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.reserved))
}

func (l *Ledger) free() uint64 { return l.lent - min(l.lent, l.sum) }
