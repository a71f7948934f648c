package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"relay/scheduler/ways"
)

// ability is why a peer runs nothing new at all, or not this model; what is
// hardest to mend comes first.
type ability int

const (
	able ability = iota
	isElsewhere
	isGone
	isBarred
	isDraining
	isDrained
	isPaused
	isCordoned
	hasNoEngine
)

func (p *planner) unable(q *Peer) ability {
	if u := p.unableButDrained(q); u != able && u < isDrained || !q.Drained {
		return u
	}
	return isDrained
}

// unableButDrained is unable for a peer as if it were not drained.
func (p *planner) unableButDrained(q *Peer) ability {
	switch {
	case p.m.Only != "" && q.ID != p.m.Only:
		return isElsewhere
	case !q.Alive:
		return isGone
	case q.Trust != "replicas":
		return isBarred
	case q.Draining:
		return isDraining
	case q.Paused != "":
		return isPaused
	case q.Cordoned && !q.Runs && !q.Placed:
		return isCordoned
	case !q.Engine:
		return hasNoEngine
	}
	return able
}

func (u ability) reason() string {
	switch u {
	case isGone:
		return peerGone
	case isElsewhere, isBarred:
		return notAllowed
	case isDraining, isDrained:
		return draining
	case isPaused:
		return noCapacity
	case isCordoned:
		return cordoned
	case hasNoEngine:
		return noEngine
	}
	return ""
}

func (p *planner) unableText(q *Peer, u ability) string {
	switch u {
	case isElsewhere:
		return fmt.Sprintf("it may run only on %s, not on %s", p.nameOf(p.m.Only), q.Name)
	case isGone:
		return fmt.Sprintf("%s does not answer", q.Name)
	case isBarred:
		return fmt.Sprintf("%s may not run whole models (its trust is %s)", q.Name, q.Trust)
	case isDraining:
		return fmt.Sprintf("%s is draining", q.Name)
	case isDrained:
		return fmt.Sprintf("%s is drained", q.Name)
	case isPaused:
		return fmt.Sprintf("%s lends nothing for now: %s", q.Name, q.Paused)
	case isCordoned:
		return fmt.Sprintf("%s is cordoned", q.Name)
	case hasNoEngine:
		return fmt.Sprintf("%s has no engine: %s", q.Name, cmp.Or(q.NoEngine, "it has not said why"))
	}
	return ""
}

// file is whether a peer has the model's file, or can be told to fetch it.
type file int

const (
	hasFile file = iota
	lostFile
	noSource
	notAsked // Somebody has it, and this peer is not to be told to fetch it.
	unknownRoom
	noRoom
)

func (p *planner) fileless(q *Peer) file {
	switch {
	case q.Holds:
		return hasFile
	case q.Gone != "":
		return lostFile
	case !p.source:
		return noSource
	case !p.m.Fetch:
		return notAsked
	case !q.DiskKnown:
		return unknownRoom
	case q.DiskFree < uint64(max(0, p.m.Bytes)):
		return noRoom
	}
	return hasFile
}

func (p *planner) filelessText(q *Peer) (reason, text string) {
	why := p.fileless(q)
	if why == lostFile {
		return noHolder, fmt.Sprintf("%s does not hold the file any more: %s", q.Name, q.Gone)
	}
	text = fmt.Sprintf("%s does not hold the file", q.Name)
	if lacks := p.lacksText(q); lacks != "" {
		return noHolder, fmt.Sprintf("%s, and has no room for it: %s", text, lacks)
	}
	switch why {
	case notAsked:
		text += fmt.Sprintf(" (relay model pull %s there)", p.m.Name)
	case unknownRoom:
		text += ", and how much room its disk has is not known"
	case noRoom:
		return diskFull, fmt.Sprintf("%s, and its disk has no room for it: %s needed, %s free",
			text, ways.AtLeast(uint64(max(0, p.m.Bytes))), ways.AtMost(q.DiskFree))
	}
	return noHolder, text
}

// Reject is why each peer that was not chosen could not run the model, in the
// order of their ids. A peer that could and is not needed is not in it, nor is one
// that only serves until another is ready; nor are others where the only one that may
// run it is in the mesh.
func Reject(m Model, s Snapshot) []Rejection {
	p := newPlanner(m, s)
	_, stand := p.choose()
	var list []Rejection
	for _, q := range p.asked() {
		if reason, text := p.reject(q); reason != "" && !slices.Contains(stand, q) {
			list = append(list, Rejection{q.ID, reason, text})
		}
	}
	return list
}

// reject says why a peer cannot run the model whole; an empty reason is that it can.
func (p *planner) reject(q *Peer) (reason, text string) {
	if u := p.unable(q); u != able {
		return u.reason(), p.unableText(q, u)
	}
	failed := p.failed(q)
	if q.Runs && !failed { // Its memory is taken already, and it has read its file.
		return "", ""
	}
	if p.fileless(q) != hasFile {
		return p.filelessText(q)
	}
	if failed {
		r := p.failureText(q)
		return r.Reason, r.Text
	}
	if text = p.lacksText(q); text != "" {
		return noCapacity, text
	}
	return "", ""
}

// failure is what went wrong on a peer: with the peer as a whole, or in each way that
// the model could go there.
func (p *planner) failure(q *Peer) (reason, text string, parked, ok bool) {
	switch {
	case q.Parked || q.Failed != "":
		return q.Failed, q.FailedText, q.Parked, true
	case q.Runs:
		return "", "", false, false
	}
	b, ok := p.pieces.Blocked(&q.Machine)
	return b.Reason, b.Text, b.Parked, ok
}

func (p *planner) failed(q *Peer) bool {
	_, _, _, failed := p.failure(q)
	return failed
}

func (p *planner) parked(q *Peer) bool {
	_, _, parked, _ := p.failure(q)
	return parked
}

func (p *planner) failureText(q *Peer) Rejection {
	reason, text, parked, _ := p.failure(q)
	text = cmp.Or(text, "it failed and has not said why")
	if parked {
		text = fmt.Sprintf("parked there until somebody says relay model retry %s: %s", p.m.Name, text)
	}
	return Rejection{q.ID, cmp.Or(reason, engineFailed), fmt.Sprintf("%s: %s", q.Name, text)}
}

// lacksText says that a peer's memory does not do, never or not now; "" is that it
// does. Where there is no GPU the two figures of its RAM say it all.
func (p *planner) lacksText(q *Peer) string {
	worst := ways.Fits
	if p.m.Evict {
		worst = ways.Evicts
	}
	if p.fits(q, worst) {
		return ""
	}
	if _, blocked := p.pieces.Blocked(&q.Machine); blocked {
		return "" // It is not memory that it lacks.
	}
	text := ""
	if len(q.Machine.GPUs) == 0 {
		text = p.lacksRAM(q)
	} else {
		var parts []string
		for _, r := range p.pieces.Ladder(&q.Machine) {
			if r.Kind != ways.GPUs || len(q.Machine.GPUs) > 1 {
				parts = append(parts, fmt.Sprintf("%s %s", r.Kind, r.Text))
			}
		}
		return fmt.Sprintf("%s: %s", q.Name, strings.Join(parts, ", "))
	}
	if !p.m.Evict && p.fits(q, ways.Evicts) {
		text += "; idle models there would have to be unloaded"
	}
	return text
}

func (p *planner) lacksRAM(q *Peer) string {
	host := &q.Machine.Host
	need := p.needInRAM(q)
	switch {
	case !host.Known:
		return fmt.Sprintf("%s: how much memory it has is not known", q.Name)
	case host.Lent == 0:
		return fmt.Sprintf("%s lends no memory", q.Name)
	case need > host.Lent:
		return fmt.Sprintf("%s needed, %s lends %s in all", ways.AtLeast(need), q.Name, ways.AtMost(host.Lent))
	case host.Busy != "":
		return fmt.Sprintf("%s takes nothing new for now: %s", q.Name, host.Busy)
	}
	return fmt.Sprintf("%s needed, %s has %s free now of the %s it lends", ways.AtLeast(need), q.Name, ways.AtMost(host.Free), ways.AtMost(host.Lent))
}

// needInRAM is the memory that the model takes on a peer's CPU.
func (p *planner) needInRAM(q *Peer) uint64 { return p.pieces.OnCPU(&q.Machine).Parts[0].Bytes }

func (p *planner) nameOf(id string) string {
	for i := range p.peers {
		if p.peers[i].ID == id {
			return p.peers[i].Name
		}
	}
	return id
}
