package routing

import "time"

// Book is what one entrance knows of the replicas beside what the mesh says. All its
// methods may be called from any goroutine.
type Book struct{}

// New makes a book of nothing.
func New() *Book { return &Book{} }

// Pick chooses among the replicas of the model uid and counts the request on the one that
// it chooses, until the trip's Done; the trip is nil where there is none to choose.
func (b *Book) Pick(uid string, want Want, list []Replica, now time.Time) (Decision, *Trip) {
	return Decision{Pick: -1}, nil
}

// Keep drops what is kept of models that are no more.
func (b *Book) Keep(alive func(uid string) bool) {}

// Trip is one request on its way at a replica.
type Trip struct{}

// Heard takes how busy the replica says it is.
func (t *Trip) Heard(l Load, now time.Time) {}

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
	// Dropped: the client went away; that says nothing of the replica.
	Dropped
)

// Done ends the trip; only the first call counts. chance is any number from 0 to 1: by
// it entrances that saw the same failure ask again at different times.
func (t *Trip) Done(end End, now time.Time, chance float64) {}
