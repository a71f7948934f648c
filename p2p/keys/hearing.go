package keys

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/keys/quota"
	"relay/p2p/record"
)

// hearing is how far a meter has heard what others tell. Its lock is taken before the
// meter's: records are read without that, for which requests wait.
type hearing struct {
	mu           sync.Mutex
	usages, keys uint64            // Revisions of the table.
	live         map[string]bool   // The keys that there are.
	seen         map[string]*heard // By id, the records that told says.
}

// heard is one record that was taken in.
type heard struct {
	author peer.ID
	hash   [32]byte
	used   map[string]Used // What it says now, of keys that there are.
}

// observe takes in what others have told since it was last called.
func (m *Meter) observe() {
	m.hearing.mu.Lock()
	defer m.hearing.mu.Unlock()
	m.listen()
}

// observeUnlessBusy leaves it at what is known where somebody takes in more just now.
func (m *Meter) observeUnlessBusy() {
	if m.hearing.mu.TryLock() {
		defer m.hearing.mu.Unlock()
		m.listen()
	}
}

// listen is observe with the lock of hearing held.
func (m *Meter) listen() {
	h := &m.hearing
	usages, keys := m.table.Revision(KindUsage), m.table.Revision(Kind)
	if h.live != nil && usages == h.usages && keys == h.keys {
		return
	}
	fresh, gone := h.look(m.table, keys)
	h.usages = usages

	type change struct{ from, to *heard }
	var changes []change
	there := map[string]bool{}
	for _, r := range m.table.List(KindUsage) {
		if r.Author == m.table.Self() {
			continue
		}
		there[r.ID] = true
		was := h.seen[r.ID]
		if was != nil && was.hash == r.Hash && !fresh[partOf(r)] {
			continue
		}
		is := &heard{author: r.Author, hash: r.Hash, used: h.known(r)}
		h.seen[r.ID] = is
		changes = append(changes, change{was, is})
	}
	for id, was := range h.seen {
		if !there[id] { // Its author was taken out of the mesh.
			delete(h.seen, id)
			changes = append(changes, change{was, nil})
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		m.hear(c.from, c.to)
	}
	for _, key := range gone {
		delete(m.told, key)
	}
}

// partOf is the part of the keys that a usage record is about.
func partOf(r record.Signed) string { return r.ID[len(r.ID)-1:] }

// look finds out which keys there are by now: the parts in which there are new ones, and
// those that are gone.
func (h *hearing) look(table *record.Table, revision uint64) (fresh map[string]bool, gone []string) {
	if h.live != nil && h.keys == revision {
		return nil, nil
	}
	h.keys = revision
	live := map[string]bool{LocalID: true}
	for _, r := range table.List(Kind) {
		live[r.ID] = true
	}
	fresh = map[string]bool{}
	for key := range live {
		if !h.live[key] {
			fresh[bucketOf(key)] = true
		}
	}
	for key := range h.live {
		if !live[key] {
			gone = append(gone, key)
		}
	}
	h.live = live
	return fresh, gone
}

// known is what a record says of keys that there are: members can make up others.
func (h *hearing) known(r record.Signed) map[string]Used {
	used, err := decodeUsage(r.Record)
	if err != nil {
		return nil // The table has checked it.
	}
	known := map[string]Used{}
	for key, u := range used {
		if h.live[key] {
			known[key] = u
		}
	}
	return known
}

// hear puts what a record says in the place of what it said before; either may be nil.
// The meter's lock is held.
func (m *Meter) hear(from, to *heard) {
	now := m.since()
	if to != nil {
		for key, u := range to.used {
			m.tell(key, to.author, u, now)
		}
	}
	if from != nil {
		for key := range from.used {
			if to != nil {
				if _, still := to.used[key]; still {
					continue
				}
			}
			delete(m.told[key], from.author)
			if len(m.told[key]) == 0 {
				delete(m.told, key)
			}
		}
	}
}

// tell takes in what one key has used at another peer.
func (m *Meter) tell(key string, author peer.ID, u Used, now time.Duration) {
	if m.told[key] == nil {
		m.told[key] = map[peer.ID]*told{}
	}
	t := m.told[key][author]
	if t == nil {
		t = &told{}
		m.told[key][author] = t
	}
	if u.asked(t.Used) {
		t.changed, t.ever = now, true
		// After a cut much is new that was not asked for now.
		if n := min(u.TotalRequests-t.TotalRequests, u.Minute); n > 0 {
			if t.minute == nil {
				t.minute = &quota.Window{}
			}
			t.minute.Add(now, n)
		}
	}
	t.Used = u
}
