package leases

import (
	"math/bits"
	"slices"
	"time"
)

const (
	// Most is the longest lease, in leaves: 64 MiB of the layout in use.
	Most = 64
	// first is the length of the lease of a holder whose speed is not known.
	first = 4
	// horizon is how long a lease should take: a slow holder never has much.
	horizon = 2 * time.Second
	// worth is how much sooner the end must come for a leaf to be taken over from
	// another holder: what that one has sent of it already comes in vain.
	worth = 250 * time.Millisecond
	// MaxWrong is how many wrong leaves a holder may send before it is asked no more.
	MaxWrong = 3
)

// Book keeps which leaves of one file are wanted, and under way from whom. It is
// not safe for concurrent use.
type Book struct {
	leaves  int
	size    float64 // bytes of a leaf
	start   int     // word at which looking for leaves begins
	open    Set     // wanted, not here
	busy    Set     // of those, under way
	holders map[string]*holder
}

type holder struct {
	has   Set
	sent  map[int]bool // wrong; never to be asked for again
	wrong int
	rate  float64 // bytes a second; 0 while not known
	lease *Lease
}

// Lease is leaves [From, To) under way from one holder, in order.
type Lease struct {
	From, To int
	// next is the first that has not come, moved is when last some of it did.
	next  int
	moved time.Duration
}

// New begins the book of a file with that many leaves of leafBytes each, of which
// want are wanted. start says where looking for leaves begins: pulls of one file
// that begin at different places soon have something for each other.
func New(leaves int, leafBytes int64, want Set, start int) *Book {
	return &Book{
		leaves: leaves, size: float64(leafBytes), start: start % max(1, len(want)),
		open: slices.Clone(want), busy: NewSet(leaves), holders: map[string]*holder{},
	}
}

// Left is how many leaves are wanted and not here.
func (b *Book) Left() int { return b.open.Count() }

// Open is a copy of the set of leaves that are wanted and not here.
func (b *Book) Open() Set { return slices.Clone(b.open) }

// Offer says what a holder has now; nil means all. It takes the place of what it
// had before.
func (b *Book) Offer(id string, has Set) {
	h := b.holders[id]
	if h == nil {
		h = &holder{sent: map[int]bool{}}
		b.holders[id] = h
	}
	h.has = NewSet(b.leaves)
	if has == nil {
		h.has.Fill(b.leaves)
	} else {
		copy(h.has, has)
	}
	for i := range h.sent {
		h.has.Remove(i)
	}
}

// Forget says that a holder has nothing any more.
func (b *Book) Forget(id string) {
	if h := b.holders[id]; h != nil {
		b.End(id)
		h.has = NewSet(b.leaves)
	}
}

// Useful says whether a holder has anything that is wanted.
func (b *Book) Useful(id string) bool {
	h := b.holders[id]
	if h == nil {
		return false
	}
	for w := range b.open {
		if b.open[w]&h.has[w] != 0 {
			return true
		}
	}
	return false
}

// Next is what a holder is to be asked for now, or nil when there is nothing. It
// ends the holder's earlier lease.
func (b *Book) Next(id string, now time.Duration) *Lease {
	h := b.holders[id]
	if h == nil {
		return nil
	}
	b.End(id)
	if l := b.fresh(h); l != nil {
		return b.grant(h, l, now)
	}
	if l := b.takeOver(h, now); l != nil {
		return b.grant(h, l, now)
	}
	return nil
}

func (b *Book) grant(h *holder, l *Lease, now time.Duration) *Lease {
	for i := l.From; i < l.To; i++ {
		b.busy.Add(i)
	}
	l.next, l.moved = l.From, now
	h.lease = l
	return l
}

// length is how many leaves a holder sends in the time of one lease.
func (b *Book) length(h *holder) int {
	if h.rate == 0 {
		return first
	}
	return min(max(1, int(h.rate*horizon.Seconds()/b.size)), Most)
}

// fresh finds leaves that nobody sends yet, those first that the fewest others
// have.
func (b *Book) fresh(h *holder) *Lease {
	best, fewest := -1, len(b.holders)+1
	for n := range b.open {
		w := (b.start + n) % len(b.open)
		free := b.open[w] &^ b.busy[w] & h.has[w]
		if free == 0 {
			continue
		}
		others := 0
		for _, o := range b.holders {
			if o != h && o.has[w]&free != 0 {
				others++
			}
		}
		if others < fewest {
			best, fewest = w, others
		}
		if others == 0 {
			break
		}
	}
	if best < 0 {
		return nil
	}
	free := b.open[best] &^ b.busy[best] & h.has[best]
	from := bits.TrailingZeros64(free)
	run := bits.TrailingZeros64(^(free >> from))
	from += best * 64
	return &Lease{From: from, To: from + min(run, b.length(h))}
}

// takeOver takes the end of what the slowest of the others has under way, if the
// last leaf comes sooner by that.
func (b *Book) takeOver(h *holder, now time.Duration) *Lease {
	var from *holder
	var longest time.Duration
	for _, o := range b.holders {
		if o == h || o.lease == nil || o.lease.next >= o.lease.To || !h.has.Has(o.lease.To-1) || !b.open.Has(o.lease.To-1) {
			continue
		}
		if left := b.left(o, now); left > longest {
			from, longest = o, left
		}
	}
	if from == nil {
		return nil
	}
	l := from.lease
	n := 1
	if share := h.rate / (h.rate + from.rate); share > 0 { // Not NaN.
		n = min(max(1, int(share*float64(l.To-l.next))), b.length(h))
	}
	for n > 1 && !b.run(h, l.To-n, l.To) {
		n--
	}
	if longest-b.took(h, n) < worth {
		return nil
	}
	taken := &Lease{From: l.To - n, To: l.To}
	l.To = max(taken.From, l.next+1) // The one that is coming may come twice: whoever is first.
	return taken
}

func (b *Book) run(h *holder, from, to int) bool {
	for i := from; i < to; i++ {
		if !h.has.Has(i) || !b.open.Has(i) {
			return false
		}
	}
	return true
}

// never is a time that is longer than any other.
const never = time.Duration(1 << 62)

// left is how long the rest of a holder's lease takes, at its speed and not
// counting what it is behind; whoever is silent for long never ends.
func (b *Book) left(h *holder, now time.Duration) time.Duration {
	silent := now - h.lease.moved
	if h.rate == 0 || silent > horizon {
		if silent < worth {
			return 0 // It has only just begun.
		}
		return never
	}
	return b.took(h, h.lease.To-h.lease.next)
}

// took is how long a holder takes for n leaves; one whose speed is not known is
// thought to be fast.
func (b *Book) took(h *holder, n int) time.Duration {
	if h.rate == 0 {
		return 0
	}
	return time.Duration(float64(n) * b.size / h.rate * float64(time.Second))
}

// Moved says that something came of a holder's lease, and how fast it comes of
// late, in bytes a second.
func (b *Book) Moved(id string, now time.Duration, rate float64) {
	h := b.holders[id]
	if h == nil {
		return
	}
	h.rate = rate
	if h.lease != nil {
		h.lease.moved = now
	}
}

// Here says that a leaf is here, wherever it came from.
func (b *Book) Here(i int) {
	b.open.Remove(i)
	b.busy.Remove(i)
}

// Passed says that the leaf of a holder's lease that was due has come, and whether
// the lease goes on with another. Here or Wrong is to follow for the leaf.
func (b *Book) Passed(id string) (more bool) {
	h := b.holders[id]
	if h == nil || h.lease == nil {
		return false
	}
	h.lease.next++
	return h.lease.next < h.lease.To
}

// Due is the leaf of a holder's lease that comes next; ok is false when the lease
// has ended, or its rest was taken over.
func (b *Book) Due(id string) (i int, ok bool) {
	h := b.holders[id]
	if h == nil || h.lease == nil || h.lease.next >= h.lease.To {
		return 0, false
	}
	return h.lease.next, true
}

// End ends a holder's lease: what has not come may be asked for elsewhere.
func (b *Book) End(id string) {
	h := b.holders[id]
	if h == nil || h.lease == nil {
		return
	}
	l := h.lease
	h.lease = nil
	for i := l.next; i < l.To; i++ {
		if !b.underWay(i) {
			b.busy.Remove(i)
		}
	}
}

// underWay says whether a leaf is in somebody's lease.
func (b *Book) underWay(i int) bool {
	for _, h := range b.holders {
		if h.lease != nil && h.lease.next <= i && i < h.lease.To {
			return true
		}
	}
	return false
}

// Lacks says that a holder does not have a leaf, whatever it offered.
func (b *Book) Lacks(id string, i int) {
	if h := b.holders[id]; h != nil {
		h.has.Remove(i)
	}
}

// Wrong says that a holder sent a wrong leaf: it may be asked for elsewhere, and
// not there again.
// drop says that it has sent too many, and is not to be asked for anything.
func (b *Book) Wrong(id string, i int) (drop bool) {
	h := b.holders[id]
	if h == nil {
		return true
	}
	h.sent[i] = true
	h.has.Remove(i)
	if !b.underWay(i) {
		b.busy.Remove(i)
	}
	h.wrong++
	return h.wrong >= MaxWrong
}
