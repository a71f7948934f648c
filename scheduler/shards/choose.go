package shards

import (
	"cmp"
	"slices"

	"relay/scheduler/ways"
)

// former is one problem being solved.
type former struct {
	p       *Problem
	pieces  *ways.Pieces
	n       int
	turns   float64
	members []*Member // By id.

	verdict ways.Verdict
	workers []*worker
	posts   []*post
	// Too slow in a group that was formed: those do not work, or do not coordinate.
	idle, demoted map[string]bool
}

// Bounds of the work. Beyond them the plan holds, but one that is closer or faster may
// be missed.
const (
	maxNear      = 16 // Coordinators that closer workers are looked for.
	maxFinalists = 4  // Groups that faster workers are looked for.
	maxFast      = 8  // Workers that are tried in each one's stead.
	maxSlow      = 4  // Peers that are left out because they are too slow.
)

// look takes in the rooms for a verdict.
func (f *former) look(v ways.Verdict) {
	f.verdict, f.workers, f.posts = v, nil, nil
	f.idle, f.demoted = make(map[string]bool), make(map[string]bool)
	for _, m := range f.members {
		if m.Barred != nil || m.Build.RPC == "" {
			continue
		}
		if sides := f.sidesOf(&m.Machine); len(sides) > 0 && m.NoWork == nil {
			f.workers = append(f.workers, newWorker(m, sides))
		}
		if f.mayCoordinate(m) {
			for _, at := range f.postsOf(m) {
				f.posts = append(f.posts, &at)
			}
		}
	}
}

func (f *former) mayCoordinate(m *Member) bool {
	return m.Holds && !m.ShardOnly && m.Barred == nil && m.Build.RPC != "" && m.Machine.Block(ways.Shards) == nil &&
		(f.p.Coordinator == "" || f.p.Coordinator == m.ID)
}

// choose is the group for the verdict; usable is false where every one of them would be
// too slow, of which it is the fastest then. nil is that there is none.
func (f *former) choose() (best *line, usable bool) {
	for range maxSlow {
		l := f.group()
		if l == nil {
			break
		}
		if best == nil || l.seconds() < best.seconds() {
			best = l
		}
		if f.p.Force || l.seconds()*LeastUseful <= 1 {
			return l, true
		}
		f.leaveOut(l)
	}
	return best, false
}

// leaveOut has the peer that a token waits for longest take no part.
func (f *former) leaveOut(l *line) {
	times := l.times()
	sum := func(n int) (t float64) {
		for _, s := range times[:n] {
			t += s
		}
		times = times[n:]
		return t
	}
	slowest := sum(1)
	for _, t := range times[len(times)-len(l.post.devices):] {
		slowest += t
	}
	var slow *worker
	for i := range l.slots {
		s := &l.slots[i]
		if t := sum(len(s.devices())) + f.turns*f.rtt(l.post.Member, s.Member); t > slowest {
			slowest, slow = t, s.worker
		}
	}
	if slow == nil {
		f.demoted[l.post.ID] = true
	} else {
		f.idle[slow.ID] = true
	}
}

// group is the one of the fewest peers, of these the closest, of these the fastest.
func (f *former) group() *line {
	var found []*line
	fewest := len(f.workers)
	for _, at := range f.posts {
		if f.demoted[at.ID] {
			continue
		}
		l := &line{f: f, post: at}
		if !l.recruit(fewest) {
			continue
		}
		if len(l.slots) < fewest {
			fewest, found = len(l.slots), found[:0]
		}
		found = append(found, l)
	}
	// The nearest that a group could be is what its coordinator's nearest workers are.
	nearest := make(map[*line]float64, len(found))
	for _, l := range found {
		for _, w := range l.near()[:fewest] {
			nearest[l] += w.rtt
		}
	}
	slices.SortStableFunc(found, func(a, b *line) int { return cmp.Compare(nearest[a], nearest[b]) })
	if len(found) > maxNear {
		found = found[:maxNear]
	}
	for _, l := range found {
		l.comeCloser()
	}
	slices.SortStableFunc(found, func(a, b *line) int { return cmp.Compare(a.rtt, b.rtt) })
	for i, l := range found {
		if !alike(l.rtt, found[0].rtt) {
			found = found[:i]
			break
		}
		l.split()
	}
	if len(found) == 0 {
		return nil
	}
	least := found[0].rtt
	if len(found) > maxFinalists {
		slices.SortStableFunc(found, func(a, b *line) int { return cmp.Compare(a.seconds(), b.seconds()) })
		found = found[:maxFinalists]
		slices.SortStableFunc(found, func(a, b *line) int { return cmp.Compare(a.rtt, b.rtt) })
	}
	var best *line
	for _, l := range found {
		if l.hasten(least); best == nil || ways.Faster(best.seconds(), l.seconds()) {
			best = l
		}
	}
	return best
}

// alike says of round trips that they are as good as the least: differences within 10 %,
// or within what two peers on one home network may measure, are none.
func alike(rtt, least float64) bool {
	return !ways.Faster(rtt, least) || rtt-least <= ReferenceRTT.Seconds()
}

// rtt is the seconds of a round trip from one member to another.
func (f *former) rtt(from, to *Member) float64 {
	switch {
	case from.RTT[to.ID] > 0:
		return from.RTT[to.ID].Seconds()
	case to.RTT[from.ID] > 0:
		return to.RTT[from.ID].Seconds()
	}
	return ReferenceRTT.Seconds()
}

// neighbour is a worker and the seconds of a round trip to it.
type neighbour struct {
	*worker
	rtt float64
}

// near are the workers that could be in the line, the nearest first.
func (l *line) near() []neighbour {
	if l.nearest == nil {
		for _, w := range l.f.workers {
			if l.mayWork(w) {
				l.nearest = append(l.nearest, neighbour{w, l.f.rtt(l.post.Member, w.Member)})
			}
		}
		slices.SortStableFunc(l.nearest, func(a, b neighbour) int { return cmp.Compare(a.rtt, b.rtt) })
	}
	return l.nearest
}

func (l *line) mayWork(w *worker) bool {
	return w.Member != l.post.Member && w.Build == l.post.Build && !l.f.idle[w.ID] && (!w.ShardOnly || l.post.most > 0)
}

// has says whether a worker is in the line.
func (l *line) has(w *worker) bool {
	return slices.ContainsFunc(l.slots, func(s slot) bool { return s.worker == w })
}

// recruit fills the line with as few workers as hold the model with its coordinator, no
// more than so many: each time with the one that gets furthest, of these the one with the
// least to spare.
func (l *line) recruit(most int) bool {
	f := l.f
	end, at := f.n, 0
	if gpus := l.post.devices; len(gpus) > 0 {
		left := l.post.left
		end++
		for i := len(gpus) - 1; i >= 0; i-- {
			from := f.back(&gpus[i], l.post.least+1, end, left, inf)
			left = f.after(&gpus[i], left, from, end)
			end = from
		}
		if end > f.n {
			return false
		}
	}
	for at = min(l.post.most, end-1); at < end; {
		if len(l.slots) == most {
			return false
		}
		var best slot
		furthest, spare := at, 0.0
		for _, w := range f.workers {
			if !l.mayWork(w) || l.has(w) {
				continue
			}
			for i := range w.sides {
				to, room := f.reach(&w.sides[i], at, end)
				if to > furthest || to == furthest && best.worker != nil && room < spare {
					best, furthest, spare = slot{w, i}, to, room
				}
			}
		}
		if best.worker == nil {
			return false
		}
		l.slots, at = append(l.slots, best), furthest
	}
	l.measure()
	return l.lay(nil)
}

// reach is up to which unit a side takes layers, and the room that it has.
func (f *former) reach(s *side, at, end int) (to int, room float64) {
	left := s.left
	for i := range s.devices {
		d := &s.devices[i]
		room += float64(d.room)
		to := f.fill(d, at, end, left, inf)
		left = f.after(d, left, at, to)
		at = to
	}
	return at, room
}

func (l *line) measure() {
	l.rtt = 0
	for i := range l.slots {
		l.rtt += l.f.rtt(l.post.Member, l.slots[i].Member)
	}
}

// put has another worker take a slot where the line holds the model that way, too.
func (l *line) put(i int, w *worker) bool {
	was := l.slots[i]
	for at := range w.sides {
		if l.slots[i] = (slot{w, at}); l.lay(nil) {
			l.measure()
			return true
		}
	}
	l.slots[i] = was
	return false
}

// comeCloser has nearer workers take the places of those that are farther away.
func (l *line) comeCloser() {
	near := l.near()
	order := make([]int, len(l.slots)) // The farthest first.
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(l.f.rtt(l.post.Member, l.slots[b].Member), l.f.rtt(l.post.Member, l.slots[a].Member))
	})
	for _, i := range order {
		now := l.f.rtt(l.post.Member, l.slots[i].Member)
		for _, w := range near {
			if w.rtt >= now || !l.has(w.worker) && l.put(i, w.worker) {
				break
			}
		}
	}
}

// hasten has workers, and sides of them, that are faster and as near take the places of
// others, in a line that is split.
func (l *line) hasten(least float64) {
	fast := slices.Clone(l.near())
	slices.SortStableFunc(fast, func(a, b neighbour) int { return cmp.Compare(a.perByte, b.perByte) })
	if len(fast) > maxFast+len(l.slots) {
		fast = fast[:maxFast+len(l.slots)]
	}
	for i := range l.slots {
		for at := range l.slots[i].sides {
			l.try(i, slot{l.slots[i].worker, at}, least)
		}
		for _, w := range fast {
			for at := range w.sides {
				if !l.has(w.worker) {
					l.try(i, slot{w.worker, at}, least)
				}
			}
		}
	}
}

// try puts another that has a faster device in a slot where the line is really faster then,
// and as near.
func (l *line) try(i int, other slot, least float64) {
	here := &l.slots[i]
	if !ways.Faster(here.sides[here.at].fastest(), other.sides[other.at].fastest()) {
		return
	}
	was, now := l.slots[i], l.seconds()
	l.slots[i] = other
	if l.measure(); alike(l.rtt, least) && l.split() && ways.Faster(now, l.seconds()) {
		return
	}
	l.slots[i] = was
	l.measure()
	l.split()
}
