package record

import (
	"errors"
	"sync"
	"time"
)

const (
	// holdTime is how long a record waits for its author's rights.
	holdTime = 30 * time.Second
	// What may wait at once; the oldest go first.
	maxHeld      = 1024
	maxHeldBytes = 4 << 20
	// maxPasses bounds how often waiting records are gone through in search of
	// grants that allow grants; what is left waits for the next occasion.
	maxPasses = 16
)

// held are the records whose authors' rights are not known yet, oldest first.
type held struct {
	mu    sync.Mutex
	list  []heldRecord
	bytes int
}

type heldRecord struct {
	rec   *Signed
	since time.Time // of the first Recheck that saw it; zero before
}

func (h *held) add(s *Signed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.list {
		if r.rec.Hash == s.Hash {
			return
		}
	}
	h.list = append(h.list, heldRecord{rec: s})
	h.bytes += len(s.Raw)
	drop := 0
	for len(h.list)-drop > maxHeld || h.bytes > maxHeldBytes {
		h.bytes -= len(h.list[drop].rec.Raw)
		drop++
	}
	h.list = append(h.list[:0:0], h.list[drop:]...)
}

// take empties the list.
func (h *held) take() []heldRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.list
	h.list, h.bytes = nil, 0
	return list
}

// putBack puts older records before those that came meanwhile.
func (h *held) putBack(list []heldRecord) {
	h.mu.Lock()
	newer := h.list
	h.list, h.bytes = list, 0
	for _, r := range list {
		h.bytes += len(r.rec.Raw)
	}
	h.mu.Unlock()
	for _, r := range newer {
		h.add(r.rec)
	}
}

// Held is the number of records that wait for their authors' rights.
func (t *Table) Held() int {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	return len(t.held.list)
}

// Recheck offers the held records again, and is called after rights may have
// grown and every few seconds. It returns those that were kept now, which are
// worth passing on. A record is dropped when it has waited 30 s since the first
// call that saw it; now is the caller's own clock, which should be monotonic.
//
// It also writes again what this peer wrote since its start and what a record
// from an earlier life of it has replaced (see Options.Storage: a database that
// was lost or set back).
func (t *Table) Recheck(now time.Time) []Signed {
	t.reassert()
	var kept []Signed
	waiting := t.held.take()
	for range maxPasses {
		progress := false
		batch := make([]*Signed, len(waiting))
		for i, w := range waiting {
			batch[i] = w.rec
		}
		var still []heldRecord
		for i, r := range t.offerAll(batch) {
			switch {
			case r.out == Held:
				still = append(still, waiting[i])
			case r.out == Fresh:
				kept = append(kept, *batch[i])
				progress = true // it may be the grant that another one waits for
			case r.err != nil:
				t.log.Debug("a held record was refused", "error", r.err)
			}
		}
		waiting = still
		if !progress || len(waiting) == 0 {
			break
		}
	}
	back := waiting[:0]
	for _, w := range waiting {
		if w.since.IsZero() {
			w.since = now
		}
		if now.Sub(w.since) < holdTime {
			back = append(back, w)
		}
	}
	t.held.putBack(back)
	return kept
}

// reassert writes the overtaken records again.
func (t *Table) reassert() {
	t.writing.Lock()
	again := make([]*Signed, 0, len(t.overtaken))
	for _, s := range t.overtaken {
		again = append(again, s)
	}
	t.writing.Unlock()
	for _, s := range again {
		content := live(s.Payload)
		if s.Deleted {
			content = deleted
		}
		_, err := t.put(Owned, s.Kind, s.ID, content, t.nextOwned)
		if errors.Is(err, ErrNotFound) { // deleted by either life
			t.writing.Lock()
			delete(t.overtaken, s.Key())
			t.writing.Unlock()
		} else if err != nil {
			t.log.Warn("a record of this peer could not be written again", "key", s.Key(), "error", err)
		}
	}
}
