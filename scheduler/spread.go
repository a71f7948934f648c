package scheduler

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	// broken is why the group cannot go on, "" where it can.
	broken string
	// leaving is the id of a peer of it that is to be empty, and goer its name.
	leaving, goer string
	ready         bool
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
			g.leaving, g.goer = peer, p.Name
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

// standIn is a plan of whole replicas in which a group serves until one of them is ready.
func (g *spreading) standIn(plan placement.Plan, s placement.Snapshot) placement.Plan {
	runs := slices.ContainsFunc(plan.Orders, func(o placement.Order) bool { return o.Peer == g.coordinator })
	ready := slices.ContainsFunc(s.Peers, func(p placement.Peer) bool {
		return p.Ready && slices.ContainsFunc(plan.Orders, func(o placement.Order) bool { return o.Peer == p.ID })
	})
	if g.way.Group != nil && g.broken == "" && g.ready && !runs && !ready {
		plan.Orders = append(plan.Orders, placement.Order{Peer: g.coordinator, Way: g.way})
	}
	return plan
}

// grace says whether a group may go on although a peer of it is to be empty: as long as
// a whole replica there might.
func (g *spreading) grace(s placement.Snapshot) bool {
	return g.leaving == "" || slices.ContainsFunc(s.Peers, func(p placement.Peer) bool { return p.ID == g.leaving && (p.Grace || !p.Drained) })
}

// stays is the sentence about a group that goes on although no other one can be formed.
func (g *spreading) stays() string {
	const end = " is to be empty, and serves until others can"
	text, _, _ := strings.Cut(g.text, "; "+g.goer+end)
	if g.leaving == "" {
		return text
	}
	return text + "; " + g.goer + end
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
		return g.standIn(plan, s)
	case g.way.Group != nil && g.broken == "" && g.leaving == "" && !anew:
		return placement.Plan{Orders: []placement.Order{kept}, Text: g.text}
	}
	model := placement.Model{UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: 1, Only: m.Only, Evict: want.Evict}
	if !forced && g.way.Group == nil && placement.WholeSomewhere(model, s) {
		return plan
	}
	formed, no := l.form(v, m, model, s, g, now)
	switch {
	case no == nil:
		formed.Way.Group.ID = rand.Text()[:groupIDLength]
		return placement.Plan{
			Orders: []placement.Order{{Peer: formed.Coordinator, Way: formed.Way}},
			Text:   fmt.Sprintf("model %q: %s", m.shown, formed.Text),
		}
	case whole: // Forced, and it cannot be.
		plan.Text += "; not on several peers: " + no.Text
		return g.standIn(plan, s)
	case g.way.Group != nil && g.broken == "" && g.grace(s): // Better than nothing, for a while.
		return placement.Plan{Orders: []placement.Order{kept}, Text: g.stays()}
	case plan.Reason == string(NoCapacity) && len(model.Shape.Layers) > 0 && len(v.peers) > 1:
		plan.Text += "; nor on several peers: " + no.Text
		plan.Final = plan.Final && no.Verdict == ways.Never && !l.passing(v)
		plan.Later = plan.Later || no.Verdict == ways.Later || l.mayBeLater(v, m, model, s, now)
	}
	return plan
}

// mayBeLater says whether a group could be formed if those that had no memory free a
// moment ago had it again, and nothing else ran.
func (l *leading) mayBeLater(v *view, m *modelView, model placement.Model, s placement.Snapshot, now time.Time) bool {
	soft := false
	s.Peers = slices.Clone(s.Peers)
	for i := range s.Peers {
		if p := &s.Peers[i]; p.Failed == string(NoCapacity) && !p.Parked {
			p.Failed, p.FailedText, soft = "", "", true
		}
	}
	if !soft {
		return false
	}
	model.Evict = true
	_, no := shards.Form(l.problem(v, m, model, s, spreading{}, now))
	return no == nil || no.Verdict == ways.Later
}

// form forms a group, and remembers of the last problem of each model that there was
// none: this is asked at every look.
func (l *leading) form(v *view, m *modelView, model placement.Model, s placement.Snapshot, g spreading, now time.Time) (shards.Plan, *shards.Refusal) {
	problem := l.problem(v, m, model, s, g, now)
	key, err := json.Marshal([]any{problem.Members, problem.Turns, problem.Force, problem.Worst, problem.Bytes, servedKey(m.Model), m.Shape})
	if last, ok := l.unformed[m.uid]; ok && err == nil && last.problem == sha256.Sum256(key) {
		return shards.Plan{}, last.no
	}
	plan, no := shards.Form(problem)
	delete(l.unformed, m.uid)
	if no != nil && err == nil {
		l.unformed[m.uid] = unformed{sha256.Sum256(key), no}
	}
	return plan, no
}

// unformed is a problem without a plan.
type unformed struct {
	problem [sha256.Size]byte
	no      *shards.Refusal
}

// groupIDLength is how much of a random text tells one formation from all others.
const groupIDLength = 12

// problem is what a group is formed from: as much as the leader knows that no plan does.
func (l *leading) problem(v *view, m *modelView, model placement.Model, s placement.Snapshot, g spreading, now time.Time) shards.Problem {
	s.Peers = slices.Clone(s.Peers)
	for i := range s.Peers {
		q := &s.Peers[i]
		if _, works := g.way.Group.Share(q.ID); works || q.ID == g.coordinator {
			q.Cordoned = false // What runs there may.
		}
	}
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
			member.NoWork = &shards.Bar{Reason: cmp.Or(state.Reason, string(EngineFailed)), Text: fmt.Sprintf("%s takes no layers for now: %s", member.Name, state.Text)}
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
	if !slices.ContainsFunc(v.placements[m.uid].Ways, func(w ways.Way) bool { return w.Group != nil }) {
		return ""
	}
	holders := v.wholeHolders(m)
	only, to := "", ""
	for i := range v.peers {
		switch p := &v.peers[i]; {
		case !p.alive() || !p.trusted():
		case !slices.Contains(holders, p.id):
			to = cmp.Or(to, p.Name)
		case only != "":
			return ""
		default:
			only = p.Name
		}
	}
	if only == "" {
		return ""
	}
	text := fmt.Sprintf("only %s has the whole file of model %q, which runs on several machines: where it goes nobody can coordinate", only, m.shown)
	if to != "" {
		text += fmt.Sprintf(" (relay model pull %s --to %s)", m.shown, to)
	}
	return text
}

// tooLarge says of a model that no peer lends as much as it takes, as far as they tell, and
// all together do: where it runs, it runs on several.
func (v *view) tooLarge(m *modelView) bool {
	if m.Shape == nil || len(m.Shape.Layers) == 0 {
		return false // There is nothing to spread.
	}
	need, all := m.shape().CPU(), uint64(0)
	for i := range v.peers {
		p := &v.peers[i]
		if !p.takesShares() {
			continue
		}
		lent := p.advert.Lent
		for _, d := range p.advert.Devices {
			if d.ID != ways.HostID && !d.Unified {
				lent += d.Lent
			}
		}
		if lent >= need {
			return false
		}
		all += lent
	}
	return all >= need
}

// passing says whether somebody is away who may come back.
func (l *leading) passing(v *view) bool {
	return slices.ContainsFunc(v.peers, func(p peerView) bool { return !p.alive() && p.takesShares() })
}

// blame notes that a coordinator lost a worker of which nothing bad may be heard
// otherwise: the two cannot reach one another.
func (l *leading) blame(v *view, m *modelView, r replicaView, now time.Time) {
	for _, way := range v.placements[m.uid].Ways {
		if _, works := way.Group.Share(r.Lost); works && way.Group.ID == r.Group {
			l.setbacks.Note(setback.Key{Peer: r.Lost, UID: m.uid, Way: shareWay}, setback.Failure{
				Mark: "lost " + mark(r), Reason: string(PeerGone), Text: lostText(v.peer[r.peer].Name, r.Message), Build: v.commitOf(r.Lost),
			}, now)
		}
	}
}

// lostText says that a coordinator lost a worker, of whom the sentence is about.
func lostText(coordinator, message string) string {
	if _, why, ok := strings.Cut(message, wasLost); ok {
		return fmt.Sprintf("%s lost it (%s)", coordinator, why)
	}
	return fmt.Sprintf("%s could not use it (%s)", coordinator, message)
}

func (v *view) commitOf(id string) string {
	if p := v.peer[id]; p != nil {
		return p.advert.Engine.Commit
	}
	return ""
}

// hearShares takes in what the workers of a group say of their shares.
func (l *leading) hearShares(v *view, m *modelView, now time.Time) {
	for _, s := range m.shares {
		order, ok := v.shareOf(s.peer, m.uid)
		if !ok || order.group != s.Group {
			continue // Of what was, or of nothing.
		}
		key := setback.Key{Peer: s.peer, UID: m.uid, Way: shareWay}
		switch s.State {
		case StateReady:
			l.setbacks.Well(key, now)
		case StateFailed, StateRefused:
			why := Reason(s.Reason)
			if why == Unloaded { // For another model there; so the whole of it sleeps.
				l.sleep(m.uid, s.Message)
				continue
			}
			if why == PeerGone { // Its coordinator does not say what it is to fetch.
				key = setback.Key{Peer: order.coordinator, UID: m.uid, Way: string(ways.Shards)}
			}
			l.setbacks.Note(key, setback.Failure{
				Mark: s.version.String(), Parks: s.State == StateFailed && why == EngineFailed, Reason: s.Reason, Text: s.Message, Build: v.peer[s.peer].advert.Engine.Commit,
			}, now)
		}
	}
}
