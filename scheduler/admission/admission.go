package admission

import (
	"slices"
	"time"
)

// Request is one that asks for slots.
type Request struct {
	// Key is the id of the key that it came with: those of one key share its turns.
	Key string
	// Batch says that it gives way to those that are not.
	Batch bool
	// Continues says that somebody has a part of its answer and waits for more: it comes
	// before all of its class that do not, unless as many as there are slots wait so
	// already. Then it is as any other: who says this of all comes no sooner by it.
	Continues bool
	// Slots is how many it takes at a time; less than 1 counts as 1, more than it may as
	// many as it may.
	Slots int
	// Came is when it came, on the clock by which the queue is told the time. One that
	// asks again at another queue keeps its place among those who do so too.
	Came time.Duration
}

// Place is what a request has got.
type Place struct {
	request Request
	first   bool // It comes before others of its class.
	state   state
	moved   chan struct{}
	since   time.Duration // When it got its slots.
	was, is turn          // That of its key before, and by getting them.
}

type state int

const (
	waits state = iota
	runs
	isOut // It was put out, or left.
)

// Moved is closed once the place is no longer waiting.
func (p *Place) Moved() <-chan struct{} { return p.moved }

// Runs says whether the request has its slots. One that neither has them nor waits was
// put out, as the queue is full.
func (p *Place) Runs() bool { return p.state == runs }

// Waits says whether the request is in the queue.
func (p *Place) Waits() bool { return p.state == waits }

// Queue is who has the slots of one engine, and who waits.
type Queue struct {
	slots, most int
	taken       int
	waiting     int
	first       int    // How many of them come before others.
	turns       uint64 // To tell apart what happened at one time.
	keys        map[keyOf]*key
	running     map[*Place]bool
	hold        time.Duration // How long a request has its slots, of late; 0 before the first has left.
}

// keyOf names a key; nothing is known of one that has nothing.
type keyOf struct {
	batch bool
	id    string
}

type key struct {
	of    keyOf
	taken int // Slots.
	turn  turn
	queue []*Place // In order of coming; the first is next.
}

// turn is when a key last got slots or gave them back, or else when it came.
type turn struct {
	at  time.Duration
	nth uint64
}

// New makes the queue of an engine with so many slots, at least 1, for which most requests
// may wait.
func New(slots, most int) *Queue {
	return &Queue{slots: max(1, slots), most: max(0, most), keys: map[keyOf]*key{}, running: map[*Place]bool{}}
}

// Slots is how many there are.
func (q *Queue) Slots() int { return q.slots }

// Running is how many slots are taken.
func (q *Queue) Running() int { return q.taken }

// Waiting is how many requests wait.
func (q *Queue) Waiting() int { return q.waiting }

// Ask gives a request its slots, or has it wait until Moved; Leave must follow. Where too
// many wait, the last to have come of the key of which the most wait is put out, a batch
// one where there is any: that may be this one, or another.
func (q *Queue) Ask(r Request, now time.Duration) *Place {
	p := q.enter(r)
	q.admit(now)
	if q.waiting > q.most {
		q.putOut(p)
		q.admit(now) // Others may have waited for that one alone.
	}
	return p
}

// Try is Ask for whoever does not wait; ok says that the request has its slots.
func (q *Queue) Try(r Request, now time.Duration) (p *Place, ok bool) {
	p = q.enter(r)
	q.admit(now)
	if p.Runs() {
		return p, true
	}
	q.Leave(p, now)
	return nil, false
}

// Leave ends a request: its slots are given back, or it waits no more. It may be called
// again.
func (q *Queue) Leave(p *Place, now time.Duration) { q.leave(p, now, true) }

// Undo is Leave for a request that made no use of its slots: its key keeps its turn, and
// how long it had them says nothing of others.
func (q *Queue) Undo(p *Place, now time.Duration) { q.leave(p, now, false) }

func (q *Queue) leave(p *Place, now time.Duration, used bool) {
	k := q.keys[p.request.keyOf()]
	switch p.state {
	case isOut:
		return
	case waits:
		q.unqueue(k, p)
	case runs:
		n := q.take(p.request)
		q.taken -= n
		k.taken -= n
		delete(q.running, p)
		switch {
		case used:
			q.turned(k, now)
			q.learn(max(0, now-p.since))
		case k.turn == p.is:
			k.turn = p.was
		}
	}
	p.state = isOut
	q.forget(k)
	q.admit(now)
}

// Wait is about how long a request would wait that asked now, 0 where it would not or
// nobody can say yet.
func (q *Queue) Wait(r Request, now time.Duration) time.Duration {
	ahead, first := q.take(r), q.comesFirst(r)
	for of, k := range q.keys {
		if of.batch && !r.Batch {
			continue
		}
		for _, p := range k.queue {
			if p.first || !first || of.batch != r.Batch {
				ahead += q.take(p.request)
			}
		}
	}
	if ahead == q.take(r) && q.fits(r) {
		return 0
	}
	// What runs now may run longer than what has left.
	var age time.Duration
	for p := range q.running {
		age += max(0, now-p.since) / time.Duration(len(q.running))
	}
	return max(q.hold, age) * time.Duration(ahead) / time.Duration(q.May(r))
}

// May is how many slots a request may take at most: one of batch leaves one, where there
// are several.
func (q *Queue) May(r Request) int {
	if r.Batch {
		return max(1, q.slots-1)
	}
	return q.slots
}

// take is how many slots a request takes.
func (q *Queue) take(r Request) int { return min(max(1, r.Slots), q.May(r)) }

func (r Request) keyOf() keyOf { return keyOf{r.Batch, r.Key} }

// enter puts a request into the queue.
func (q *Queue) enter(r Request) *Place {
	k := q.keys[r.keyOf()]
	if k == nil {
		q.turns++
		k = &key{of: r.keyOf(), turn: turn{r.Came, q.turns}}
		q.keys[k.of] = k
	}
	p := &Place{request: r, first: q.comesFirst(r), moved: make(chan struct{})}
	i := len(k.queue)
	for i > 0 && p.before(k.queue[i-1]) {
		i--
	}
	k.queue = slices.Insert(k.queue, i, p)
	q.waiting++
	if p.first {
		q.first++
	}
	return p
}

// comesFirst says whether a request that asks now comes before others of its class.
func (q *Queue) comesFirst(r Request) bool { return r.Continues && q.first < q.slots }

// before says whether a request is served before another one of its key that came in sooner.
func (p *Place) before(o *Place) bool {
	if p.first != o.first {
		return p.first
	}
	return p.request.Came < o.request.Came
}

func (q *Queue) unqueue(k *key, p *Place) {
	i := slices.Index(k.queue, p)
	k.queue = slices.Delete(k.queue, i, i+1)
	q.waiting--
	if p.first {
		q.first--
	}
}

// forget drops a key that has nothing any more.
func (q *Queue) forget(k *key) {
	if k.taken == 0 && len(k.queue) == 0 {
		delete(q.keys, k.of)
	}
}

// admit gives slots to whoever is next, as long as there are enough.
func (q *Queue) admit(now time.Duration) {
	for {
		k := q.next()
		if k == nil {
			return
		}
		p := k.queue[0]
		if !q.fits(p.request) {
			return
		}
		q.unqueue(k, p)
		n := q.take(p.request)
		q.taken += n
		k.taken += n
		p.was = k.turn
		q.turned(k, now)
		p.is = k.turn
		q.running[p] = true
		p.state, p.since = runs, now
		close(p.moved)
	}
}

// turned notes that a key got slots or gave them back.
func (q *Queue) turned(k *key, now time.Duration) {
	q.turns++
	k.turn = turn{now, q.turns}
}

// fits says whether there are slots for a request that is next.
func (q *Queue) fits(r Request) bool { return q.within(r, q.taken) }

// within is fits where so many slots are taken.
func (q *Queue) within(r Request, taken int) bool {
	left := q.slots - taken - q.take(r)
	return left > 0 || left == 0 && (!r.Batch || q.slots == 1)
}

// next is the key whose turn it is, of those that wait; nil where there is none. One of
// batch passes those before it for which those that are not of batch leave too few slots,
// however long the rest of batch waits: else one that takes many would keep all others out
// for as long as others are served.
func (q *Queue) next() *key {
	normal := 0
	for of, k := range q.keys {
		if !of.batch {
			normal += k.taken
		}
	}
	var first *key
	for of, k := range q.keys {
		switch {
		case len(k.queue) == 0, of.batch && !q.within(k.queue[0].request, normal):
		case first == nil || k.before(first):
			first = k
		}
	}
	return first
}

func (k *key) before(o *key) bool {
	switch {
	case k.of.batch != o.of.batch:
		return o.of.batch
	case k.queue[0].first != o.queue[0].first:
		return k.queue[0].first
	case k.taken != o.taken:
		return k.taken < o.taken
	case k.turn.at != o.turn.at:
		return k.turn.at < o.turn.at
	}
	return k.turn.nth < o.turn.nth
}

// putOut ends the waiting of one request, as another one came.
func (q *Queue) putOut(came *Place) {
	var most *key
	for _, k := range q.keys {
		if len(k.queue) > 0 && (most == nil || k.sooner(most, came.request.keyOf())) {
			most = k
		}
	}
	p := most.queue[len(most.queue)-1]
	q.unqueue(most, p)
	p.state = isOut
	close(p.moved)
	q.forget(most)
}

// sooner says whether a request of one key is put out rather than of another. Where all is
// the same it is of the key of the one that came.
func (k *key) sooner(o *key, came keyOf) bool {
	switch {
	case k.of.batch != o.of.batch:
		return k.of.batch
	case len(k.queue) != len(o.queue):
		return len(k.queue) > len(o.queue)
	case k.of == came || o.of == came:
		return k.of == came
	}
	return o.before(k)
}

// learn takes in how long a request had its slots.
func (q *Queue) learn(held time.Duration) {
	if q.hold == 0 {
		q.hold = held
		return
	}
	q.hold += (held - q.hold) / 8
}
