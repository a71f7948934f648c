package routing

import (
	"cmp"
	"math"
)

// Verdict is what was found of one replica.
type Verdict struct {
	Peer string
	// Out is why it was not asked; "" where it could be.
	Out Out
	// Wait, Read, Write and Way are seconds: for a slot, for what of the prompt it probably
	// has not read yet, for an answer of usual length, and there and back.
	Wait, Read, Write, Way float64
}

// Seconds is when the answer is expected to be there.
func (v Verdict) Seconds() float64 { return v.Wait + v.Read + v.Write + v.Way }

// Decision is who is asked, and why.
type Decision struct {
	// Pick is the index of the replica among those that were listed; -1 where there is none.
	Pick int
	// Each are the verdicts on all of them, in the order in which they were listed.
	Each []Verdict
}

const (
	// near is what makes no difference, in seconds.
	near = 0.1
	// hop is what another peer costs beside the way there and back, and relayed what a
	// third one does that passes on what is said, in seconds.
	hop, relayed = 0.001, 0.25
	// impatience is how often a second of waiting counts: nothing comes meanwhile, and how
	// long the answers of those before will be is a guess.
	impatience = 2
	// Of replicas alike, nothing begins at one with more than fair times the mean of the
	// talks, and what has begun there moves on from one that has had more than unfair
	// times the mean of the work: to move costs reading all again.
	fair, unfair = 1.03, 1.2
)

// choose is the decision, over classified replicas. chance decides where nothing else does.
func choose(w *Want, list []candidate, chance uint64) Decision {
	d := Decision{Pick: -1, Each: make([]Verdict, len(list))}
	some := false // There is somebody to ask.
	for i := range list {
		c, v := &list[i], &d.Each[i]
		v.Peer, v.Out = c.Peer, c.Out
		switch {
		case v.Out == Leaving:
		case v.Out != "":
			continue
		case w.Tokens > 0 && c.Context > 0 && w.Tokens > c.Context:
			v.Out = TooLong
		case c.resting:
			v.Out = BackOff
		case c.full:
			v.Out = Full
		default:
			some = true
		}
		c.reckon(w, v)
	}
	for _, last := range []Out{Full, BackOff, Leaving, TooLong} { // Rather than nobody.
		some = some || d.readmit(last)
	}
	if !some {
		return d
	}
	d.share(w, list)

	best := math.Inf(1)
	for i := range d.Each {
		if d.Each[i].Out == "" {
			best = min(best, d.Each[i].Seconds())
		}
	}
	for i := range d.Each {
		if d.Each[i].Out == "" && d.Each[i].Seconds() <= best+near && (d.Pick < 0 || before(w, &list[i], &list[d.Pick], chance)) {
			d.Pick = i
		}
	}
	return d
}

// reckon fills in the seconds.
func (c *candidate) reckon(w *Want, v *Verdict) {
	v.Read, v.Write = float64(w.Tokens)*c.read, usualAnswer*c.write
	if n := len(w.Prefix); n > 0 {
		v.Read *= 1 - float64(min(c.has, n))/float64(n)
	}
	slots := float64(max(1, c.Slots))
	over := math.Round(c.ahead) + min(float64(w.takes()), slots) - slots
	v.Wait = impatience * math.Ceil(max(0, over)/slots) * c.pace()
	if w.takes() == 0 {
		v.Wait, v.Write = 0, 0
	}
	if !c.Local {
		v.Way = c.RTT.Seconds() + hop
		if c.Relayed {
			v.Way += relayed
		}
	}
}

// readmit takes back in who is out for one reason, and says whether there was any.
func (d *Decision) readmit(out Out) (any bool) {
	for i := range d.Each {
		if d.Each[i].Out == out {
			d.Each[i].Out, any = "", true
		}
	}
	return any
}

// share takes out who has more than a share of what requests that can go anywhere bring,
// if that leaves anybody.
func (d *Decision) share(w *Want, list []candidate) {
	if _, ok := w.talk(); !ok {
		return
	}
	left := false
	for class := 0; ; class++ {
		work, talks, n := 0.0, 0.0, 0.0
		for i := range list {
			if d.Each[i].Out == "" && list[i].class == class {
				work, talks, n = work+list[i].work, talks+float64(list[i].talks), n+1
			}
		}
		more := false
		for i := range list {
			c, v := &list[i], &d.Each[i]
			switch {
			case v.Out != "" || c.class < class:
			case c.class > class:
				more = true
			case c.worked(w) > unfair*work/n || w.begins() && float64(c.talks) > fair*talks/n:
				v.Out = Share
			default:
				left = true
			}
		}
		if !more {
			break
		}
	}
	if !left {
		d.readmit(Share)
	}
}

// worked is what a replica has got to do beside the talk that a request belongs to, where
// that is there: who has but the one gets nothing fairer by giving it away.
func (c *candidate) worked(w *Want) float64 {
	if !w.on(c) {
		return c.work
	}
	return c.work * (1 - 1/float64(max(1, c.talks)))
}

// before says whether a is asked rather than b, where both do as well.
func before(w *Want, a, b *candidate, chance uint64) bool {
	if key, ok := w.talk(); ok {
		return cmp.Or(
			cmp.Compare(max(b.has, w.Shared), max(a.has, w.Shared)),
			first(a.seat, b.seat),
			cmp.Compare(rank(key, b.hash), rank(key, a.hash))) < 0
	}
	return cmp.Or(
		cmp.Compare(math.Round(a.ahead), math.Round(b.ahead)),
		first(a.Local, b.Local),
		cmp.Compare(a.work, b.work),
		cmp.Compare(rank(chance, b.hash), rank(chance, a.hash))) < 0
}

// first compares two by whether something holds, those first for which it does.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
