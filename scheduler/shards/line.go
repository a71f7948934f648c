package shards

import (
	"math"
	"sort"
)

var inf = math.Inf(1)

// slot is one worker's place in the line.
type slot struct {
	*worker
	at int // Which of its sides.
}

func (s *slot) devices() []device { return s.sides[s.at].devices }

// line is a group with its devices in the order of the layers: the coordinator's RAM, the
// workers' devices, the coordinator's GPUs.
type line struct {
	f       *former
	post    *post
	slots   []slot
	rtt     float64 // Seconds to all workers together.
	takes   []int   // Layers by device, the output layer counted with none but a GPU.
	nearest []neighbour
}

// least is how many of the first layers the coordinator keeps at the least.
func (l *line) least() int {
	for _, s := range l.slots {
		if s.ShardOnly {
			return max(1, l.post.least)
		}
	}
	return l.post.least
}

// size is how many devices there are.
func (l *line) size() int {
	n := 1 + len(l.post.devices)
	for i := range l.slots {
		n += len(l.slots[i].devices())
	}
	return n
}

// lay gives each device in turn as many layers as go there, in no more than so many
// seconds for each token (nil is any time), and says whether that is all of them. One
// that begins later in the model never ends earlier, so that nothing else would do
// where this does not.
func (l *line) lay(limits []float64) bool {
	f, many := l.f, len(l.slots)
	least := l.least()
	if least > l.post.most || least+many > f.n {
		return false
	}
	size := l.size()
	if cap(l.takes) < size {
		l.takes = make([]int, size)
	}
	l.takes = l.takes[:size]
	limit := func(i int) float64 {
		if limits == nil {
			return inf
		}
		return limits[i]
	}

	end, left := f.n, l.post.left
	if gpus := l.post.devices; len(gpus) > 0 {
		end = f.n + 1
		for i := len(gpus) - 1; i >= 0; i-- {
			at := size - len(gpus) + i
			from := f.back(&gpus[i], least+many, end, left, limit(at))
			l.takes[at] = end - from
			left = f.after(&gpus[i], left, from, end)
			end = from
		}
		if end == f.n+1 {
			return false
		}
	}

	most := min(l.post.most, end-many)
	first := least - 1 + sort.Search(most-least+1, func(i int) bool { return l.inRAM(least+i) > limit(0) })
	if first < least {
		return false
	}
	l.takes[0] = first

	at, d := first, 1
	for i := range l.slots {
		from, side := at, &l.slots[i].sides[l.slots[i].at]
		left := side.left
		for j := range side.devices {
			to := f.fill(&side.devices[j], at, end-(many-1-i), left, limit(d))
			l.takes[d] = to - at
			left = f.after(&side.devices[j], left, at, to)
			at = to
			d++
		}
		if at == from {
			return false
		}
	}
	return at == end
}

// inRAM is how many seconds of each token the coordinator's RAM takes with so many of the
// first layers.
func (l *line) inRAM(first int) float64 {
	bytes := l.f.pieces.Read(0, first)
	if len(l.post.devices) == 0 {
		bytes += l.f.pieces.Read(l.f.n, l.f.n+1)
	}
	return bytes * l.post.perByte
}

// times are the seconds of each token, by device.
func (l *line) times() []float64 {
	times := make([]float64, 0, len(l.takes))
	times = append(times, l.inRAM(l.takes[0]))
	at := l.takes[0]
	through := func(devices []device) {
		for i := range devices {
			to := at + l.takes[len(times)]
			times = append(times, l.f.pieces.Read(at, to)*devices[i].perByte)
			at = to
		}
	}
	for i := range l.slots {
		through(l.slots[i].devices())
	}
	through(l.post.devices)
	return times
}

// seconds are those of each token, the network's included.
func (l *line) seconds() (sum float64) {
	for _, t := range l.times() {
		sum += t
	}
	return sum + l.f.turns*l.rtt
}

// split shares the layers out so that the slowest device is as fast as can be, then the
// next slowest where the others do not depend on it, and so on. It is false where the
// line does not hold the model.
func (l *line) split() bool {
	if !l.lay(nil) {
		return false
	}
	size := l.size()
	limits, open := make([]float64, size), make([]bool, size)
	for i := range open {
		open[i] = true
	}
	for range maxRounds {
		high, low := 0.0, 0.0
		for i, t := range l.times() {
			if open[i] {
				high = max(high, t)
			}
		}
		try := func(limit float64) bool {
			for i := range limits {
				if open[i] {
					limits[i] = limit
				}
			}
			return l.lay(limits)
		}
		for range maxSteps {
			if high-low <= high*precision {
				break
			}
			if mid := (low + high) / 2; try(mid) {
				high = mid
			} else {
				low = mid
			}
		}
		if !try(high) || !l.settle(limits, open) {
			break
		}
	}
	return l.lay(limits)
}

// What ends the search for a split.
const (
	maxRounds = 4
	maxSteps  = 20
	precision = 1e-3
)

// settle closes the devices that cannot be faster without another one being slower than
// the limit; it is false where there is none, or no other is left.
func (l *line) settle(limits []float64, open []bool) bool {
	settled, more := false, false
	for i, t := range l.times() {
		if !open[i] || t == 0 {
			continue
		}
		was := limits[i]
		limits[i] = t * (1 - precision)
		if l.lay(limits) {
			limits[i], more = was, true
		} else {
			limits[i], open[i], settled = t, false, true
		}
	}
	return settled && more
}

// fill is up to which unit a device takes layers from one unit on, to an end at the most.
func (f *former) fill(d *device, from, end int, left uint64, limit float64) int {
	room := f.room(d, left)
	return from - 1 + sort.Search(end-from+1, func(i int) bool {
		return i > 0 && (f.pieces.Memory(from, from+i) > room || f.pieces.Read(from, from+i)*d.perByte > limit)
	})
}

// back is from which unit on a device takes those before an end, from one unit on at the
// most.
func (f *former) back(d *device, from, end int, left uint64, limit float64) int {
	room := f.room(d, left)
	return from + sort.Search(end-from, func(i int) bool {
		return f.pieces.Memory(from+i, end) <= room && f.pieces.Read(from+i, end)*d.perByte <= limit
	})
}

func (f *former) room(d *device, left uint64) uint64 {
	if d.shared {
		return min(d.room, left-min(left, f.pieces.Compute()))
	}
	return d.room
}

// after is what is left of host memory after a device took the units from one to before
// another.
func (f *former) after(d *device, left uint64, from, to int) uint64 {
	if !d.shared || from == to {
		return left
	}
	return left - f.pieces.Memory(from, to) - f.pieces.Compute()
}
