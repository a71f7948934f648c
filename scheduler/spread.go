package scheduler

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"relay/scheduler/demand"
	"relay/scheduler/placement"
	"relay/scheduler/setback"
	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// spreading is what a leader knows of a model that runs, or may run, on several peers.
type spreading struct {
	coordinator string
	way         ways.Way // Its Group is nil where none runs.
	text        string
	// broken is why the group cannot go on, "" where it can. leaving: it can, and a peer
	// of it is to be empty.
	broken  string
	leaving bool
	ready   bool
}

// spreadOf is the group that a model's placement has.
func (l *leading) spreadOf(v *view, m *modelView, current placementView, served string) spreading {
	for i, way := range current.Ways {
		if way.Group == nil {
			continue
		}
		g := spreading{coordinator: current.Peers[i], way: way, text: current.Text}
		g.judge(v, m)
		switch {
		case current.Served != served:
			g.broken = "it is served another way now"
		case m.Only != "":
			g.broken = "it is to run on one peer only"
		}
		return g
	}
	return spreading{}
}

// judge finds out whether a group can go on.
func (g *spreading) judge(v *view, m *modelView) {
	is := func(peer, what string, serves bool) {
		p := v.peer[peer]
		switch {
		case p == nil:
			g.broken = cmp.Or(g.broken, peer+" is no member any more")
		case !p.alive():
			g.broken = cmp.Or(g.broken, p.Name+" does not answer")
		case !serves || p.advert.Paused != "":
			g.broken = cmp.Or(g.broken, fmt.Sprintf("%s may not %s any more", p.Name, what))
		case p.Draining || p.advert.Draining:
			g.leaving = true
		}
	}
	is(g.coordinator, "coordinate", v.peer[g.coordinator] != nil && v.peer[g.coordinator].trusted())
	for _, s := range g.way.Group.Shares {
		p := v.peer[s.Peer]
		is(s.Peer, "take these layers", p.takesShares() && (s.From > 0 || p.trusted()))
		if state := v.shareState(s.Peer, m.uid); state != nil && state.Group == g.way.Group.ID && (state.State == StateFailed || state.State == StateRefused) {
			g.broken = cmp.Or(g.broken, fmt.Sprintf("%s: %s", v.peer[s.Peer].Name, state.Message))
		}
	}
	for _, r := range m.replicas {
		if r.peer != g.coordinator || r.Group != g.way.Group.ID {
			continue
		}
		g.ready = r.State == StateReady
		if r.State == StateFailed || r.State == StateRefused {
			g.broken = cmp.Or(g.broken, fmt.Sprintf("%s: %s", v.peer[r.peer].Name, r.Message))
		}
	}
}

// spread plans a model that runs on several peers where no one can hold it whole, or
// somebody wants that. plan is what was planned for whole replicas: where these can be
// had, a group only stands in until one is ready. anew says that its engines are to be
// started anew.
func (l *leading) spread(v *view, m *modelView, s placement.Snapshot, g spreading, want demand.Want, anew bool, plan placement.Plan, now time.Time) placement.Plan {
	forced := l.spreads[m.uid]
	kept := placement.Order{Peer: g.coordinator, Way: g.way}
	whole := len(plan.Orders) > 0
	switch {
	case want.Count < 1:
		return plan
	case whole && !forced:
		runs := slices.ContainsFunc(plan.Orders, func(o placement.Order) bool { return o.Peer == g.coordinator })
		ready := slices.ContainsFunc(s.Peers, func(p placement.Peer) bool {
			return p.Ready && slices.ContainsFunc(plan.Orders, func(o placement.Order) bool { return o.Peer == p.ID })
		})
		if g.way.Group != nil && g.broken == "" && g.ready && !runs && !ready {
			plan.Orders = append(plan.Orders, kept)
		}
		return plan
	case g.way.Group != nil && g.broken == "" && !g.leaving && !anew:
		return placement.Plan{Orders: []placement.Order{kept}, Text: g.text}
	}
	model := placement.Model{UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: 1, Only: m.Only, Evict: want.Evict}
	if !forced && g.way.Group == nil && placement.WholeSomewhere(model, s) {
		return plan
	}
	formed, no := shards.Form(l.problem(v, m, model, s, now))
	switch {
	case no == nil:
		formed.Way.Group.ID = rand.Text()[:groupIDLength]
		return placement.Plan{
			Orders: []placement.Order{{Peer: formed.Coordinator, Way: formed.Way}},
			Text:   fmt.Sprintf("model %q: %s", m.shown, formed.Text),
		}
	case g.way.Group != nil && g.broken == "": // Better than nothing, while it lasts.
		return placement.Plan{Orders: []placement.Order{kept}, Text: g.text}
	case whole: // Forced, and it cannot be.
		plan.Text += "; not on several peers: " + no.Text
	case plan.Reason == string(NoCapacity) && len(model.Shape.Layers) > 0 && len(v.peers) > 1:
		plan.Text += "; nor on several peers: " + no.Text
		plan.Final = plan.Final && no.Verdict == ways.Never && !l.passing(v)
		plan.Later = plan.Later || no.Verdict == ways.Later
	}
	return plan
}

// groupIDLength is how much of a random text tells one formation from all others.
const groupIDLength = 12

// problem is what a group is formed from: as much as the leader knows that no plan does.
func (l *leading) problem(v *view, m *modelView, model placement.Model, s placement.Snapshot, now time.Time) shards.Problem {
	p := placement.Sharded(model, s)
	p.Force = l.spreads[m.uid]
	p.Turns = v.turnsOf(m)
	for i := range p.Members {
		member := &p.Members[i]
		if member.Barred != nil {
			continue
		}
		at := v.peer[member.ID]
		state := l.setbacks.Look(setback.Key{Peer: member.ID, UID: m.uid, Way: shareWay}, at.advert.Engine.Commit, now)
		switch {
		case !at.alive():
			member.Barred = &shards.Bar{Reason: string(PeerGone), Text: member.Name + " does not answer"}
		case state.Blocked || state.Parked:
			member.NoWork = &shards.Bar{Reason: cmp.Or(state.Reason, string(EngineFailed)), Text: fmt.Sprintf("%s failed to take layers: %s", member.Name, state.Text)}
		}
	}
	return p
}

// shareWay is under what a failure of a worker is remembered; that of a coordinator is
// under the kind of its way.
const shareWay = "share"

// turnsOf is how many round trips to each worker one token of a model takes, as it was
// counted wherever that was last; 0 where it never was.
func (v *view) turnsOf(m *modelView) float64 {
	for i := range v.peers {
		for _, s := range v.seen[replicaKey{v.peers[i].id, m.uid}] {
			if s.Kind == ways.Shards && s.Turns > 0 {
				return s.Turns
			}
		}
	}
	return 0
}

// copiesWarning says of a model that runs on several peers that only one of them could
// coordinate it; "" where more could.
func (v *view) copiesWarning(m *modelView) string {
	if !v.spreads(m.uid) {
		return ""
	}
	only, to := "", "PEER"
	for _, id := range v.wholeHolders(m) {
		if p := v.peer[id]; p.alive() && p.trusted() {
			if only != "" {
				return ""
			}
			only = p.Name
		}
	}
	for _, s := range m.shares {
		if p := v.peer[s.peer]; p.trusted() {
			to = p.Name
		}
	}
	if only == "" {
		return ""
	}
	return fmt.Sprintf("only %s has the whole file of model %q, which runs on several machines: where it goes nobody can coordinate (relay model pull %s --to %s)", only, m.shown, m.shown, to)
}

// passing says whether somebody is away who may come back.
func (l *leading) passing(v *view) bool {
	return slices.ContainsFunc(v.peers, func(p peerView) bool { return !p.alive() && p.takesShares() })
}

// hearShares takes in what workers say of their shares.
func (l *leading) hearShares(v *view, m *modelView, now time.Time) {
	for _, s := range m.shares {
		key := setback.Key{Peer: s.peer, UID: m.uid, Way: shareWay}
		switch s.State {
		case StateReady:
			l.setbacks.Well(key, now)
		case StateFailed, StateRefused:
			why := Reason(s.Reason)
			if why == Unloaded { // For another model there; so the whole of it sleeps.
				if current := v.placements[m.uid]; slices.ContainsFunc(current.Ways, func(w ways.Way) bool { return w.Group != nil && w.Group.ID == s.Group }) {
					l.sleep(m.uid, s.Message)
				}
				continue
			}
			l.setbacks.Note(key, setback.Failure{
				Mark: s.version.String(), Parks: s.State == StateFailed && why == EngineFailed, Reason: s.Reason, Text: s.Message, Build: v.peer[s.peer].advert.Engine.Commit,
			}, now)
		}
	}
}
