package shards

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"relay/scheduler/ways"
)

// The reasons of refusals; they are of the closed list in scheduler.
const (
	noHolder   = "no_holder"
	noCapacity = "no_capacity"
	noEngine   = "no_engine"
	notAllowed = "not_allowed"
)

// maxNamed is how many peers a sentence names.
const maxNamed = 5

// listed joins sentences about peers, as many as are named.
func listed(texts []string, separator string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(texts[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, separator)
}

func names(members []*Member) string {
	var list []string
	for i, m := range members {
		if i == maxNamed {
			list = append(list, fmt.Sprintf("%d more", len(members)-i))
			break
		}
		list = append(list, m.Name)
	}
	return ways.List(list)
}

// hopeless is why there is nothing to plan; nil where there may be.
func (f *former) hopeless() *Refusal {
	refuse := func(reason, text string) *Refusal {
		return &Refusal{Reason: reason, Text: text, Verdict: ways.Never}
	}
	if err := f.pieces.Err(); err != nil {
		return refuse(noCapacity, "what it takes is not known: "+err.Error())
	}
	if f.n = f.pieces.Count(); f.n == 0 {
		return refuse(noCapacity, "it has no layers to share out")
	}
	var holders []string
	reason, coordinators, others := "", []*Member(nil), 0
	for _, m := range f.members {
		switch {
		case f.mayCoordinate(m):
			coordinators = append(coordinators, m)
		case m.Holds || m.ID == f.p.Coordinator:
			why, text := f.cannotCoordinate(m)
			reason = cmp.Or(reason, why)
			holders = append(holders, text)
		}
		if f.barred(m, nil) == nil {
			others++
		}
	}
	switch {
	case len(coordinators) == 0 && len(holders) == 0:
		return refuse(noHolder, "no peer holds the whole file, which a coordinator needs")
	case len(coordinators) == 0:
		return refuse(reason, "nobody can coordinate: "+listed(holders, "; "))
	case others < 2:
		text := fmt.Sprintf("there is nobody to share it with %s", coordinators[0].Name)
		if out := f.leftOut(coordinators[0]); len(out) > 0 {
			text += ": " + listed(out, "; ")
		}
		return refuse(noCapacity, text)
	}
	return nil
}

// cannotCoordinate is why a member does not.
func (f *former) cannotCoordinate(m *Member) (reason, text string) {
	switch b := f.barred(m, nil); {
	case f.p.Coordinator != "" && m.ID != f.p.Coordinator:
		return notAllowed, fmt.Sprintf("%s is not the one that is to", m.Name)
	case b != nil:
		return b.Reason, b.Text
	case m.ShardOnly:
		return notAllowed, fmt.Sprintf("%s has the file, and its trust is shard-only", m.Name)
	case !m.Holds:
		return noHolder, fmt.Sprintf("%s does not hold the whole file", m.Name)
	}
	b := m.Machine.Block(ways.Shards)
	return b.Reason, fmt.Sprintf("%s: %s", m.Name, cmp.Or(b.Text, "it failed there"))
}

// barred is why a member takes no part with a coordinator, nil for any; nil where it may.
func (f *former) barred(m, coordinator *Member) *Bar {
	switch {
	case m.Barred != nil:
		return m.Barred
	case m.Build.RPC == "":
		return &Bar{noEngine, fmt.Sprintf("%s has no engine that works for others", m.Name)}
	case coordinator != nil && m.Build != coordinator.Build:
		return &Bar{noEngine, fmt.Sprintf("%s has another engine (%s) than %s (%s)", m.Name, m.Build, coordinator.Name, coordinator.Build)}
	}
	return nil
}

// leftOut is why each of those that may not be with a coordinator is not.
func (f *former) leftOut(coordinator *Member) (texts []string) {
	for _, m := range f.members {
		switch b := f.barred(m, coordinator); {
		case m == coordinator:
		case b != nil:
			texts = append(texts, b.Text)
		case m.NoWork != nil:
			texts = append(texts, m.NoWork.Text)
		}
	}
	return texts
}

// where says where the layers are.
func (f *former) where(l *line) string {
	var parts []string
	at, takes := 0, l.takes
	add := func(peer string, devices ...device) {
		var on []string
		from := at
		for i := range devices {
			if takes[i] > 0 {
				on = append(on, devices[i].id)
			}
			at += takes[i]
		}
		takes = takes[len(devices):]
		if from == at {
			return
		}
		what := ""
		switch last := min(at, f.n) - 1; {
		case last < from:
		case last == from:
			what = fmt.Sprintf("layer %d", from)
		default:
			what = fmt.Sprintf("layers %d-%d", from, last)
		}
		if at > f.n {
			if what != "" {
				what += " and "
			}
			what += "the output"
		}
		parts = append(parts, fmt.Sprintf("%s on %s of %s", what, ways.List(on), peer))
	}
	ram := device{id: ways.HostID}
	add(l.post.Name, ram)
	for i := range l.slots {
		add(l.slots[i].Name, l.slots[i].devices()...)
	}
	if add(l.post.Name, l.post.devices...); at == f.n {
		takes = []int{1}
		add(l.post.Name, ram)
	}
	return ways.List(parts)
}

// perSecond writes a speed so that what is below the least useful one is seen to be.
func perSecond(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.1f", math.Floor(v*10)/10)
}

// all are the members of a line, the coordinator first.
func (l *line) all() (list []*Member) {
	list = append(list, l.post.Member)
	for i := range l.slots {
		list = append(list, l.slots[i].Member)
	}
	return list
}

// text is a plan's sentence.
func (f *former) text(l *line, p *Plan) string {
	why := "no peer could hold all of it"
	if f.p.Force {
		why = fmt.Sprintf("somebody asked for it (relay model load %s ends that)", f.p.Name)
	}
	text := fmt.Sprintf("runs on %s together, since %s: %s", names(l.all()), why, p.Layers)
	if load := p.Load.Seconds(); load >= 1 {
		text += fmt.Sprintf(", loading takes about %.0f s", math.Ceil(load))
	}
	if p.Verdict == ways.Evicts {
		text += ", once idle models are unloaded"
	}
	out := f.leftOut(l.post.Member)
	for _, m := range f.members {
		if f.idle[m.ID] || f.demoted[m.ID] {
			out = append(out, fmt.Sprintf("%s would make it too slow", m.Name))
		}
	}
	if len(out) > 0 {
		text += "; " + listed(out, "; ")
	}
	return text
}

// tooSlow is the refusal of what nobody would wait for.
func (f *former) tooSlow(l *line, decode float64) string {
	return fmt.Sprintf("would write %s tokens/s on %s together: %s; --force runs it all the same", perSecond(decode), names(l.all()), f.where(l))
}

// lacks is the refusal for memory: what is needed, and what there is with the coordinator
// whose engine has most of it. later says that it would do if nothing else ran.
func (f *former) lacks(later bool) string {
	var best []*Member
	var most, free uint64
	for _, c := range f.members {
		if !f.mayCoordinate(c) {
			continue
		}
		var together []*Member
		lent, now := uint64(0), uint64(0)
		for _, m := range f.members {
			if f.barred(m, c) == nil {
				together = append(together, m)
				lent, now = lent+lends(&m.Machine, ways.Later), now+lends(&m.Machine, f.p.Worst)
			}
		}
		if best == nil || lent > most {
			best, most, free = together, lent, now
		}
	}
	need := f.pieces.OnCPU(&ways.Machine{}).Parts[0].Bytes
	text := fmt.Sprintf("needs %s, %s together lend %s", ways.AtLeast(need), names(best), ways.AtMost(most))
	switch {
	case len(best) == 1:
		text = fmt.Sprintf("needs %s, %s alone lends %s", ways.AtLeast(need), names(best), ways.AtMost(most))
	case later:
		text = fmt.Sprintf("needs %s, %s together have %s free of the %s they lend", ways.AtLeast(need), names(best), ways.AtMost(free), ways.AtMost(most))
	case need <= most:
		text += ", over which whole layers do not share out with what each peer takes beside them"
	}
	for _, c := range best {
		if f.mayCoordinate(c) {
			if out := f.leftOut(c); len(out) > 0 {
				text += "; " + listed(out, "; ")
			}
			break
		}
	}
	return text
}

// lends is what a machine has in all for a verdict; a GPU without memory of its own adds
// nothing.
func lends(m *ways.Machine, v ways.Verdict) uint64 {
	bytes, _ := m.Host.Room(v)
	for i := range m.GPUs {
		if room, _ := m.GPUs[i].Room(v); !m.GPUs[i].Unified {
			bytes += room
		}
	}
	return bytes
}
