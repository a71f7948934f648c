package p2p

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
)

// A member that cannot be reached is dialled again after a pause that doubles
// from firstRedial to lastRedial, a quarter more or less: less than four seconds, so
// that peers find each other soon after however long a cut. Two that are alone, and
// whose dials both began just before it ended, take longest: 5.6 s in 2,000 cuts on
// the simulated network, one in 400 above 5. What it
// costs, dialling included, for as long as a member is absent: 1.6 kB/s, or 1.2
// packets, for each of its addresses by QUIC (on the simulated network), and three
// packets every eight seconds for one by TCP. Where machines of its own network are
// absent, nobody answers for their addresses, and nothing is sent.
const (
	firstRedial = time.Second
	lastRedial  = 3 * time.Second
	// hurriedWithin spreads the dials of all who are tried at once.
	hurriedWithin = 300 * time.Millisecond
)

// redial is when a member is dialled again. Its zero value is at once.
type redial struct {
	next    time.Time
	pause   time.Duration
	failed  time.Time // When it was last dialled in vain.
	began   time.Time // When the dial began that runs, or ran last.
	running bool
	hurried bool // The dial that runs is to be followed by another one at once.
}

// dial tries a member once. The lock must be held.
func (l *links) dial(ctx context.Context, id peer.ID, k *link, dials *sync.WaitGroup) {
	k.redial.began, k.redial.running = time.Now(), true
	dials.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
		defer cancel()
		shut, err := l.connect(ctx, id, k)
		l.mu.Lock()
		defer l.mu.Unlock()
		hurried := k.redial.hurried
		k.redial.running, k.redial.hurried = false, false
		if err != nil {
			k.later(shut)
			if hurried {
				k.redial.next = time.Now()
			}
			l.n.log.Debug("member not reached", "peer", short(id), "error", err)
		}
		l.wake()
	})
}

// later puts the next dial off, longer each time.
func (k *link) later(shut bool) {
	k.miss(shut)
	r := &k.redial
	r.failed = time.Now()
	r.pause = min(max(2*r.pause, firstRedial), lastRedial)
	r.next = r.failed.Add(r.pause*3/4 + rand.N(r.pause/2))
}

// dueDial says whether it is time to dial a member: one that others hear is not
// waited for long.
func (k *link) dueDial(now time.Time, at time.Duration) bool {
	r := &k.redial
	return !r.running &&
		(!now.Before(r.next) || k.told.State(at) == liveness.Alive && now.Sub(r.failed) >= firstRedial)
}

// hurry has those tried who are away, since one that was gone is back: what kept
// it away, a cut, may have kept them away as well. A dial that runs goes on: it is
// told by nothing from one that only takes long. The lock must be held.
func (l *links) hurry(now time.Time) {
	for id, k := range l.members {
		r := &k.redial
		if r.running {
			r.hurried = true
			continue
		}
		if l.isLinked(id) {
			continue
		}
		soon := r.began.Add(firstRedial)
		if soon.Before(now) {
			soon = now
		}
		if soon = soon.Add(rand.N(hurriedWithin)); soon.Before(r.next) {
			r.next = soon
		}
	}
}

// miss notes that a member could not be reached, and whether others heard it all
// the while.
func (k *link) miss(shut bool) {
	k.failed = true
	if shut {
		k.missed = time.Now()
	}
}
