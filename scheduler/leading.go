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
	"relay/scheduler/ways"
)

// softPause is how long a peer is left alone for a model that it had no device free
// for: what it told of its devices may still be on its way.
const softPause = time.Second

const (
	// shortPause is how long one is left alone that had no memory free: its ledger
	// knows what its advert did not say yet. It doubles up to shortLongest, and begins
	// anew after shortForgotten.
	shortPause     = 5 * time.Second
	shortLongest   = 2 * time.Minute
	shortForgotten = 10 * time.Minute
	// busyPause is how long the GPUs of a peer are left alone for a model that had to
	// leave one of them. It doubles while that happens again and again, up to
	// busyLongest, and begins anew after busyForgotten.
	busyPause     = 15 * time.Second
	busyLongest   = 10 * time.Minute
	busyForgotten = 30 * time.Minute
)

// rewordEvery is how often the sentence about a model that runs nowhere is written
// anew for its figures alone. Where somebody asks that is done at once.
const rewordEvery = time.Minute

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
	slept    map[string]string    // Why models were unloaded, by uid.
	turns    map[string]turn      // Whose turn it is to restart, by uid.
	worded   map[string]time.Time // When their placements were last written, by uid.
	unformed map[string]unformed  // The last group that could not be formed, by uid.
	spreads  map[string]bool      // The models that somebody wants on several peers, by uid.

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
	offGPU  time.Time // Until when it is to stay off the peer's GPUs,
	busy    int       // for so many times that it had to leave one.
	short   int       // For so many times it had no memory free.
	last    time.Time // When that, or the other, was so last.
	reason  string
	text    string
}

func newLeading(s *Scheduler) *leading {
	return &leading{
		s: s, setbacks: setback.New(), demand: demand.New(), soft: map[replicaKey]softRefusal{}, retried: map[replicaKey]record.Version{},
		drained: map[string]time.Time{}, adopted: map[string]leadership.Fence{}, slept: map[string]string{}, turns: map[string]turn{}, worded: map[string]time.Time{}, unformed: map[string]unformed{}, spreads: map[string]bool{},
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
	maps.DeleteFunc(l.worded, func(uid string, _ time.Time) bool { return !alive(uid) })
	maps.DeleteFunc(l.adopted, func(uid string, _ leadership.Fence) bool { return !alive(uid) })
	maps.DeleteFunc(l.slept, func(uid, _ string) bool { return !alive(uid) })
	maps.DeleteFunc(l.turns, func(uid string, _ turn) bool { return !alive(uid) })
	maps.DeleteFunc(l.unformed, func(uid string, _ unformed) bool { return !alive(uid) })
	maps.DeleteFunc(l.spreads, func(uid string, _ bool) bool { return !alive(uid) })
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
	l.slept[m.uid] = sleepReason(m.shown, current.Text)
	l.spreads[m.uid] = current.Spread
	if current.Served != servedKey(m.Model) {
		return // What failed was another definition.
	}
	for _, p := range current.Parked {
		l.setbacks.Adopt(setback.Key{Peer: p.Peer, UID: m.uid, Way: p.Way}, p)
	}
}

// order decides where one model runs, and writes it down if it is news.
func (l *leading) order(v *view, m *modelView, claim leadership.Fence, now time.Time, acts []Act) {
	current, known := v.placements[m.uid]
	l.hear(v, m, now)
	l.hearShares(v, m, now)
	served := servedKey(m.Model)
	if current.Served != served {
		l.setbacks.Forget(m.uid)
	}
	restart, asked := current.Restart, false
	for _, act := range acts {
		switch act {
		case ActWant:
			asked = true
			l.demand.Asked(m.uid, now)
		case ActLoad, ActSpread:
			asked = true
			l.spreads[m.uid] = act == ActSpread
			l.demand.Asked(m.uid, now)
		case ActUnload:
			delete(l.spreads, m.uid)
			l.sleep(m.uid, "unloaded by hand")
		case ActRetry:
			l.setbacks.Forget(m.uid)
		case ActRestart:
			for _, r := range m.replicas { // Whoever led before may have counted further.
				restart = max(restart, r.Restart)
			}
			restart++
		}
	}
	snapshot := l.snapshot(v, m, now)
	want := l.want(v, m, snapshot, now)
	group := l.spreadOf(v, m, current, served)
	r := restartOf(v, m, current, restart, func(peer string) bool { return l.turns[m.uid].late(peer, restart) })
	plan, turn := l.placeRestart(current, r, func(more int) placement.Plan {
		return l.place(v, m, snapshot, want, more)
	})
	plan = l.spread(v, m, snapshot, group, want, restart > current.Restart, plan, now)
	l.noteTurn(m, turn, restart, now)
	past := l.demand.Past(m.uid)
	order := Placement{Text: bounded(plan.Text, maxSentence), Reason: plan.Reason, Evict: want.Evict, Asleep: past.Asleep, Extra: past.Extra,
		Final: plan.Final, Later: plan.Later, Parked: bounded64(l.setbacks.Parked(m.uid)), Restart: restart, Turn: turn, Served: served, Spread: l.spreads[m.uid]}
	for _, o := range plan.Orders[:min(len(plan.Orders), maxListed)] {
		order.Peers, order.Ways = append(order.Peers, o.Peer), append(order.Ways, o.Way)
	}
	failed := l.again(m, order.Peers)
	sequence := uint64(0)
	if known && current.leader == l.s.self && current.fence() == claim {
		sequence = current.version[2] + 1
		reword := (len(order.Peers) == 0 || order.Spread && !v.spreads(m.uid)) && order.Text != current.Text && (asked || now.Sub(l.worded[m.uid]) >= rewordEvery)
		if sameOrder(current.Placement, order, m.serves(v)) && len(failed) == 0 && !reword {
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
	l.worded[m.uid] = now
	for _, r := range failed {
		l.retried[replicaKey{r.peer, m.uid}] = r.version
	}
	l.s.log.Info("placed", "model", m.shown, "epoch", claim.Epoch, "text", plan.Text)
}

// bounded64 bounds what is kept of parked peers by what a record may list.
func bounded64(list []setback.Parked) []setback.Parked { return list[:min(len(list), maxListed)] }

// sameOrder says whether an order is no news. Its sentence, and what is predicted, may
// change while nothing else does; once the model serves, also whether others may be
// unloaded for it.
func sameOrder(a, b Placement, serves bool) bool {
	if b.Evict && !a.Evict && !serves || len(b.Peers) == 0 && a.Evict != b.Evict {
		return false // What starts may need it in the end, and whoever waits is to be told what is in the way.
	}
	if len(a.Peers) != len(b.Peers) || a.Reason != b.Reason || a.Asleep != b.Asleep || a.Final != b.Final || a.Later != b.Later || a.Extra != b.Extra ||
		a.Restart != b.Restart || a.Turn != b.Turn || a.Served != b.Served || a.Spread != b.Spread || len(a.Parked) != len(b.Parked) {
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
	if v.spreads(m.uid) && len(v.placements[m.uid].Peers) > 0 {
		running++
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
func (l *leading) place(v *view, m *modelView, s placement.Snapshot, want demand.Want, more int) placement.Plan {
	model := placement.Model{
		UID: m.uid, Name: m.shown, CID: m.CID, Bytes: m.size(), Shape: m.shape(), Want: want.Count + more, Only: m.Only, Evict: want.Evict,
		Fetch: mayFetch(m.Model, s, want),
	}
	if more > 0 { // What only stands in is worth no files and no other model.
		model.Fetch, model.Evict = false, false
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
	switch {
	case want.Count == 0 && len(plan.Orders) == 0:
		plan.Text = fmt.Sprintf("model %q: %s", m.shown, cmp.Or(l.slept[m.uid], "unloaded")+sleepText)
		plan.Reason, plan.Final = "", false
	case plan.Reason == string(NoCapacity) && want.Evict && !plan.Final:
		plan.Text += staying(v, m)
	}
	plan.Later = (plan.Later || l.shortOnly(s, m.uid, plan)) && passes(v, m)
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
		return p.Holds && p.Alive && (p.Draining || p.Failed != "" && !p.Parked ||
			slices.ContainsFunc(p.Machine.Blocked, func(b ways.Block) bool { return !b.Parked }))
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
		marks := func(way string) string {
			return l.setbacks.Look(setback.Key{Peer: r.peer, UID: m.uid, Way: way}, "", time.Time{}).Mark
		}
		if l.soft[key].version == r.version || marks("") == mark(r) || marks(r.Way) == mark(r) {
			failed = append(failed, r)
		}
	}
	return failed
}

// hear takes in what the peers say of their replicas.
func (l *leading) hear(v *view, m *modelView, now time.Time) {
	serving, unloaded := false, ""
	for _, r := range m.replicas {
		p := v.peer[r.peer]
		key := setback.Key{Peer: r.peer, UID: m.uid}
		failed := func(way string, why setback.Failure) {
			key.Way, why.Build = way, p.advert.Engine.Commit
			l.setbacks.Note(key, why, now)
		}
		switch r.State {
		case StateReady, StateLoading:
			serving = serving || !p.gone()
			if r.State == StateReady {
				l.setbacks.Well(key, now)
				l.setbacks.Well(setback.Key{Peer: r.peer, UID: m.uid, Way: r.Way}, now)
			}
			if t := r.Tried; t != nil {
				failed(t.Way, setback.Failure{Mark: "tried " + t.Order, Parks: Reason(t.Reason) == EngineFailed, Reason: t.Reason, Text: t.Text})
			}
		case StateFailed, StateRefused:
			if why := Reason(r.Reason); why == Unloaded || why == DeviceBusy || why == NoCapacity {
				soft, known := l.soft[replicaKey{r.peer, m.uid}]
				if !known || soft.version != r.version {
					soft.soften(why, r, now)
					l.soft[replicaKey{r.peer, m.uid}] = soft
					if why == Unloaded && slices.Contains(v.placements[m.uid].Peers, r.peer) {
						unloaded = r.Message
					}
				}
				continue
			}
			if Reason(r.Reason) == PeerGone && r.Group != "" {
				l.blame(v, m, r, now)
				continue
			}
			why := setback.Failure{Mark: mark(r), Parks: r.State == StateFailed, Served: r.Served, Reason: r.Reason, Text: r.Message}
			if why.Parks { // Of the engine, that way; what is refused is refused however it is to run.
				failed(r.Way, why)
			} else {
				failed("", why)
			}
		}
	}
	if unloaded == "" {
		return
	}
	if past := l.demand.Past(m.uid); !serving {
		l.sleep(m.uid, unloaded)
	} else if past.Extra > 0 { // It is the one that the load needs no more.
		past.Extra--
		l.demand.Adopt(m.uid, past)
	}
}

// soften takes in one more of these refusals.
func (s *softRefusal) soften(why Reason, r replicaView, now time.Time) {
	s.version, s.reason, s.text, s.until = r.version, r.Reason, r.Message, now
	switch why {
	case NoCapacity:
		if now.Sub(s.last) > shortForgotten {
			s.short = 0
		}
		s.until = now.Add(min(shortPause<<min(s.short, 10), shortLongest))
		s.short++
		s.last = now
	case DeviceBusy:
		s.until = now.Add(softPause)
		if now.Sub(s.last) > busyForgotten {
			s.busy = 0
		}
		s.offGPU = now.Add(min(busyPause<<min(s.busy, 10), busyLongest))
		s.busy++
		s.last = now
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
