package api

import "sync/atomic"

// held counts the bytes of bodies that requests keep in memory, against a bound
// for all of them together.
type held struct {
	max  int64
	used atomic.Int64
}

// grab reports whether n more bytes may be held; if so they must be released.
func (h *held) grab(n int64) bool {
	if h.used.Add(n) <= h.max {
		return true
	}
	h.used.Add(-n)
	return false
}

// spare is grab for what can be done without: it leaves half of all to others.
func (h *held) spare(n int64) bool {
	if h.used.Add(n) <= h.max/2 {
		return true
	}
	h.used.Add(-n)
	return false
}

func (h *held) release(n int64) { h.used.Add(-n) }

// buffer is bytes counted in a held. It must be dropped when they are no longer
// needed.
type buffer struct {
	held *held
	b    []byte
	size int64 // what is counted
}

// more makes room for n bytes behind those there are, and reports whether it
// may.
func (b *buffer) more(n int) bool {
	need := len(b.b) + n
	if need <= cap(b.b) {
		return true
	}
	// Twice the size at a time, and counted before it is there.
	size := max(need, 2*cap(b.b), 4<<10)
	if !b.held.grab(int64(size) - b.size) {
		return false
	}
	b.size = int64(size)
	grown := make([]byte, len(b.b), size)
	copy(grown, b.b)
	b.b = grown
	return true
}

// count counts n bytes that somebody else keeps, and reports whether they may be kept.
func (b *buffer) count(n int) bool {
	if !b.held.grab(int64(n)) {
		return false
	}
	b.size += int64(n)
	return true
}

// countSpare is count for what can be done without. When it may not be kept, all that is
// counted is given back.
func (b *buffer) countSpare(n int) bool {
	if !b.held.spare(int64(n)) {
		b.drop()
		return false
	}
	b.size += int64(n)
	return true
}

// drop gives the bytes back. It may be called twice.
func (b *buffer) drop() {
	b.held.release(b.size)
	b.b, b.size = nil, 0
}
