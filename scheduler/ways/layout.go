package ways

import (
	"cmp"
	"slices"
)

// Room is what a device has for a way of that verdict, in bytes; ok is false where it
// may not be used.
func (d *Device) Room(v Verdict) (bytes uint64, ok bool) {
	switch {
	case !d.Known || d.Lent == 0 || d.Busy != "" && v < Later:
		return 0, false
	case v == Fits:
		return min(d.Free, d.Lent), true
	case v == Evicts:
		return min(min(d.Free, d.Lent)+min(d.Evictable, d.Lent), d.Lent), true
	}
	return d.Lent, true
}

// try lays a model out as one kind of way within what the devices have for that
// verdict. The parts of the way are good until the next try.
func (p *Pieces) try(k Kind, m *Machine, v Verdict) (Way, bool) {
	ram, ok := m.Host.Room(v)
	if !ok || p.err != nil {
		return Way{}, false
	}
	switch k {
	case CPU:
		return p.cpuOnly(m, ram)
	case OneGPU:
		return p.oneGPU(m, v, ram)
	case GPUs:
		return p.gpus(m, v, ram)
	case Hybrid:
		return p.hybrid(m, v, ram)
	}
	return Way{}, false
}

func (p *Pieces) cpuOnly(m *Machine, ram uint64) (Way, bool) {
	w := p.onCPU(m)
	return w, w.Parts[0].Bytes <= ram
}

func (p *Pieces) onCPU(m *Machine) Way {
	p.parts, p.where = append(p.parts[:0], Part{hostID(m), p.n + 1, max(1, p.cpu)}), p.where[:0]
	return p.finish(m, CPU, 0)
}

// OnCPU is the CPU way, whether the machine has the memory for it or not.
func (p *Pieces) OnCPU(m *Machine) Way {
	if p.err != nil {
		return Way{Kind: CPU, Parts: []Part{{hostID(m), 0, maxBytes}}}
	}
	w := p.onCPU(m)
	w.Parts = slices.Clone(w.Parts)
	return w
}

// oneGPU takes the fastest of the GPUs that hold it, of those the roomiest, of
// those the first.
func (p *Pieces) oneGPU(m *Machine, v Verdict, ram uint64) (Way, bool) {
	if len(m.GPUs) == 0 {
		return Way{}, false
	}
	best, bestRoom, speed := -1, uint64(0), 0.0
	for i := range m.GPUs {
		room, ok := m.GPUs[i].Room(v)
		if !ok {
			continue
		}
		w := p.allOn(m, i)
		if w.Parts[0].Bytes > room || m.inHost(w.Parts) > ram {
			continue
		}
		if best < 0 || Faster(w.Decode, speed) || !Faster(speed, w.Decode) && room > bestRoom {
			best, bestRoom, speed = i, room, w.Decode
		}
	}
	if best < 0 {
		return Way{}, false
	}
	return p.allOn(m, best), true
}

func (p *Pieces) allOn(m *Machine, gpu int) Way {
	p.where = append(p.where[:0], gpu)
	p.parts = append(p.parts[:0],
		Part{m.GPUs[gpu].ID, p.n + 1, p.onGPU(0, p.n+1, 0) + p.shape.Compute},
		Part{hostID(m), 0, p.inRAM(0, 0)})
	return p.finish(m, OneGPU, 0)
}

// gpus takes the fewest GPUs that hold it together, the roomiest.
func (p *Pieces) gpus(m *Machine, v Verdict, ram uint64) (Way, bool) {
	p.byRoom(m, v, ram)
	for k := 2; k <= len(p.order); k++ {
		if p.onGPU(0, p.n+1, 0) > p.together(k) {
			continue
		}
		if w, ok := p.over(m, GPUs, k, 0, ram); ok {
			return w, true
		}
	}
	return Way{}, false
}

// hybrid leaves as much on GPUs as goes there: on the roomiest, and on more of
// them where that is really faster.
func (p *Pieces) hybrid(m *Machine, v Verdict, ram uint64) (Way, bool) {
	p.byRoom(m, v, ram)
	best, found := Way{}, false
	for k := 1; k <= len(p.order); k++ {
		w, ok := p.deepest(m, k, ram)
		if ok && (!found || Faster(w.Decode, best.Decode)) {
			w.Parts = slices.Clone(w.Parts)
			best, found = w, true
		}
	}
	return best, found
}

// deepest is the first step towards RAM at which k GPUs hold the rest.
func (p *Pieces) deepest(m *Machine, k int, ram uint64) (Way, bool) {
	if len(m.Seen) == 0 && p.inRAM(0, 0)+p.all[p.n+1] > ram+p.together(k) {
		return Way{}, false // Nor does any cut of it.
	}
	low, high := 1, p.depth()+1 // The step is in [low, high).
	for end := high; low < high; {
		t := (low + high) / 2
		if p.holds(k, t) {
			high = t
		} else if low = t + 1; low == end {
			return Way{}, false
		}
	}
	// What was seen may be more than is there; then a few steps more may do.
	for t := low; t <= min(low+3, p.depth()); t++ {
		if w, ok := p.over(m, Hybrid, k, t, ram); ok {
			return w, true
		}
	}
	return Way{}, false
}

// byRoom finds the usable GPUs and puts the roomiest first; those that take of the
// host's memory come last, for they save none of it.
func (p *Pieces) byRoom(m *Machine, v Verdict, ram uint64) {
	p.ram, p.order, p.room, p.unified = ram, p.order[:0], p.room[:0], p.unified[:0]
	for i := range m.GPUs {
		room, ok := m.GPUs[i].Room(v)
		p.room = append(p.room, room)
		p.unified = append(p.unified, m.GPUs[i].Unified)
		if ok && room > p.shape.Compute {
			p.order = append(p.order, i)
		}
	}
	slices.SortStableFunc(p.order, func(a, b int) int {
		switch {
		case p.unified[a] == p.unified[b]:
			return cmp.Compare(p.room[b], p.room[a])
		case p.unified[a]:
			return +1
		}
		return -1
	})
}

// beside is what host memory has left for GPUs that take of it, beside what a step
// leaves there.
func (p *Pieces) beside(first, cpuExperts int) uint64 {
	return p.ram - min(p.ram, p.inRAM(first, cpuExperts))
}

// roomOf is what a GPU has where so much of host memory is left.
func (p *Pieces) roomOf(gpu int, left uint64) uint64 {
	if p.unified[gpu] {
		return min(p.room[gpu], left)
	}
	return p.room[gpu]
}

// after is what is left of host memory after a GPU was given the units from a to before
// b.
func (p *Pieces) after(left uint64, gpu, a, b, cpuExperts int) uint64 {
	if p.unified[gpu] && b > a {
		left -= p.onGPU(a, b, cpuExperts) + p.shape.Compute
	}
	return left
}

// together is what the k roomiest GPUs have beside their buffers, at the most.
func (p *Pieces) together(k int) (bytes uint64) {
	for _, i := range p.order[:k] {
		bytes += p.room[i] - p.shape.Compute
	}
	return bytes
}

// take marks the k roomiest GPUs, so that they can be gone through in their own
// order.
func (p *Pieces) take(k int) {
	p.taken = append(p.taken[:0], make([]bool, len(p.room))...)
	for _, i := range p.order[:k] {
		p.taken[i] = true
	}
}

// holds says whether the k roomiest GPUs, filled one after the other, hold what a
// step leaves to them.
func (p *Pieces) holds(k, t int) bool {
	first, cpuExperts := p.step(t)
	if p.onGPU(first, p.n+1, cpuExperts) > p.together(k) {
		return false
	}
	p.take(k)
	at, left := first, p.beside(first, cpuExperts)
	for i := range p.room {
		if p.taken[i] {
			end := p.fill(at, cpuExperts, p.roomOf(i, left))
			at, left = end, p.after(left, i, at, end, cpuExperts)
		}
	}
	return at == p.n+1
}

// fill is up to which unit a GPU of that room is filled from one unit on.
func (p *Pieces) fill(from, cpuExperts int, room uint64) int {
	if room < p.shape.Compute {
		return from
	}
	room -= p.shape.Compute
	low, high := from, p.n+1
	for low < high {
		if mid := (low + high + 1) / 2; p.onGPU(from, mid, cpuExperts) <= room {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// over lays what a step leaves to GPUs out over the k roomiest, in whole layers in
// proportion to their room; where whole layers do not come out that way, one GPU
// after the other is filled.
func (p *Pieces) over(m *Machine, kind Kind, k, t int, ram uint64) (Way, bool) {
	for _, even := range [...]bool{true, false} {
		if w, ok := p.cut(m, kind, k, t, ram, even); ok {
			return w, true
		}
	}
	return Way{}, false
}

func (p *Pieces) cut(m *Machine, kind Kind, k, t int, ram uint64, even bool) (Way, bool) {
	p.take(k)
	first, cpuExperts := p.step(t)
	total := float64(p.onGPU(first, p.n+1, cpuExperts))
	sum, passed, left := 0.0, 0.0, p.beside(first, cpuExperts)
	for i := range p.room {
		room := p.roomOf(i, left)
		if p.taken[i] = p.taken[i] && room > p.shape.Compute; p.taken[i] {
			sum += float64(room - p.shape.Compute)
		}
	}
	p.parts, p.where = p.parts[:0], p.where[:0]
	at := first
	for i := range p.room {
		if !p.taken[i] {
			continue
		}
		room := p.roomOf(i, left)
		if room <= p.shape.Compute {
			continue
		}
		passed += float64(room - p.shape.Compute)
		end := at
		if even {
			end = max(at, p.nearest(first, cpuExperts, total*passed/sum))
		}
		if !even || p.onGPU(at, end, cpuExperts) > room-p.shape.Compute {
			end = p.fill(at, cpuExperts, room)
		}
		if end > at {
			p.where = append(p.where, i)
			p.parts = append(p.parts, Part{m.GPUs[i].ID, end - at, p.onGPU(at, end, cpuExperts) + p.shape.Compute})
			left = p.after(left, i, at, end, cpuExperts)
			at = end
		}
	}
	if at <= p.n || kind == GPUs && len(p.parts) < 2 {
		return Way{}, false
	}
	p.parts = append(p.parts, Part{hostID(m), first, p.inRAM(first, cpuExperts)})
	w := p.finish(m, kind, cpuExperts)
	for i, gpu := range p.where {
		if w.Parts[i].Bytes > p.room[gpu] {
			return Way{}, false
		}
	}
	return w, m.inHost(w.Parts) <= ram
}

// inHost is what parts take of host memory, those on GPUs that have none of their
// own included.
func (m *Machine) inHost(parts []Part) uint64 {
	gpus, host := parts[:len(parts)-1], parts[len(parts)-1]
	bytes := host.Bytes
	for i := range m.GPUs {
		if !m.GPUs[i].Unified {
			continue
		}
		for _, part := range gpus {
			if part.Device == m.GPUs[i].ID {
				bytes += part.Bytes
			}
		}
	}
	return bytes
}

// nearest is the unit whose beginning is nearest to so many bytes behind first.
func (p *Pieces) nearest(first, cpuExperts int, bytes float64) int {
	low, high := first, p.n+1
	for low < high {
		if mid := (low + high + 1) / 2; float64(p.onGPU(first, mid, cpuExperts)) <= bytes {
			low = mid
		} else {
			high = mid - 1
		}
	}
	if low <= p.n && float64(p.onGPU(first, low+1, cpuExperts))-bytes < bytes-float64(p.onGPU(first, low, cpuExperts)) {
		low++
	}
	return low
}

// finish is the way whose parts have been laid out, corrected by what was seen,
// with its speed.
func (p *Pieces) finish(m *Machine, kind Kind, cpuExperts int) Way {
	w := Way{Kind: kind, Parts: p.parts, CPUExperts: cpuExperts}
	host := &p.parts[len(p.parts)-1]
	var t pace
	if kind == CPU {
		t.add(m, &m.Host, p.read(0, p.n+1, 0))
	} else {
		t.add(m, &m.Host, p.readInRAM(host.Layers, cpuExperts))
		at := host.Layers
		for i, gpu := range p.where {
			end := at + p.parts[i].Layers
			t.add(m, &m.GPUs[gpu], p.read(at, end, cpuExperts))
			at = end
		}
	}
	w.Decode, w.Prefill, w.Guessed = perSecond(t.decode), perSecond(t.prefill), t.guessed
	if seen := m.seen(&w); seen != nil {
		for i := range seen.Parts {
			if seen.Parts[i].Bytes > 0 {
				p.parts[i].Bytes = seen.Parts[i].Bytes
			}
		}
		if sane(seen.Decode, mostTokensPerSecond) {
			w.Decode, w.Guessed = seen.Decode, false
		}
		if sane(seen.Prefill, mostTokensPerSecond) {
			w.Prefill = seen.Prefill
		}
	}
	return w
}

// Decode is what is predicted now of a way that was laid out before, in tokens/s; 0
// where it is none of this shape on that machine.
func (p *Pieces) Decode(m *Machine, w *Way) float64 { return p.Predicted(m, *w).Decode }

// Predicted is a way that was laid out before with the speeds that are predicted of it
// now, those that were measured where the same split was seen; they are 0 where it is
// none of this shape on that machine. One machine says nothing about a group: a way of
// the kind Shards keeps its speeds (Together).
func (p *Pieces) Predicted(m *Machine, w Way) Way {
	if w.Kind == Shards {
		return w
	}
	now := p.again(m, &w)
	w.Decode, w.Prefill, w.Guessed = now.Decode, now.Prefill, now.Guessed
	return w
}

// again lays a way out as it was; one that does not go that way has no speed.
func (p *Pieces) again(m *Machine, w *Way) (none Way) {
	if p.err != nil {
		return none
	}
	if w.Kind == CPU { // How its layers are counted may not have been said.
		return p.onCPU(m)
	}
	layers, last := 0, len(w.Parts)-1
	p.parts, p.where = append(p.parts[:0], w.Parts...), p.where[:0]
	for i, part := range w.Parts {
		if part.Layers < 0 || part.Layers > p.n+1-layers {
			return none
		}
		layers += part.Layers
		if i < last {
			p.where = append(p.where, m.gpu(part.Device))
		}
	}
	if layers != p.n+1 || w.CPUExperts < 0 || w.CPUExperts > p.n || slices.Contains(p.where, -1) || w.Parts[last].Device != hostID(m) {
		return none
	}
	return p.finish(m, w.Kind, w.CPUExperts)
}

// seen is how the same way was seen: of the same kind, with as many layers on the
// same devices. Nil where it was not.
func (m *Machine) seen(w *Way) *Seen {
	for i := range m.Seen {
		s := &m.Seen[i]
		if s.Kind == w.Kind && s.CPUExperts == w.CPUExperts && slices.EqualFunc(s.Parts, w.Parts, func(a, b Part) bool {
			return a.Device == b.Device && a.Layers == b.Layers
		}) {
			return s
		}
	}
	return nil
}

func (m *Machine) gpu(id string) int {
	return slices.IndexFunc(m.GPUs, func(d Device) bool { return d.ID == id })
}

func hostID(m *Machine) string {
	if m.Host.ID == "" {
		return HostID
	}
	return m.Host.ID
}
