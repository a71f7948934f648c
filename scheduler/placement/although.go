package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"relay/scheduler/ways"
)

// although explains what runs on a CPU while a GPU is free: one of the same peer, or one
// of another that would be faster, which is said once.
func (p *planner) although(chosen []*seat) (texts []string) {
	var other *seat
	looked := false
	for _, c := range chosen {
		if c.way.Kind != ways.CPU {
			continue
		}
		clause := "runs on cpu although "
		if len(chosen) > 1 {
			clause = fmt.Sprintf("on %s it %s", c.peer.Name, clause)
		}
		if text := p.freeHere(c); text != "" {
			texts = append(texts, clause+text)
		}
		if !looked {
			other, looked = p.freeElsewhere(chosen), true
		}
		if other != nil && ways.Faster(other.way.Decode, p.pieces.Decode(&c.peer.Machine, &c.way)) {
			texts = append(texts, clause+other.isFree(c))
			other = nil
		}
	}
	return texts
}

// usable says whether something may be put on a GPU.
func usable(g *ways.Device) bool { return g.Known && g.Busy == "" && g.Free > 0 }

// freeHere is why a model does not run on a GPU of its peer that has room; "" where none
// has.
func (p *planner) freeHere(c *seat) string {
	var best *ways.Device
	for i := range c.peer.Machine.GPUs {
		if g := &c.peer.Machine.GPUs[i]; usable(g) && (best == nil || g.Free > best.Free) {
			best = g
		}
	}
	if best == nil {
		return ""
	}
	text := freeOn([]string{best.ID}, c.peer, best.Free, best.Lent)
	rungs := p.pieces.Ladder(&c.peer.Machine)
	for _, r := range rungs {
		if r.Verdict == ways.Fits && r.Kind != ways.CPU {
			return text + fmt.Sprintf("%.1f tokens/s are predicted there, %.1f on cpu", r.Decode, c.way.Decode)
		}
	}
	return text + rungs[0].Text
}

// freeElsewhere is the fastest way on GPUs of a peer that could run the model now and was
// not chosen; nil where there is none.
func (p *planner) freeElsewhere(chosen []*seat) (best *seat) {
	for i := range p.peers {
		q := &p.peers[i]
		isChosen := func(c *seat) bool { return c.peer == q }
		if q.Runs || slices.ContainsFunc(chosen, isChosen) || !slices.ContainsFunc(q.Machine.GPUs, func(g ways.Device) bool { return usable(&g) }) {
			continue
		}
		c, ok := p.seat(q, false)
		if ok && c.way.Kind != ways.CPU && (best == nil || cmp.Or(cmp.Compare(best.way.Decode, c.way.Decode), cmp.Compare(c.fetch, best.fetch), byRoom(&c, best)) < 0) {
			best = &c
		}
	}
	return best
}

// isFree says what is free where a model could run, and why it runs elsewhere.
func (s *seat) isFree(elsewhere *seat) string {
	free, lent := roomFor(s.peer, &s.way)
	text := fmt.Sprintf("%s%.1f tokens/s are predicted there", freeOn(s.gpus(), s.peer, free, lent), s.way.Decode)
	switch {
	case s.fetch == nobodyKnows:
		text += ", but it would have to fetch the file (how long that takes is not known)"
	case s.fetches():
		text += fmt.Sprintf(", but it would have to fetch the file (about %.0f s)", math.Ceil(s.fetch))
	case elsewhere.peer.Runs:
		text += fmt.Sprintf(", but it runs on %s already", elsewhere.peer.Name)
	case elsewhere.peer.Placed:
		text += fmt.Sprintf(", but it is placed on %s", elsewhere.peer.Name)
	case elsewhere.peer.Was:
		text += fmt.Sprintf(", but it ran on %s last", elsewhere.peer.Name)
	}
	return text
}

// freeOn begins the sentence part about GPUs of a peer that have room.
func freeOn(gpus []string, q *Peer, free, lent uint64) string {
	are := "is"
	if len(gpus) > 1 {
		are = "are"
	}
	if free < lent {
		are += " free in part"
	} else {
		are += " free"
	}
	return fmt.Sprintf("%s on %s %s: ", ways.List(gpus), q.Name, are)
}
