package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"relay/scheduler/ways"
)

// says is a sentence about the model.
func (p *planner) says(text string) string { return fmt.Sprintf("model %q: %s", p.m.Name, text) }

// chosenText is the sentence for a plan, with the peers that serve until then.
func (p *planner) chosenText(chosen []*seat, stand []*Peer) string {
	var stays, moves, new []string
	least, most := uint64(0), uint64(0)
	for _, c := range chosen {
		if c.from != "" {
			moves = append(moves, c.moves())
			continue
		}
		if c.peer.Runs {
			stays = append(stays, c.peer.Name)
			continue
		}
		need := total(&c.way)
		if most = max(most, need); len(new) == 0 || need < least {
			least = need
		}
		new = append(new, fmt.Sprintf("%s (%s)", c.peer.Name, c.details()))
	}
	var parts []string
	if len(stays) > 0 {
		parts = append(parts, "stays on "+ways.List(stays))
	}
	parts = append(parts, moves...)
	if len(new) > 0 {
		needed := ways.AtLeast(most)
		if from := ways.AtLeast(least); from != needed {
			needed = from + " to " + needed
		}
		parts = append(parts, fmt.Sprintf("goes to %s; %s needed", ways.List(new), needed))
	}
	text := p.says(strings.Join(parts, ", and "))
	switch {
	case len(chosen) < p.m.Want:
		text += fmt.Sprintf("; no more than %d of %d replicas find a place%s", len(chosen), p.m.Want, p.whyNoMore(stand))
	case p.m.Only != "" && len(new) > 0:
		text += fmt.Sprintf("; only on %s", p.nameOf(p.m.Only))
	}
	for _, a := range p.although(chosen) {
		text += "; " + a
	}
	if len(stand) > 0 {
		text += fmt.Sprintf("; %s drained and %s until then", are(stand), agree(stand, "serves", "serve"))
	}
	return text
}

// whyNoMore is why the first of the peers that run no replica does not; "" where there
// is none. Those that were chosen could run one.
func (p *planner) whyNoMore(stand []*Peer) string {
	if p.m.Only != "" {
		return fmt.Sprintf(": it may run only on %s", p.nameOf(p.m.Only))
	}
	for _, q := range p.sorted() {
		if _, text := p.reject(q); text != "" && !slices.Contains(stand, q) {
			return ": " + text
		}
	}
	return ""
}

// moves says where a model goes that ran on the same peer another way.
func (c *seat) moves() string {
	gpus, are, have := c.gpus(), "is", "has"
	if len(gpus) > 1 {
		are, have = "are", "have"
	}
	on := fmt.Sprintf("to %s on %s, which", ways.List(gpus), c.peer.Name)
	switch {
	case c.from == ways.CPU:
		return fmt.Sprintf("moves from the CPU %s %s free now", on, are)
	case c.way.Kind == ways.Hybrid:
		return fmt.Sprintf("moves more of it %s %s room now", on, have)
	}
	return fmt.Sprintf("moves all of it %s %s room now", on, have)
}

// details are what a peer that is new to the model has for it.
func (c *seat) details() string {
	has := "holds the file"
	if c.fetches() {
		has = "fetches the file"
	}
	free, lent := roomFor(c.peer, &c.way)
	text := fmt.Sprintf("%s, %s free of %s lent", has, ways.AtMost(free), ways.AtMost(lent))
	if gpus := c.gpus(); len(gpus) > 0 {
		text += " on " + ways.List(gpus)
		if c.way.Kind == ways.Hybrid {
			text += ", the rest in RAM"
		}
	}
	if c.evicts {
		text += ", unloads idle models"
	}
	return text
}

// gpus are those that the model computes on there.
func (c *seat) gpus() []string {
	var ids []string
	for _, part := range c.way.Parts {
		if slices.ContainsFunc(c.peer.Machine.GPUs, func(g ways.Device) bool { return g.ID == part.Device }) {
			ids = append(ids, part.Device)
		}
	}
	return ids
}

func total(w *ways.Way) (bytes uint64) {
	for _, part := range w.Parts {
		bytes += part.Bytes
	}
	return bytes
}

// lastText is the sentence for a model that nobody can take over from the peers
// that are drained.
func (p *planner) lastText(stand []*Peer) string {
	return p.says(fmt.Sprintf("%s drained and nobody else can take it, so that it soon stops there%s", are(stand), p.pullHint()))
}

// are says of peers that they are.
func are(peers []*Peer) string { return ways.List(namesOf(peers)) + " " + agree(peers, "is", "are") }

func agree(peers []*Peer, one, more string) string {
	if len(peers) == 1 {
		return one
	}
	return more
}

func namesOf(peers []*Peer) []string {
	var names []string
	for _, q := range peers {
		names = append(names, q.Name)
	}
	return names
}

// nowhere is the reason and the sentence where no peer can run the model: it names
// what would have to change.
func (p *planner) nowhere() (reason, text string) {
	if p.m.Only != "" {
		return p.notThere()
	}
	var here, away []*Peer // that hold the file
	var lost []string      // what became of files that were held
	for _, q := range p.sorted() {
		switch {
		case q.Holds && q.Alive:
			here = append(here, q)
		case q.Holds:
			away = append(away, q)
		}
		if q.Gone != "" {
			lost = append(lost, fmt.Sprintf("on %s %s", q.Name, q.Gone))
		}
	}
	reason = noHolder
	switch {
	case len(here) > 0:
		reason, text = p.unserved(here, away)
		text += p.pullHint()
		for _, q := range p.missed(away) {
			text += fmt.Sprintf("; %s, which does not answer, lends %s", q.Name, lends(&q.Machine))
		}
	case len(away) > 0:
		text = fmt.Sprintf("the peers that hold it whole do not answer: %s", ways.List(namesOf(away)))
	default:
		text = "no peer holds it whole"
	}
	if reason == noHolder && len(lost) > 0 {
		text += "; " + strings.Join(lost, "; ")
	}
	return reason, p.says(text)
}

// notThere is nowhere for a model that may run on one peer only.
func (p *planner) notThere() (reason, text string) {
	for i := range p.peers {
		if q := &p.peers[i]; q.ID == p.m.Only {
			reason, text = p.reject(q)
			return reason, p.says(fmt.Sprintf("it may run only on %s: %s", q.Name, text))
		}
	}
	return peerGone, p.says(fmt.Sprintf("it may run only on %s, which is not in the mesh", p.m.Only))
}

// pullHint names the peers that could run the model if they held it.
func (p *planner) pullHint() string {
	if p.m.Fetch {
		return "" // They would have been told to.
	}
	var pullers []string
	for _, q := range p.sorted() {
		if !q.Holds && p.unable(q) == able && !q.Parked && p.fits(q, ways.Fits) {
			pullers = append(pullers, q.Name)
		}
	}
	if len(pullers) == 0 {
		return ""
	}
	return fmt.Sprintf(" (relay model pull %s on %s, where it would fit)", p.m.Name, ways.List(pullers))
}

// missed are the holders of some that do not answer which, by what they last told, could
// run the model if nothing else ran there.
func (p *planner) missed(away []*Peer) (list []*Peer) {
	for _, q := range away {
		if q.Trust == "replicas" && !q.Draining && !q.Drained && !p.parked(q) && p.fits(q, ways.Later) {
			list = append(list, q)
		}
	}
	return list
}

// lends is what a machine lends in all.
func lends(m *ways.Machine) string {
	ram := ways.AtMost(m.Host.Lent)
	var parts []string
	for i := range m.GPUs {
		if g := &m.GPUs[i]; g.Known && g.Lent > 0 {
			parts = append(parts, fmt.Sprintf("%s on %s", ways.AtMost(g.Lent), g.ID))
		}
	}
	if len(parts) == 0 {
		return ram
	}
	return ways.List(append(parts, ram+" in RAM"))
}

// unserved is why none of the holders that answer can run the model; others hold it and
// are away.
func (p *planner) unserved(holders, away []*Peer) (reason, text string) {
	if !slices.ContainsFunc(holders, func(q *Peer) bool { return p.unable(q) != isDrained }) {
		return draining, fmt.Sprintf("%s drained and nobody else that answers holds the file", are(holders))
	}
	if text = p.twoFigures(holders, away); text != "" {
		return noCapacity, text
	}
	// Each holder has its own; the reason is the one nearest to passing.
	reasons := make(map[string]bool)
	failed := ""
	var texts []string
	for _, q := range holders {
		reason, text := p.reject(q)
		reasons[reason] = true
		if why, _, _, is := p.failure(q); is && why == reason {
			failed = cmp.Or(failed, reason)
		}
		texts = append(texts, text)
	}
	for _, r := range []string{noCapacity, failed, engineFailed, draining, cordoned, noEngine, notAllowed} {
		if reasons[r] {
			reason = r
			break
		}
	}
	return reason, "runs nowhere: " + strings.Join(texts, "; ")
}

// twoFigures is the text where it is only the RAM that the holders lack, what is
// needed and what is there; "" where it is more than that.
func (p *planner) twoFigures(holders, away []*Peer) string {
	for _, q := range holders {
		reason, _ := p.reject(q)
		host := &q.Machine.Host
		if reason != noCapacity || p.failed(q) || q.Paused != "" || len(q.Machine.GPUs) > 0 || !host.Known || host.Busy != "" {
			return ""
		}
	}
	best := slices.MaxFunc(holders, func(a, b *Peer) int { return cmp.Compare(a.Machine.Host.Free, b.Machine.Host.Free) })
	text := fmt.Sprintf("need %s, most free is %s on %s", ways.AtLeast(p.needInRAM(best)), ways.AtMost(best.Machine.Host.Free), best.Name)
	byLent := func(a, b *Peer) int { return cmp.Compare(a.Machine.Host.Lent, b.Machine.Host.Lent) }
	largest := slices.MaxFunc(holders, byLent)
	if p.needInRAM(largest) > largest.Machine.Host.Lent {
		holder := "holder"
		if len(away) > 0 && slices.MaxFunc(away, byLent).Machine.Host.Lent > largest.Machine.Host.Lent {
			holder = "holder that answers"
		}
		return text + fmt.Sprintf("; no %s lends more than %s", holder, ways.AtMost(largest.Machine.Host.Lent))
	}
	return text + fmt.Sprintf("; it would fit on %s if nothing else ran there", largest.Name)
}
