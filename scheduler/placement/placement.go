package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place chooses peers for a model: those that run it already, ready ones first
// and of these the ones where it is placed, then those with the most memory left, then by id. The rejections are in the
// order of the peers' ids; a peer that could run the model and is not needed is
// in neither list, nor is one that only serves until another is ready.
func Place(m Model, s Snapshot) (Plan, []Rejection) {
	peers := slices.SortedFunc(slices.Values(s.Peers), func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	source := slices.ContainsFunc(peers, func(p Peer) bool { return p.Holds && p.Alive })
	var fit []Peer
	for _, p := range peers {
		if reason, _ := reject(m, p, source); reason == "" {
			fit = append(fit, p)
		}
	}
	slices.SortStableFunc(fit, func(a, b Peer) int {
		return cmp.Or(first(a.Ready, b.Ready), first(a.Placed, b.Placed), first(a.Runs, b.Runs), cmp.Compare(b.Free, a.Free))
	})
	chosen := fit[:min(len(fit), wanted(m))]
	stand := standIns(m, peers, chosen)
	var plan Plan
	switch {
	case len(chosen) > 0:
		plan.Text = chosenText(m, chosen, stand)
	case len(stand) > 0:
		plan.Reason, plan.Text = draining, lastText(m, peers, stand)
	default:
		plan = nowhere(m, peers)
	}
	for _, p := range slices.Concat(chosen, stand) {
		plan.Peers = append(plan.Peers, p.ID)
	}
	var rejections []Rejection
	for _, p := range peers {
		if reason, text := reject(m, p, source); reason != "" && !slices.Contains(plan.Peers, p.ID) {
			rejections = append(rejections, Rejection{p.ID, reason, text})
		}
	}
	return plan, rejections
}

// standIns are the drained peers that go on serving: as many as there are
// replicas that are not ready elsewhere yet.
func standIns(m Model, peers, chosen []Peer) []Peer {
	missing := wanted(m)
	for _, p := range chosen {
		if p.Ready {
			missing--
		}
	}
	var stand []Peer
	for _, p := range peers {
		if p.Drained && p.Grace && p.Ready && p.Failed == "" && missing > len(stand) {
			p.Drained = false
			if reason, _ := unable(p); reason == "" {
				stand = append(stand, p)
			}
		}
	}
	return stand
}

// wanted is the number of replicas asked for.
func wanted(m Model) int { return max(1, m.Min) }

// first puts those for which something is true before those for which it is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return +1
}

// reject says why a peer cannot run a model whole; an empty reason is that it
// can. What is hardest to mend comes first. With source there is a peer that
// the file can be pulled from.
func reject(m Model, p Peer, source bool) (reason, text string) {
	if reason, text = unable(p); reason != "" {
		return reason, text
	}
	if p.Runs && p.Failed == "" { // Its memory is taken already, and it has read its file.
		return "", ""
	}
	if p.Gone != "" {
		return noHolder, fmt.Sprintf("%s does not hold the file any more: %s", p.Name, p.Gone)
	}
	if !p.Holds {
		if _, why := lacks(m, p); why != "" {
			return noHolder, fmt.Sprintf("%s does not hold the file, and has no room for it: %s", p.Name, why)
		}
		if !source {
			return noHolder, fmt.Sprintf("%s does not hold the file", p.Name)
		}
		return noHolder, fmt.Sprintf("%s does not hold the file (relay model pull %s there)", p.Name, m.Name)
	}
	if p.Failed != "" {
		return p.Failed, fmt.Sprintf("%s: %s", p.Name, cmp.Or(p.FailedText, "it failed and has not said why"))
	}
	return lacks(m, p)
}

// unable says why a peer runs nothing new at all.
func unable(p Peer) (reason, text string) {
	switch {
	case !p.Alive:
		return peerGone, fmt.Sprintf("%s does not answer", p.Name)
	case p.Trust != "replicas":
		return notAllowed, fmt.Sprintf("%s may not run whole models (its trust is %s)", p.Name, p.Trust)
	case p.Draining:
		return draining, fmt.Sprintf("%s is draining", p.Name)
	case p.Drained:
		return draining, fmt.Sprintf("%s is drained", p.Name)
	case p.Cordoned && !p.Runs && !p.Placed:
		return cordoned, fmt.Sprintf("%s is cordoned", p.Name)
	case !p.Engine:
		return noEngine, fmt.Sprintf("%s has no engine: %s", p.Name, cmp.Or(p.NoEngine, "it has not said why"))
	}
	return "", ""
}

// lacks says that a peer's memory does not do: never, or not now.
func lacks(m Model, p Peer) (reason, text string) {
	switch {
	case p.Lent == 0 && m.Need > 0:
		return noCapacity, fmt.Sprintf("%s lends no memory", p.Name)
	case m.Need > p.Lent:
		return noCapacity, fmt.Sprintf("%s needed, %s lends %s in all", atLeast(m.Need), p.Name, atMost(p.Lent))
	case m.Need > p.Free:
		return noCapacity, fmt.Sprintf("%s needed, %s has %s free now of the %s it lends", atLeast(m.Need), p.Name, atMost(p.Free), atMost(p.Lent))
	}
	return "", ""
}

// chosenText is the sentence for a plan, with the peers that serve until then.
func chosenText(m Model, chosen, stand []Peer) string {
	var stays, new []string
	for _, p := range chosen {
		if p.Runs {
			stays = append(stays, p.Name)
		} else {
			new = append(new, fmt.Sprintf("%s (holds the file, %s free of %s lent)", p.Name, atMost(p.Free), atMost(p.Lent)))
		}
	}
	var parts []string
	if len(stays) > 0 {
		parts = append(parts, "stays on "+list(stays))
	}
	if len(new) > 0 {
		parts = append(parts, fmt.Sprintf("goes to %s; %s needed", list(new), atLeast(m.Need)))
	}
	text := fmt.Sprintf("model %q: %s", m.Name, strings.Join(parts, ", and "))
	if len(chosen) < wanted(m) {
		text += fmt.Sprintf("; no more than %d of %d replicas find a place", len(chosen), wanted(m))
	}
	if len(stand) > 0 {
		text += fmt.Sprintf("; %s drained and %s until then", are(stand), agree(stand, "serves", "serve"))
	}
	return text
}

// lastText is the sentence for a model that nobody can take over from the peers
// that are drained.
func lastText(m Model, peers, stand []Peer) string {
	return fmt.Sprintf("model %q: %s drained and nobody else can take it, so that it soon stops there%s", m.Name, are(stand), pullHint(m, peers))
}

// are says of peers that they are.
func are(peers []Peer) string { return list(namesOf(peers)) + " " + agree(peers, "is", "are") }

func agree(peers []Peer, one, more string) string {
	if len(peers) == 1 {
		return one
	}
	return more
}

// nowhere is the plan where no peer can run the model: its sentence names what
// would have to change.
func nowhere(m Model, peers []Peer) Plan {
	var here, away []Peer // that hold the file
	var lost []string     // what became of files that were held
	for _, p := range peers {
		switch {
		case p.Holds && p.Alive:
			here = append(here, p)
		case p.Holds:
			away = append(away, p)
		}
		if p.Gone != "" {
			lost = append(lost, fmt.Sprintf("on %s %s", p.Name, p.Gone))
		}
	}
	plan := Plan{Reason: noHolder}
	switch {
	case len(here) > 0:
		plan.Reason, plan.Text = unserved(m, here)
		plan.Text += pullHint(m, peers)
	case len(away) > 0:
		plan.Text = fmt.Sprintf("the peers that hold it whole do not answer: %s", list(namesOf(away)))
	default:
		plan.Text = "no peer holds it whole"
	}
	if plan.Reason == noHolder && len(lost) > 0 {
		plan.Text += "; " + strings.Join(lost, "; ")
	}
	plan.Text = fmt.Sprintf("model %q: %s", m.Name, plan.Text)
	return plan
}

// pullHint names the peers that could run the model if they held it.
func pullHint(m Model, peers []Peer) string {
	var pullers []string
	for _, p := range peers {
		if reason, _ := unable(p); !p.Holds && reason == "" && m.Need <= p.Free && m.Need <= p.Lent {
			pullers = append(pullers, p.Name)
		}
	}
	if len(pullers) == 0 {
		return ""
	}
	return fmt.Sprintf(" (relay model pull %s on %s, where it would fit)", m.Name, list(pullers))
}

// unserved is why none of the holders that answer can run the model.
func unserved(m Model, holders []Peer) (reason, text string) {
	if !slices.ContainsFunc(holders, func(p Peer) bool { reason, _ := unable(p); return !p.Drained || reason != draining }) {
		return draining, fmt.Sprintf("%s drained and nobody else that answers holds the file", are(holders))
	}
	// Where it is only the memory, the two figures say it all.
	var best *Peer
	for i := range holders {
		p := &holders[i]
		if reason, _ := reject(m, *p, true); reason != noCapacity || p.Failed != "" {
			best = nil
			break
		}
		if best == nil || p.Free > best.Free {
			best = p
		}
	}
	if best != nil {
		text = fmt.Sprintf("need %s, most free is %s on %s", atLeast(m.Need), atMost(best.Free), best.Name)
		most := slices.MaxFunc(holders, func(a, b Peer) int { return cmp.Compare(a.Lent, b.Lent) })
		if m.Need > most.Lent {
			return noCapacity, text + fmt.Sprintf("; no holder lends more than %s", atMost(most.Lent))
		}
		return noCapacity, text + fmt.Sprintf("; it would fit on %s if nothing else ran there", most.Name)
	}
	// Else each holder has its own; the reason is the one nearest to passing.
	reasons := make(map[string]bool)
	failed := ""
	var texts []string
	for _, p := range holders {
		reason, text := reject(m, p, true)
		reasons[reason] = true
		if p.Failed == reason {
			failed = cmp.Or(failed, reason)
		}
		texts = append(texts, text)
	}
	for _, r := range []string{noCapacity, failed, draining, cordoned, noEngine, notAllowed} {
		if reasons[r] {
			reason = r
			break
		}
	}
	return reason, "runs nowhere: " + strings.Join(texts, "; ")
}

func namesOf(peers []Peer) []string {
	var names []string
	for _, p := range peers {
		names = append(names, p.Name)
	}
	return names
}
