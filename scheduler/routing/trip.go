package routing

import "time"

// Trip is one request on its way at a replica.
type Trip struct {
	book    *Book
	model   *model
	replica *replica
	want    Want
	work    float64
	falls   uint64 // Of the replica, when the trip began.
	heard   bool   // It has said something.
	over    bool
}

// End is how a trip ended.
type End int

// The ends.
const (
	// Served: the replica did its part.
	Served End = iota
	// Refused: it is full.
	Refused
	// Failed: it did not answer, or not to the end.
	Failed
	// Dropped: the client went away, or the answer went on elsewhere for reasons of the
	// mesh; that says nothing of the replica.
	Dropped
	// NotAsked: the request did not go there after all.
	NotAsked
)

// Heard takes how busy the replica says it is, this request included.
func (t *Trip) Heard(l Load, now time.Time) {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	t.heard = true
	k := t.replica
	k.others, k.slots, k.heard = float64(max(0, l.Running+l.Waiting-k.sent)), max(0, l.Slots), now
}

// Done ends the trip; only the first call counts. chance is any number: by it entrances
// that saw the same failure ask again at different times.
func (t *Trip) Done(end End, now time.Time, chance uint64) {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	k := t.replica
	k.sent -= t.want.takes()
	if end != Served && end != Dropped {
		t.model.memory.missed(&t.want, k.number)
	}
	if end == NotAsked || end == Refused || end == Failed && !t.heard { // It did nothing for it.
		k.work, k.worked = max(0, k.workAt(now)-t.work), now
	}
	switch end {
	case Served:
		k.failures, k.restUntil, k.fullUntil = 0, time.Time{}, time.Time{}
	case Refused:
		k.fullUntil = now.Add(fullFor)
	case Failed:
		if t.falls != k.falls {
			return // It fell with others, which was counted.
		}
		k.falls++
		d := rest
		for range min(k.failures, 10) {
			d = min(2*d, longRest)
		}
		k.failures++
		k.restUntil = now.Add(d + time.Duration(portion(chance)*float64(d)/2))
	}
}
