package scheduler

import (
	"slices"
	"time"

	"relay/p2p/record"
	"relay/scheduler/leadership"
	"relay/scheduler/placement"
)

const (
	firstCooldown = time.Second
	lastCooldown  = 5 * time.Minute
	// provenAfter is how long a replica runs before its earlier failures are
	// forgotten.
	provenAfter = time.Minute
)

// leading is this peer's part as a leader: it orders where the models run that
// it leads. What a peer refused or failed at is not asked of it again for a
// while, on this leader's own clock.
type leading struct {
	s       *Scheduler
	setback map[replicaKey]*setback
	drained map[string]time.Time // Since when a peer is drained; by peer.
}

type setback struct {
	version  record.Version // Of the replica record that told it.
	failures int
	until    time.Time
	reason   string
	text     string
	well     time.Time // Since when it is ready again; zero while it is not.
}

func newLeading(s *Scheduler) *leading {
	return &leading{s: s, setback: map[replicaKey]*setback{}, drained: map[string]time.Time{}}
}

// decide writes the placements of the models that this peer leads.
func (l *leading) decide(v *view) {
	if !l.s.Mesh.Surveyed() {
		return // Who seems gone may only not have been reached yet.
	}
	l.noteDrained(v, time.Now())
	for _, m := range v.models {
		if claim, mine := l.claim(v, m); mine {
			l.order(v, m, claim)
		}
	}
	for key := range l.setback {
		if v.model[key.uid] == nil {
			delete(l.setback, key)
		}
	}
}

// noteDrained remembers since when peers are drained.
func (l *leading) noteDrained(v *view, now time.Time) {
	for i := range v.peers {
		p := &v.peers[i]
		if _, known := l.drained[p.id]; p.Draining && !known {
			l.drained[p.id] = now
		}
	}
	for id := range l.drained {
		if p := v.peer[id]; p == nil || !p.Draining {
			delete(l.drained, id)
		}
	}
}

// claim works out whether this peer leads a model, and under which fence.
func (l *leading) claim(v *view, m *modelView) (leadership.Fence, bool) {
	current := v.placements[m.uid]
	able := (*peerView).able
	if !slices.ContainsFunc(v.peers, func(p peerView) bool { return !p.gone() && p.able() }) {
		able = (*peerView).ableButDrained // Somebody has to say that nobody else is there.
	}
	var candidates []leadership.Candidate
	for i := range v.peers {
		p := &v.peers[i]
		candidates = append(candidates, leadership.Candidate{ID: p.id, Able: able(p), Alive: !p.gone(), Settled: p.advert.Settled})
	}
	d := leadership.Leader(m.uid, leadership.Claim{Peer: current.leader, Fence: current.fence()}, candidates)
	return d.Fence, d.Leader == l.s.self
}

// order decides where one model runs, and writes it down if it is news.
func (l *leading) order(v *view, m *modelView, claim leadership.Fence) {
	now := time.Now()
	current, known := v.placements[m.uid]
	plan, _ := placement.Place(placement.Model{UID: m.uid, Name: m.shown, CID: m.CID, Need: m.Need, Min: 1}, l.snapshot(v, m, now))
	mine := known && current.leader == l.s.self && current.fence() == claim
	sequence := uint64(0)
	if mine {
		sequence = current.version[2] + 1
		if slices.Equal(current.Peers, plan.Peers) && current.Reason == plan.Reason && !l.again(m, plan.Peers) {
			return
		}
	}
	order := Placement{Peers: plan.Peers, Text: bounded(plan.Text, maxSentence), Reason: plan.Reason}
	if len(order.Peers) == 0 {
		order.Was = last(current.Placement)
	}
	version := record.Version{claim.Epoch, claim.Rank, sequence}
	if err := l.s.Mesh.PutPlacement(m.uid, version, order); err != nil {
		l.s.log.Warn("placement not written", "model", m.shown, "error", err)
		return
	}
	l.s.log.Info("placed", "model", m.shown, "epoch", claim.Epoch, "text", plan.Text)
}

// again says whether a peer that failed is to try once more under a new order.
func (l *leading) again(m *modelView, peers []string) bool {
	for _, r := range m.replicas {
		failed := r.State == StateFailed || r.State == StateRefused
		if back := l.setback[replicaKey{r.peer, m.uid}]; failed && back != nil && back.version == r.version && slices.Contains(peers, r.peer) {
			return true // Its cooldown is over, or the plan would not name it.
		}
	}
	return false
}

// snapshot is what placement decides from.
func (l *leading) snapshot(v *view, m *modelView, now time.Time) placement.Snapshot {
	var s placement.Snapshot
	holders := v.wholeHolders(m)
	current := v.placements[m.uid]
	grace := moveTime
	if slices.ContainsFunc(m.replicas, func(r replicaView) bool {
		return r.State == StateLoading && !v.peer[r.peer].Draining && v.peer[r.peer].alive()
	}) {
		grace = max(grace, m.budget()) // It serves until that one is ready.
	}
	for i := range v.peers {
		p := &v.peers[i]
		view := placement.Peer{
			ID: p.id, Name: p.Name, Alive: !p.gone(), Draining: p.advert.Draining, Trust: string(p.Trust),
			Drained: p.Draining, Grace: now.Sub(l.drained[p.id]) < grace, Cordoned: p.Cordoned,
			Engine: p.adverts && p.advert.NoEngine == "", NoEngine: p.advert.NoEngine,
			Lent: p.advert.Lent, Free: p.advert.Room, Holds: slices.Contains(holders, p.id), Gone: v.gone(p.id, m),
		}
		// An order stands until it is answered.
		view.Placed = slices.Contains(last(current.Placement), p.id)
		view.Runs = slices.Contains(current.Peers, p.id) && current.leader == l.s.self
		for _, r := range m.replicas {
			if r.peer != p.id {
				continue
			}
			switch r.State {
			case StateReady, StateLoading:
				view.Runs, view.Ready = true, r.State == StateReady
				l.wentWell(r, m, now)
			case StateFailed, StateRefused:
				view.Runs = false
				l.setBack(r, m, now)
			case StateDraining:
				view.Runs = false
			}
		}
		if back := l.setback[replicaKey{p.id, m.uid}]; back != nil {
			if now.Before(back.until) {
				view.Failed, view.FailedText = back.reason, back.text
			}
		}
		s.Peers = append(s.Peers, view)
	}
	return s
}

// setBack notes a failure, once, and for how long the peer is left alone.
func (l *leading) setBack(r replicaView, m *modelView, now time.Time) {
	key := replicaKey{r.peer, m.uid}
	back := l.setback[key]
	if back == nil {
		back = &setback{}
		l.setback[key] = back
	}
	if back.version != r.version {
		wait := min(firstCooldown<<min(back.failures, 16), lastCooldown)
		*back = setback{version: r.version, failures: back.failures + 1, until: now.Add(wait), reason: r.Reason, text: r.Message}
	}
}

// wentWell forgets the failures of a replica that has been ready for long enough.
func (l *leading) wentWell(r replicaView, m *modelView, now time.Time) {
	key := replicaKey{r.peer, m.uid}
	back := l.setback[key]
	switch {
	case back == nil || r.State != StateReady:
	case back.well.IsZero():
		back.well = now
	case now.Sub(back.well) >= provenAfter:
		delete(l.setback, key)
	}
}

// last is where a model is placed, or was before it ran nowhere.
func last(p Placement) []string {
	if len(p.Peers) > 0 {
		return p.Peers
	}
	return p.Was
}
