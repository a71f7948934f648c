package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"relay/p2p/record"
	"relay/scheduler/demand"
	"relay/scheduler/leadership"
	"relay/scheduler/placement"
	"relay/scheduler/setback"
)

// softPause is how long a peer is left alone for a model that it has just
// unloaded, or that it had no device free for: what it told of its devices may
// still be on its way.
const softPause = time.Second

// leading is this peer's part as a leader: it orders where the models run that
// it leads. What a peer refused or failed at is not asked of it again for a
// while, on this leader's own clock.
type leading struct {
	s        *Scheduler
	setbacks *setback.Book
	demand   *demand.Book
	soft     map[replicaKey]softRefusal
	retried  map[replicaKey]record.Version // The reports of failures after which a new order was written.
	drained  map[string]time.Time          // Since when a peer is drained; by peer.
	adopted  map[string]leadership.Fence

	mu    sync.Mutex
	asked []ask // That was asked of this leader since it last decided.
}

// ask is something that was asked of the leader of a model.
type ask struct {
	uid string
	act Act
}

// softRefusal is one that says nothing about whether it would work now.
type softRefusal struct {
	version record.Version // Of the replica record that told it.
	until   time.Time
	reason  string
	text    string
}

func newLeading(s *Scheduler) *leading {
	return &leading{
		s: s, setbacks: setback.New(), demand: demand.New(), soft: map[replicaKey]softRefusal{}, retried: map[replicaKey]record.Version{},
		drained: map[string]time.Time{}, adopted: map[string]leadership.Fence{},
	}
}

// decide writes the placements of the models that this peer leads.
func (l *leading) decide(v *view) {
	if !l.s.Mesh.Surveyed() {
		return // Who seems gone may only not have been reached yet.
	}
	now := time.Now()
	l.noteDrained(v, now)
	l.mu.Lock()
	asked := l.asked
	l.asked = nil
	l.mu.Unlock()
	for _, m := range v.models {
		claim, mine := l.claim(v, m)
		if !mine {
			delete(l.adopted, m.uid)
			continue
		}
		l.adopt(v, m, claim)
		l.order(v, m, claim, now, actsFor(m.uid, asked))
	}
	alive := func(uid string) bool { return v.model[uid] != nil }
	l.setbacks.Keep(alive)
	l.demand.Keep(alive)
	gone := func(key replicaKey) bool { return !alive(key.uid) || v.peer[key.peer] == nil }
	maps.DeleteFunc(l.soft, func(key replicaKey, _ softRefusal) bool { return gone(key) })
	maps.DeleteFunc(l.retried, func(key replicaKey, _ record.Version) bool { return gone(key) })
}

func actsFor(uid string, asked []ask) (acts []Act) {
	for _, a := range asked {
		if a.uid == uid {
			acts = append(acts, a.act)
		}
	}
	return acts
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

// adopt takes over what the leader before left in its last placement.
func (l *leading) adopt(v *view, m *modelView, claim leadership.Fence) {
	if l.adopted[m.uid] == claim {
		return
	}
	l.adopted[m.uid] = claim
	current, known := v.placements[m.uid]
	if !known {
		return
	}
	l.setbacks.Forget(m.uid)
	l.demand.Adopt(m.uid, demand.Past{Asleep: current.Asleep, Extra: current.Extra})
	if current.Served != servedKey(m.Model) {
		return // What failed was another definition.
	}
	for _, p := range current.Parked {
		l.setbacks.Adopt(setback.Key{Peer: p.Peer, UID: m.uid}, p)
	}
}

// order decides where one model runs, and writes it down if it is news.
func (l *leading) order(v *view, m *modelView, claim leadership.Fence, now time.Time, acts []Act) {
	current, known := v.placements[m.uid]
	l.hear(v, m, now)
	served := servedKey(m.Model)
	if current.Served != served {
		l.setbacks.Forget(m.uid)
	}
	restart := current.Restart
	for _, act := range acts {
		switch act {
		case ActWant, ActLoad:
			l.demand.Asked(m.uid, now)
		case ActUnload:
			l.demand.Slept(m.uid)
		case ActRetry:
			l.setbacks.Forget(m.uid)
			l.demand.Asked(m.uid, now)
		case ActRestart:
			restart++
		}
	}
	snapshot := l.snapshot(v, m, now)
	want := l.want(v, m, snapshot, now)
	plan, turn := l.placeRestart(current, restartOf(v, m, current, restart), func(more int) placement.Plan {
		return l.place(m, snapshot, want, more)
	})
	past := l.demand.Past(m.uid)
	order := Placement{Text: bounded(plan.Text, maxSentence), Reason: plan.Reason, Evict: want.Evict, Asleep: past.Asleep, Extra: past.Extra,
		Final: plan.Final, Parked: bounded64(l.setbacks.Parked(m.uid)), Restart: restart, Turn: turn, Served: served}
	for _, o := range plan.Orders[:min(len(plan.Orders), maxListed)] {
		order.Peers, order.Ways = append(order.Peers, o.Peer), append(order.Ways, o.Way)
	}
	sequence := uint64(0)
	if known && current.leader == l.s.self && current.fence() == claim {
		sequence = current.version[2] + 1
		if sameOrder(current.Placement, order) && len(l.again(m, order.Peers)) == 0 {
			return
		}
	}
	if len(order.Peers) == 0 {
		order.Was = last(current.Placement)
	}
	version := record.Version{claim.Epoch, claim.Rank, sequence}
	if err := l.s.Mesh.PutPlacement(m.uid, version, order); err != nil {
		l.s.log.Warn("placement not written", "model", m.shown, "error", err)
		return
	}
	for _, r := range l.again(m, order.Peers) {
		l.retried[replicaKey{r.peer, m.uid}] = r.version
	}
	l.s.log.Info("placed", "model", m.shown, "epoch", claim.Epoch, "text", plan.Text)
}

// bounded64 bounds what is kept of parked peers by what a record may list.
func bounded64(list []setback.Parked) []setback.Parked { return list[:min(len(list), maxListed)] }

// sameOrder says whether an order is no news. Its sentence, what is predicted, and
// whether others may be unloaded for it, may change while nothing else does: a peer
// that has no room without that says so, and gets a new order.
func sameOrder(a, b Placement) bool {
	if len(a.Peers) != len(b.Peers) || a.Reason != b.Reason || a.Asleep != b.Asleep || a.Final != b.Final || a.Extra != b.Extra ||
		a.Restart != b.Restart || a.Turn != b.Turn || a.Served != b.Served || len(a.Parked) != len(b.Parked) {
		return false
	}
	for i, peer := range b.Peers { // In which order they are named changes with what is free there.
		j := slices.Index(a.Peers, peer)
		if j < 0 || i < len(b.Ways) && j < len(a.Ways) && !sameWay(a.Ways[j], b.Ways[i]) {
			return false
		}
	}
	return true
}

// want is how many replicas are wanted now.
func (l *leading) want(v *view, m *modelView, s placement.Snapshot, now time.Time) demand.Want {
	var ready []demand.Replica
	running, holders := 0, 0
	for _, p := range s.Peers {
		if p.Runs {
			running++
		}
		if p.Holds && p.Alive {
			holders++
		}
	}
	for _, r := range m.replicas {
		if p := v.peer[r.peer]; r.State == StateReady && p.alive() && !p.Draining {
			ready = append(ready, demand.Replica{Peer: r.peer, Pressed: r.Load == LoadPressed, Quiet: r.Load == LoadQuiet})
		}
	}
	most := m.Max
	if most == 0 {
		most = max(m.Min, holders, 1) // Load alone has no files fetched unless that was said.
	}
	most = min(most, maxListed)
	return l.demand.Look(m.uid, demand.Policy{Min: m.Min, Max: most, Pinned: m.Pinned}, running, ready, now)
}

// place chooses the peers, for so many replicas more than are wanted.
func (l *leading) place(m *modelView, s placement.Snapshot, want demand.Want, more int) placement.Plan {
	model := placement.Model{
		UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: want.Count + more, Only: m.Only, Evict: want.Evict,
		Fetch: mayFetch(m.Model, s, want),
	}
	if want.Less != "" {
		for i := range s.Peers {
			if p := &s.Peers[i]; p.ID == want.Less { // The others come before it.
				p.Ready, p.Placed, p.Runs = false, false, false
				p.Failed, p.FailedText = string(Unloaded), "it has been quiet, and one replica fewer is wanted"
			}
		}
	}
	plan := placement.Place(model, s)
	if want.Count == 0 && len(plan.Orders) == 0 {
		plan.Text = fmt.Sprintf("model %q: %s", m.shown, cmp.Or(want.Why, "it sleeps until it is asked for"))
		plan.Reason, plan.Final = "", false
	}
	return plan
}

// mayFetch says whether peers without the files of a model may be told to fetch
// them. They are not where a peer that has them is only in trouble for a moment, or
// goes: it may well be back before they have come. Nor for load alone, unless
// somebody said how far that may go.
func mayFetch(m Model, s placement.Snapshot, want demand.Want) bool {
	if want.Grow && m.Max == 0 {
		return false
	}
	return !slices.ContainsFunc(s.Peers, func(p placement.Peer) bool {
		return p.Holds && p.Alive && (p.Draining || p.Failed != "" && !p.Parked)
	})
}

// again are the failures of peers that are to try once more under a new order,
// each once.
func (l *leading) again(m *modelView, peers []string) (failed []replicaView) {
	for _, r := range m.replicas {
		if r.State != StateFailed && r.State != StateRefused || !slices.Contains(peers, r.peer) {
			continue
		}
		key := replicaKey{r.peer, m.uid}
		if l.retried[key] == r.version {
			continue
		}
		// The plan would not name the peer unless its time had come.
		if l.soft[key].version == r.version || l.setbacks.Look(setback.Key{Peer: r.peer, UID: m.uid}, "", time.Time{}).Mark == mark(r) {
			failed = append(failed, r)
		}
	}
	return failed
}

// hear takes in what the peers say of their replicas.
func (l *leading) hear(v *view, m *modelView, now time.Time) {
	serving, unloaded := false, false
	for _, r := range m.replicas {
		p := v.peer[r.peer]
		key := setback.Key{Peer: r.peer, UID: m.uid}
		switch r.State {
		case StateReady, StateLoading:
			serving = serving || !p.gone()
			if r.State == StateReady {
				l.setbacks.Well(key, now)
			}
		case StateFailed, StateRefused:
			if why := Reason(r.Reason); why == Unloaded || why == DeviceBusy {
				soft, known := l.soft[replicaKey{r.peer, m.uid}]
				if !known || soft.version != r.version {
					l.soft[replicaKey{r.peer, m.uid}] = softRefusal{r.version, now.Add(softPause), r.Reason, r.Message}
					unloaded = unloaded || why == Unloaded && slices.Contains(v.placements[m.uid].Peers, r.peer)
				}
				continue
			}
			l.setbacks.Note(key, setback.Failure{Mark: mark(r), Parks: r.State == StateFailed, Reason: r.Reason, Text: r.Message, Build: p.advert.Engine.Commit}, now)
		}
	}
	if !unloaded {
		return
	}
	if past := l.demand.Past(m.uid); !serving {
		l.demand.Slept(m.uid)
	} else if past.Extra > 0 { // It is the one that the load needs no more.
		past.Extra--
		l.demand.Adopt(m.uid, past)
	}
}

// mark names what a peer said of a replica.
func mark(r replicaView) string { return r.version.String() }

// last is where a model is placed, or was before it ran nowhere.
func last(p Placement) []string {
	if len(p.Peers) > 0 {
		return p.Peers
	}
	return p.Was
}
