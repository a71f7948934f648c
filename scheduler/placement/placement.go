// Package placement decides on which peers a model runs. It is pure: the same
// model and the same snapshot give the same plan, with one sentence for what
// was chosen and one for each peer that was not.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The reasons for which a peer or a model is passed over; they are reasons of
// the closed list in scheduler.
const (
	noHolder   = "no_holder"
	noCapacity = "no_capacity"
	noEngine   = "no_engine"
	peerGone   = "peer_gone"
	draining   = "draining"
	notAllowed = "not_allowed"
)

// Model is what is to be placed.
type Model struct {
	UID, Name, CID string
	// Need is the memory of one replica, in bytes.
	Need uint64
	// Min is how many replicas are wanted; 0 means 1.
	Min int
}

// Snapshot is the mesh as one leader sees it.
type Snapshot struct{ Peers []Peer }

// Peer is one member, seen for one model.
type Peer struct {
	ID, Name string
	Alive    bool
	Draining bool
	// Trust is replicas, shard-only or client.
	Trust string
	// Engine says that there is a usable build; NoEngine why there is none.
	Engine   bool
	NoEngine string
	// Lent is what the peer offers in all and Free what is left of it, in bytes.
	Lent, Free uint64
	// Holds: the peer has the model's file whole.
	Holds bool
	// Runs: the model is loaded or loading there, its memory taken already.
	// Ready: it serves.
	Runs, Ready bool
	// Failed is the reason of a failure or refusal that is not to be tried
	// again yet, FailedText its sentence.
	Failed, FailedText string
}

// Plan is where the model is to run.
type Plan struct {
	// Peers run one whole replica each.
	Peers []string
	// Text says why, in one sentence.
	Text string
	// Reason is why nothing runs; empty when Peers is not.
	Reason string
}

// Rejection is why one peer was not chosen.
type Rejection struct{ Peer, Reason, Text string }

// Place chooses peers for a model: those that run it already, ready ones first,
// then those with the most memory left.
func Place(m Model, s Snapshot) (Plan, []Rejection) {
	var fit []Peer
	var rejections []Rejection
	for _, p := range s.Peers {
		if reason, text := reject(m, p); reason != "" {
			rejections = append(rejections, Rejection{p.ID, reason, text})
		} else {
			fit = append(fit, p)
		}
	}
	slices.SortFunc(fit, func(a, b Peer) int {
		return cmp.Or(first(a.Ready, b.Ready), first(a.Runs, b.Runs), cmp.Compare(b.Free, a.Free), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(rejections, func(a, b Rejection) int { return cmp.Compare(a.Peer, b.Peer) })
	if len(fit) == 0 {
		return nothing(m, s, rejections), rejections
	}
	chosen := fit[:min(len(fit), max(1, m.Min))]
	var plan Plan
	var names []string
	for _, p := range chosen {
		plan.Peers = append(plan.Peers, p.ID)
		names = append(names, p.Name)
	}
	best := chosen[0]
	switch {
	case best.Runs:
		plan.Text = fmt.Sprintf("model %q: stays on %s", m.Name, strings.Join(names, ", "))
	default:
		plan.Text = fmt.Sprintf("model %q: on %s, which holds the file and has %s free of the %s it lends; %s are needed",
			m.Name, strings.Join(names, ", "), size(best.Free), size(best.Lent), size(m.Need))
	}
	return plan, rejections
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// reject says why a peer cannot run the model, the most lasting cause first.
func reject(m Model, p Peer) (reason, text string) {
	switch {
	case !p.Alive:
		return peerGone, fmt.Sprintf("%s does not answer", p.Name)
	case p.Trust != "replicas":
		return notAllowed, fmt.Sprintf("%s may not run whole models (its trust is %s)", p.Name, p.Trust)
	case !p.Holds:
		return noHolder, fmt.Sprintf("%s does not hold the file (relay model pull %s there)", p.Name, m.Name)
	case p.Draining:
		return draining, fmt.Sprintf("%s is draining", p.Name)
	case !p.Engine:
		return noEngine, fmt.Sprintf("%s has no engine: %s", p.Name, cmp.Or(p.NoEngine, "it has not said why"))
	case p.Failed != "":
		return p.Failed, fmt.Sprintf("%s: %s", p.Name, p.FailedText)
	case p.Runs:
		return "", ""
	case m.Need > p.Lent:
		return noCapacity, fmt.Sprintf("%s needed, %s lends %s in all", size(m.Need), p.Name, size(p.Lent))
	case m.Need > p.Free:
		return noCapacity, fmt.Sprintf("%s needed, %s of the %s that %s lends is free right now", size(m.Need), size(p.Free), size(p.Lent), p.Name)
	}
	return "", ""
}

// nothing is the plan where no peer can run the model: the sentence names what
// would have to change.
func nothing(m Model, s Snapshot, rejections []Rejection) Plan {
	var held, away []string
	for _, p := range s.Peers {
		switch {
		case p.Holds && p.Alive:
			held = append(held, p.Name)
		case p.Holds:
			away = append(away, p.Name)
		}
	}
	switch {
	case len(held) == 0 && len(away) > 0:
		return Plan{Reason: noHolder, Text: fmt.Sprintf("model %q: the peers that hold it whole are away: %s", m.Name, strings.Join(away, ", "))}
	case len(held) == 0:
		return Plan{Reason: noHolder, Text: fmt.Sprintf("model %q: no peer holds it whole", m.Name)}
	}
	// Of those that hold it, the first cause that could pass or be mended.
	reason := ""
	var texts []string
	for _, r := range rejections {
		if r.Reason == noHolder || r.Reason == peerGone {
			continue
		}
		reason = cmp.Or(reason, r.Reason)
		texts = append(texts, r.Text)
	}
	return Plan{Reason: cmp.Or(reason, noCapacity), Text: fmt.Sprintf("model %q runs nowhere: %s", m.Name, strings.Join(texts, "; "))}
}

func size(bytes uint64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}
