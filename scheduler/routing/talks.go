package routing

import (
	"cmp"
	"slices"
	"time"
)

const (
	// A talk counts as one that goes on for so many times as long after its last request as
	// it usually is from one to the next, within bounds. Which lasts that long is learnt
	// with a weight.
	pauses              = 10
	leastLive, mostLive = time.Second, 2 * time.Minute
	pauseWeight         = 1.0 / 16
	// sweeps is how often in that time those that do not are looked for.
	sweeps = 8
	// maxTalks bounds them. Of more than maxSeated the hashes alone are even enough.
	maxTalks, maxSeated = 1 << 12, 1 << 9
)

// talks are those that go on at one entrance.
//
// Each has a seat: the replica where other entrances, which know about the same talks,
// take it to be. Talks take seats in the order of their hashes, each the replica that it
// belongs to most among those that have not got their share. So it depends on which talks
// there are, and not on the order in which an entrance heard of them.
type talks struct {
	list  []talk // By order.
	swept time.Time
	// shorter is by how much a talk lives less than the most, by the pauses so far.
	shorter time.Duration
	seated  uint64 // For whom the seats were given; 0 is to be given anew.
}

type talk struct {
	order, key uint64
	last       time.Time
	by         *replica // Who answered last; nil is nobody yet.
	seat       *replica
}

// of finds a talk, or begins it.
func (t *talks) of(key uint64, now time.Time) *talk {
	if now.Sub(t.swept) >= t.live()/sweeps || len(t.list) >= maxTalks {
		t.forget(now)
	}
	order := mix(key + 1) // Other than any rank.
	at, found := slices.BinarySearchFunc(t.list, order, func(a talk, order uint64) int { return cmp.Compare(a.order, order) })
	if !found {
		t.list = slices.Insert(t.list, at, talk{order: order, key: key})
		t.seated = 0
	} else {
		t.shorter += time.Duration(float64(mostLive-pauses*now.Sub(t.list[at].last)-t.shorter) * pauseWeight)
	}
	t.list[at].last = now
	return &t.list[at]
}

// live is for how long after its last request a talk counts as one that goes on.
func (t *talks) live() time.Duration {
	return min(max(mostLive-t.shorter, leastLive), mostLive)
}

// forget drops the talks that do not go on, and all of them where there are too many.
func (t *talks) forget(now time.Time) {
	before, live := len(t.list), t.live()
	t.list = slices.DeleteFunc(t.list, func(a talk) bool {
		over := before >= maxTalks || now.Sub(a.last) > live
		if over {
			a.answeredBy(nil)
		}
		return over
	})
	t.swept = now
	if len(t.list) != before {
		t.seated = 0
	}
}

// answeredBy notes who answers now.
func (a *talk) answeredBy(r *replica) {
	if a.by != nil {
		a.by.talks--
	}
	if a.by = r; r != nil {
		r.talks++
	}
}

// seat gives every talk its seat among replicas, if that is to be done, and returns that
// of one of them: nil where there is none.
func (t *talks) seat(a *talk, among []*replica) *replica {
	if len(among) == 0 {
		return nil
	}
	if len(t.list) > maxSeated {
		return most(a.key, among)
	}
	sum := uint64(len(among))
	for _, r := range among {
		sum += r.hash
	}
	if sum != t.seated {
		t.seated = sum
		t.give(among)
	}
	return a.seat
}

func (t *talks) give(among []*replica) {
	share := (len(t.list) + len(among) - 1) / len(among)
	for _, r := range among {
		r.seats = 0
	}
	left := among
	for i := range t.list {
		a := &t.list[i]
		a.seat = most(a.key, left)
		if a.seat.seats++; a.seat.seats == share {
			left = slices.DeleteFunc(slices.Clone(left), func(r *replica) bool { return r == a.seat })
		}
	}
}

// most is whom a key belongs to most.
func most(key uint64, among []*replica) (best *replica) {
	top := uint64(0)
	for _, r := range among {
		if n := rank(key, r.hash); best == nil || n > top {
			best, top = r, n
		}
	}
	return best
}
