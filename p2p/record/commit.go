package record

import "fmt"

// change is one record to be merged or written: either offered is set, or seal,
// which makes the record from the one kept so far (nil if none) and runs with
// the lock writing held.
type change struct {
	key     string
	offered *Signed
	seal    func(kept *Signed) (Signed, error)
	judged  uint64 // Table.voids from before its author's rights were asked for

	// The outcome; guarded by writing until done.
	done     bool
	outdated bool // Void ran since it was judged; nothing was done.
	rec      *Signed
	out      Outcome
	err      error

	crowds bool // Its author is over his share, and another record of his went.
}

// maxJudged is how often changes are judged while Void runs again and again
// between judging and writing; after that it counts as not known yet whether
// their authors may write them.
const maxJudged = 8

// commit carries out changes and returns when they are done. Callers that come
// while another one waits for the disk are served together by one write. The
// changes of one call were judged together: either all are carried out, or Void
// ran since then and none is; the caller judges again then.
func (t *Table) commit(changes []*change) (timely bool) {
	if len(changes) == 0 {
		return true
	}
	t.queueing.Lock()
	t.queue = append(t.queue, changes...)
	t.queueing.Unlock()

	t.writing.Lock()
	defer t.writing.Unlock()
	if changes[0].done { // all of one caller's changes are in one batch
		return !changes[0].outdated
	}
	t.queueing.Lock()
	batch := t.queue
	t.queue = nil
	t.queueing.Unlock()
	t.carryOut(batch)
	return !changes[0].outdated
}

// carryOut decides on a batch, stores what changed, and then shows it. The lock
// writing is held; it alone guards the state against other writers, so the
// reads here need no other lock.
func (t *Table) carryOut(batch []*change) {
	next := make(map[string]*Signed) // what the batch has changed so far
	room := t.room()
	for _, c := range batch {
		c.done = true
		if c.outdated = c.judged != t.voids.Load(); c.outdated {
			continue
		}
		old := next[c.key]
		if old == nil {
			old = t.records[c.key]
		}
		c.rec = c.offered
		if c.seal != nil {
			sealed, err := c.seal(old)
			if err != nil {
				c.err = err
				continue
			}
			c.rec = &sealed
		}
		if c.out = against(c.rec, old); c.out != Fresh {
			continue
		}
		if err := room.admit(c.rec, old, c.seal != nil); err != nil {
			c.out, c.err = Refused, err
			continue
		}
		if c.offered != nil {
			t.meetFormerSelf(c.rec)
		}
		next[c.key] = c.rec
	}
	gone := room.pushOut(batch, next)
	if len(next)+len(gone) == 0 {
		return
	}

	writes := make([]Write, 0, len(next)+len(gone))
	for key, s := range next {
		if _, known := t.kinds[s.Kind]; known && t.foreign[key] {
			writes = append(writes, Write{Key: []byte(storedForeign + key), Delete: true})
		}
		writes = append(writes, Write{Key: t.place(s), Value: s.toStore()})
	}
	for _, s := range gone {
		writes = append(writes, Write{Key: t.place(s), Delete: true})
	}
	if err := t.storage.Apply(writes); err != nil {
		for _, c := range batch {
			if c.err == nil && !c.outdated { // also what lost against a record that was not stored
				c.out, c.err = Refused, fmt.Errorf("record %s: %w", c.key, &storageError{err})
			}
		}
		return
	}
	for key := range next {
		delete(t.foreign, key)
	}
	for _, c := range batch {
		if c.out == Fresh && t.owns(c.rec) {
			t.noteOwn(c)
		}
	}

	t.reading.Lock()
	defer t.reading.Unlock()
	for _, s := range gone {
		t.uninstall(s)
	}
	for _, s := range next {
		t.install(s)
	}
	for ch := range t.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// noteOwn remembers what this peer wrote since its start, and what came back
// from an earlier life instead.
func (t *Table) noteOwn(c *change) {
	if c.seal != nil {
		t.mine[c.key] = c.rec
		delete(t.overtaken, c.key)
	} else if m := t.mine[c.key]; m != nil {
		t.overtaken[c.key] = m
	}
}

// meetFormerSelf raises the incarnation above that of a record which this peer
// wrote and does not remember: its database was lost, or set back to an earlier
// day. Without this the mesh would take what it writes now for old. The raised
// number needs no writing down: the record is stored, and load looks at it.
func (t *Table) meetFormerSelf(s *Signed) {
	if t.owns(s) && s.Version[0] >= t.incarnation && s.Version[0]+1 < MaxCount {
		t.incarnation = s.Version[0] + 1
		t.sequence = 0
		t.log.Warn("records of an earlier life of this peer came back; its incarnation was raised",
			"key", s.Key(), "incarnation", t.incarnation)
	}
}
