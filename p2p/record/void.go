package record

import (
	"slices"
	"strings"
)

// Void takes out of the table every record for which is says true, as if it had
// never come: for what was written by somebody whose rights ended and whose
// records do not stand. What is to stay out has to be refused by Rights or Admit
// from before the call on, or it comes back. Then none of it is in the table
// once Void has returned nil, nor comes in: what was judged before Void was done,
// and is not stored yet, is judged again. Errors: ErrStorage.
//
// is runs with the lock writing held. It may read the table, and take a lock
// under which others do so, but must not write to it or ask for Incarnation,
// nor take a lock under which others do.
func (t *Table) Void(is func(Record) bool) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	defer t.voids.Add(1)
	var gone []*Signed
	var writes []Write
	for _, s := range t.records { // The lock writing alone guards this against writers.
		if !is(s.Record) {
			continue
		}
		gone = append(gone, s)
		writes = append(writes, Write{Key: t.place(s), Delete: true})
	}
	if len(gone) == 0 {
		return nil
	}
	if err := t.storage.Apply(writes); err != nil {
		return &storageError{err}
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	for _, s := range gone {
		t.uninstall(s)
	}
	for ch := range t.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	return nil
}

// uninstall is the reverse of install.
func (t *Table) uninstall(s *Signed) {
	key := s.Key()
	delete(t.records, key)
	delete(t.foreign, key)
	ids := t.byKind[s.Kind]
	at, _ := slices.BinarySearchFunc(ids, s.ID, func(s *Signed, id string) int { return strings.Compare(s.ID, id) })
	t.byKind[s.Kind] = slices.Delete(ids, at, at+1)
	t.count(s, -1)
	t.take(s)
	t.changes[s.Kind]++
	b := &t.buckets[bucketOf(key)]
	if at, found := slices.BinarySearchFunc(b.items, key, func(i bucketItem, key string) int { return strings.Compare(i.key, key) }); found {
		b.items = slices.Delete(b.items, at, at+1)
		b.stale = true
		if len(b.items) == 0 {
			b.digest, b.stale = Hash{}, false
		}
	}
}
