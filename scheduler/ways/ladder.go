package ways

import (
	"cmp"
	"fmt"
	"slices"
)

// noCapacity is the reason of a way that does not fit; it is of the closed list in
// scheduler.
const noCapacity = "no_capacity"

// kinds are the rungs that one machine has by itself, in their order.
var kinds = [...]Kind{OneGPU, GPUs, Hybrid, CPU}

// Ladder is all rungs that one machine has by itself, always, in the order of the
// ladder. Shards is none of them: that takes several.
func Ladder(s Shape, m Machine) []Rung { return Of(s).Ladder(&m) }

// Best is the fastest way by predicted decode, and the upper one on the ladder
// where differences are within 10 %, whose verdict is at most worst. No kind that is
// blocked is taken. It makes no text.
func Best(s Shape, m Machine, worst Verdict) (Way, Verdict, bool) { return Of(s).Best(&m, worst) }

// Ladder is the function of that name for this shape.
func (p *Pieces) Ladder(m *Machine) []Rung {
	var rungs []Rung
	for _, k := range kinds {
		r := Rung{Way: Way{Kind: k}, Verdict: Never}
		if w, v, ok := p.lowest(k, m, Fits, Later); ok {
			r.Way, r.Verdict = w, v
			r.Parts = slices.Clone(w.Parts)
		}
		switch r.Verdict {
		case Fits:
			r.Text = takes(&r.Way)
		case Evicts:
			r = Unloading(r.Way)
		default:
			r.Reason, r.Text = noCapacity, p.why(&r, m)
		}
		if b := m.Block(k); b != nil && r.Verdict != Never {
			r.Verdict, r.Reason, r.Text = Later, b.Reason, cmp.Or(b.Text, "it failed there")
			if b.Parked {
				r.Verdict = Never
			}
		}
		rungs = append(rungs, r)
	}
	return rungs
}

// Unloading is the rung of a way that fits once idle models are unloaded.
func Unloading(w Way) Rung {
	return Rung{Way: w, Verdict: Evicts, Text: takes(&w) + ", once idle models are unloaded"}
}

// Best is the function of that name for this shape.
func (p *Pieces) Best(m *Machine, worst Verdict) (Way, Verdict, bool) {
	return p.best(m, Fits, worst)
}

// BestUnloading is the best way where idle models are unloaded, whether there is one
// without that or not.
func (p *Pieces) BestUnloading(m *Machine) (Way, bool) {
	w, _, ok := p.best(m, Evicts, Evicts)
	return w, ok
}

// best takes each kind of way with the least verdict that it has of those from least to
// worst.
func (p *Pieces) best(m *Machine, least, worst Verdict) (Way, Verdict, bool) {
	var best Way
	var parts []Part
	verdict, found := Never, false
	for _, k := range kinds {
		if len(m.GPUs) == 0 && k != CPU || m.Block(k) != nil || found && !p.mayBeat(&best, k, m) {
			continue
		}
		w, v, ok := p.lowest(k, m, least, worst)
		if ok && (!found || beats(w.Decode, &best)) {
			parts = append(parts[:0], w.Parts...)
			best, verdict, found = w, v, true
			best.Parts = parts
		}
	}
	return best, verdict, found
}

// Blocked says that all kinds of way that the model could ever go on a machine are
// blocked, and by what: the one that is nearest to passing. ok is false where one is
// not, or there is none.
func (p *Pieces) Blocked(m *Machine) (why Block, ok bool) {
	if len(m.Blocked) == 0 {
		return why, false
	}
	for _, k := range kinds {
		if _, _, could := p.lowest(k, m, Fits, Later); !could {
			continue
		}
		b := m.Block(k)
		if b == nil {
			return Block{}, false
		}
		if !ok || why.Parked && !b.Parked {
			why, ok = *b, true
		}
	}
	return why, ok
}

// beats says whether a way further down on the ladder is taken at that speed. It has
// to be really faster; but memory of a GPU is taken beside RAM only where that is
// really faster than RAM alone.
func beats(decode float64, upper *Way) bool {
	return Faster(decode, upper.Decode) || upper.Kind == Hybrid && !Faster(upper.Decode, decode)
}

// mayBeat says whether a kind of way further down could be taken before one: by what
// was measured, or if everything lay on the fastest of its devices.
func (p *Pieces) mayBeat(upper *Way, k Kind, m *Machine) bool {
	if slices.ContainsFunc(m.Seen, func(s Seen) bool { return s.Kind == k }) {
		return true
	}
	fastest, _, _ := rates(m, &m.Host)
	for i := range m.GPUs {
		if decode, _, _ := rates(m, &m.GPUs[i]); k != CPU {
			fastest = max(fastest, decode)
		}
	}
	return beats(perSecond(p.read(0, p.n+1, 0)/fastest), upper)
}

// lowest is a kind of way with the best verdict that it has, from least to worst.
func (p *Pieces) lowest(k Kind, m *Machine, least, worst Verdict) (Way, Verdict, bool) {
	for v := least; v <= min(worst, Later); v++ {
		if w, ok := p.try(k, m, v); ok {
			return w, v, true
		}
	}
	return Way{}, Never, false
}

// takes says what a way takes where.
func takes(w *Way) string {
	var on []string
	for i, part := range w.Parts {
		if i < len(w.Parts)-1 {
			on = append(on, AtLeast(part.Bytes)+" on "+part.Device)
		} else {
			on = append(on, AtLeast(part.Bytes)+" in "+part.Device)
		}
	}
	return "takes " + List(on)
}

// why says what a rung lacks that does not fit now. The first device that is in the way
// is named: those of a way that would fit later, else the roomiest.
func (p *Pieces) why(r *Rung, m *Machine) string {
	switch {
	case p.err != nil:
		return "what it takes is not known: " + p.err.Error()
	case r.Verdict == Later:
		return p.whyLater(r, m)
	case r.Kind == CPU:
		return lacksInAll(&m.Host, p.OnCPU(m).Parts[0].Bytes)
	case len(m.GPUs) == 0:
		return "it has no GPU"
	case r.Kind == GPUs && len(m.GPUs) == 1:
		return "it has one GPU"
	}
	return p.whyNever(r.Kind, m)
}

func (p *Pieces) whyLater(r *Rung, m *Machine) string {
	var unified []string
	for i, part := range r.Parts {
		text := ""
		if at := m.gpu(part.Device); at >= 0 && i < len(r.Parts)-1 {
			text = lacksNow(&m.GPUs[at], part.Bytes)
			if m.GPUs[at].Unified {
				unified = append(unified, part.Device)
			}
		} else if text = lacksNow(&m.Host, m.inHost(r.Parts)); text != "" {
			text += noneOfTheirOwn(unified)
		}
		if text != "" {
			return text
		}
	}
	// Each part would fit where it is; the way as a whole was cut for what is lent.
	return "its devices are in use: " + takes(&r.Way)
}

func (p *Pieces) whyNever(k Kind, m *Machine) string {
	var known []int
	for i := range m.GPUs {
		if m.GPUs[i].Known {
			known = append(known, i)
		}
	}
	if len(known) == 0 {
		return fmt.Sprintf("the memory of %s is not known", List(gpuIDs(m, nil)))
	}
	roomiest := slices.MaxFunc(known, func(a, b int) int {
		return cmp.Or(cmp.Compare(m.GPUs[a].Lent, m.GPUs[b].Lent), cmp.Compare(b, a))
	})
	// Of what lies on GPUs at least so much is host memory: what the others do not hold.
	var unified []string
	own := uint64(0)
	for _, i := range known {
		if g := &m.GPUs[i]; g.Unified {
			unified = append(unified, g.ID)
		} else {
			own += g.Lent
		}
	}
	shared := func(bytes uint64) uint64 {
		if unified == nil {
			return 0
		}
		return bytes - min(bytes, own)
	}
	ram := p.inRAM(0, 0)
	switch k {
	case OneGPU:
		w := p.allOn(m, roomiest)
		if text := lacksInAll(&m.GPUs[roomiest], w.Parts[0].Bytes); text != "" {
			return text
		}
		if ram = m.inHost(w.Parts); !m.GPUs[roomiest].Unified {
			unified = nil
		}
	case GPUs:
		if len(known) == 1 {
			return fmt.Sprintf("of its GPUs only the memory of %s is known", m.GPUs[known[0]].ID)
		}
		need, lent := p.onGPU(0, p.n+1, 0)+uint64(len(known))*p.shape.Compute, uint64(0)
		for _, i := range known {
			lent += m.GPUs[i].Lent
		}
		if need > lent {
			return fmt.Sprintf("needs %s, %s lend %s in all", AtLeast(need), List(gpuIDs(m, known)), AtMost(lent))
		}
		ram += shared(p.onGPU(0, p.n+1, 0) + 2*p.shape.Compute)
		if _, ok := m.Host.Room(Later); ok && ram <= m.Host.Lent {
			return fmt.Sprintf("needs %s, which whole layers do not share out over the %s that %s lend", AtLeast(need), AtMost(lent), List(gpuIDs(m, known)))
		}
	case Hybrid:
		lent, _ := m.Host.Room(Later)
		p.byRoom(m, Later, lent)
		if p.depth() == 0 {
			return "it has no layers to leave in RAM"
		}
		first, cpuExperts := p.step(p.depth())
		if least := p.onGPU(first, p.n+1, cpuExperts) + p.shape.Compute; least > m.GPUs[roomiest].Lent {
			return "least on a GPU " + lacksInAll(&m.GPUs[roomiest], least)
		}
		ram += shared(p.onGPU(0, p.n+1, 0) + 2*p.shape.Compute)
		for k := range p.order { // What stays in RAM at the least.
			for t := 1; t <= p.depth(); t++ {
				if p.holds(k+1, t) {
					ram = p.inRAM(p.step(t))
					break
				}
			}
		}
	}
	if text := lacksInAll(&m.Host, ram); text != "" {
		return text + noneOfTheirOwn(unified)
	}
	if len(m.Seen) == 0 {
		return "whole layers do not share out over its memory"
	}
	return "it took more than was predicted when it last ran there"
}

// noneOfTheirOwn says of GPUs why host memory has to do for what lies on them, too.
func noneOfTheirOwn(gpus []string) string {
	switch len(gpus) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" (%s has no memory of its own)", gpus[0])
	}
	return fmt.Sprintf(" (%s have no memory of their own)", List(gpus))
}

// lacksInAll says that what a device lends does not do, "" where it does.
func lacksInAll(d *Device, need uint64) string {
	switch {
	case !d.Known:
		return fmt.Sprintf("the memory of %s is not known", d.name())
	case d.Lent == 0:
		return d.name() + " lends no memory"
	case need > d.Lent:
		return fmt.Sprintf("needs %s, %s lends %s in all", AtLeast(need), d.name(), AtMost(d.Lent))
	}
	return ""
}

// lacksNow says that what is free of a device does not do, "" where it does.
func lacksNow(d *Device, need uint64) string {
	switch {
	case d.Busy != "":
		return fmt.Sprintf("nothing new goes to %s for now: %s", d.name(), d.Busy)
	case need > d.Free:
		return fmt.Sprintf("needs %s, %s has %s free of the %s it lends", AtLeast(need), d.name(), AtMost(d.Free), AtMost(d.Lent))
	}
	return ""
}

func (d *Device) name() string {
	if d.ID == "" {
		return HostID
	}
	return d.ID
}

// gpuIDs names the GPUs at those places, all for none.
func gpuIDs(m *Machine, at []int) []string {
	var ids []string
	for i := range m.GPUs {
		if at == nil || slices.Contains(at, i) {
			ids = append(ids, m.GPUs[i].ID)
		}
	}
	return ids
}
