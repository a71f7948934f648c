package scheduler

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"relay/scheduler/leadership"
	"relay/scheduler/ways"
	"relay/store"
)

// worker carries out this peer's share of the placements. It has the last word:
// what its ledger does not cover is refused.
type worker struct {
	s *Scheduler

	// reserving is held while memory is taken, so that what is unloaded for one
	// model is not taken by another. It is taken before mu.
	reserving sync.Mutex

	mu      sync.Mutex
	runs    map[string]*run          // By uid.
	started uint64                   // How many of them there were.
	engines map[*engine]bool         // All that memory is reserved for: also those that start, or end.
	shares  map[string]*share        // By uid.
	shared  time.Time                // When there was a share last, or tensors were swept.
	claimed map[string]chan struct{} // Contents that are being deleted, by CID; closed when that is over.
	wait    sync.WaitGroup
}

func newWorker(s *Scheduler) *worker {
	return &worker{s: s, shared: s.started, runs: map[string]*run{}, engines: map[*engine]bool{}, shares: map[string]*share{}, claimed: map[string]chan struct{}{}}
}

// carryOut starts what is placed here and stops what no longer is.
func (w *worker) carryOut(ctx context.Context, v *view) {
	for _, r := range w.compare(ctx, v) {
		w.renew(r)
	}
	for _, s := range w.compareShares(ctx, v) {
		w.publishShare(s, func() {})
	}
	w.unloadIdle()
}

// compare returns the runs that go on under another fence.
func (w *worker) compare(ctx context.Context, v *view) (renewed []*run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.s.barred(v) { // Whoever leads, and whatever is ordered.
		for _, r := range w.runs {
			r.stopNow()
		}
		return nil
	}
	for uid, p := range v.placements {
		if !v.inForce(p) {
			continue
		}
		m := v.model[uid]
		r := w.runs[uid]
		wanted := m != nil && slices.Contains(p.Peers, w.s.self)
		if r == nil && !wanted {
			continue
		}
		if obeyed := r != nil && r.fence == p.fence(); !obeyed && !w.obey(uid, p.fence()) {
			continue
		}
		switch {
		case !wanted:
			r.cancel()
		case r == nil && w.shares[uid] != nil: // Its memory is needed first; the look after its end finds it gone.
		case r == nil:
			w.start(ctx, m, p)
		case !r.model.servedAs(m.Model) || r.failed && r.order.Less(p.version) || r.engine == nil && !sameWay(r.way, p.wayFrom(r.way, w.s.self, m.Model)):
			r.cancel() // The next look finds it gone and starts it anew.
		case spread(r.way, p.wayFrom(r.way, w.s.self, m.Model)) && !sameWay(r.way, p.wayFrom(r.way, w.s.self, m.Model)):
			r.cancel() // Two engines cannot have the same workers.
		default:
			r.model, r.order, r.evict = m.Model, p.version, r.evict || p.Evict
			if way := p.wayFrom(r.way, w.s.self, m.Model); sameWay(r.way, way) {
				r.moveTo = nil
			} else {
				r.askMove(way, p.version)
			}
			if r.fence != p.fence() {
				r.fence = p.fence()
				renewed = append(renewed, r)
			}
			if p.Turn == w.s.self && r.restarted < p.Restart && r.way.Group == nil { // A group is formed anew instead.
				r.askRestart(p.Restart)
			}
		}
	}
	for uid, r := range w.runs {
		if v.model[uid] == nil {
			r.cancel()
		}
	}
	return renewed
}

// sameWay says whether a model that runs one way runs the other: what was
// predicted of them makes no difference, nor on a CPU how its layers are counted,
// which older leaders do not say.
func sameWay(a, b ways.Way) bool {
	if a.Kind == ways.CPU && b.Kind == ways.CPU {
		return true
	}
	if (a.Group == nil) != (b.Group == nil) || a.Group != nil && a.Group.ID != b.Group.ID {
		return false
	}
	return a.Kind == b.Kind && a.CPUExperts == b.CPUExperts && slices.EqualFunc(a.Parts, b.Parts, func(a, b ways.Part) bool {
		return a.Device == b.Device && a.Layers == b.Layers
	})
}

// spread says whether one of two ways is over several peers.
func spread(a, b ways.Way) bool { return a.Group != nil || b.Group != nil }

// obey says whether an order under this fence is to be carried out, and keeps
// the highest on disk before anything is done under it.
func (w *worker) obey(uid string, fence leadership.Fence) bool {
	key := []byte("fence/" + uid)
	kept, known, err := w.s.State.Get(key)
	if err != nil {
		w.s.log.Error("fence not read", "error", err)
		return false
	}
	if known && len(kept) == 16 {
		was := leadership.Fence{Epoch: binary.BigEndian.Uint64(kept), Rank: binary.BigEndian.Uint64(kept[8:])}
		if was == fence {
			return true
		}
		if !leadership.Obey(was, fence) {
			return false
		}
	}
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, fence.Epoch), fence.Rank)
	if err := w.s.State.Apply([]store.Write{{Key: key, Value: value}}); err != nil {
		w.s.log.Error("fence not kept", "error", err)
		return false
	}
	return true
}

func (w *worker) start(ctx context.Context, m *modelView, p placementView) {
	ctx, cancel := context.WithCancel(ctx)
	r := newRun(m, p, w.s.self, cancel)
	w.runs[m.uid] = r
	w.wait.Go(func() {
		defer cancel()
		w.live(ctx, r)
		w.mu.Lock()
		delete(w.runs, r.uid)
		w.mu.Unlock()
		w.s.wake()
	})
}

// live is the whole life of a run: it returns when nothing of it is left.
func (w *worker) live(ctx context.Context, r *run) {
	err := w.serve(ctx, r)
	if err == nil || ctx.Err() != nil {
		w.withdraw(r)
		return
	}
	state := StateFailed
	if refusal(ReasonOf(err)) {
		state = StateRefused
	}
	w.s.log.Warn("replica "+state, "model", r.name, "error", err)
	w.mu.Lock()
	r.failed = true // Before that is told: the answer may come at once.
	lost, served := r.lost, r.served
	w.mu.Unlock()
	if ReasonOf(err) != PeerGone {
		lost = ""
	}
	if r.way.Group != nil {
		w.s.advert.tell() // The next group is formed of what is free.
	}
	w.tell(r, Replica{State: state, Reason: string(ReasonOf(err)), Message: err.Error(), Lost: lost, Served: served})
	<-ctx.Done() // Until the leader orders something else.
	w.withdraw(r)
}

// refusal says of a reason that it is no failure of the engine's.
func refusal(why Reason) bool {
	return slices.Contains([]Reason{NoCapacity, FileChanged, NotFound, NoEngine, NoHolder, DiskFull, Unloaded, DeviceBusy, Paused, Unreachable, NotAllowed}, why)
}

// needs says whether a content belongs to something that runs here, or is to.
func (w *worker) needs(cid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running(cid)
}

func (w *worker) running(cid string) bool {
	for _, r := range w.runs {
		if r.model.has(cid) && !r.failed { // One that failed has no process, and asks for its files anew.
			return true
		}
	}
	return false
}

// claim keeps anything that needs a content from starting until release is
// called. It fails where something runs already.
func (w *worker) claim(cid string) (release func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running(cid) {
		return nil, false
	}
	over := make(chan struct{})
	w.claimed[cid] = over
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.claimed, cid)
		close(over)
	}, true
}

func (w *worker) isClaimed(cid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimed[cid] != nil
}

// unclaimed waits until a content is not being deleted.
func (w *worker) unclaimed(ctx context.Context, cid string) error {
	w.mu.Lock()
	over := w.claimed[cid]
	w.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell writes this peer's replica record.
func (w *worker) tell(r *run, state Replica) {
	state.Message, state.Device = bounded(state.Message, maxSentence), bounded(state.Device, maxModelName)
	w.publish(r, func() { r.told = state })
}

// renew says the same under the fence that is obeyed now.
func (w *worker) renew(r *run) { w.publish(r, func() {}) }

// publish writes what a run has to say, after a change to that.
func (w *worker) publish(r *run, change func()) {
	r.telling.Lock()
	defer r.telling.Unlock()
	w.mu.Lock()
	change()
	state := r.told
	state.Epoch, state.Rank, state.Restart, state.Way = r.fence.Epoch, r.fence.Rank, r.restarted, string(r.way.Kind)
	if r.way.Group != nil {
		state.Group = r.way.Group.ID
	}
	w.mu.Unlock()
	if state.State == "" {
		return
	}
	if err := w.s.Mesh.PutOwned(KindReplica, pairID(w.s.self, r.uid), state); err != nil {
		w.s.log.Error("replica state not published", "model", r.name, "error", err)
	}
}

func (w *worker) withdraw(r *run) {
	r.telling.Lock()
	defer r.telling.Unlock()
	w.mu.Lock()
	r.told = Replica{}
	w.mu.Unlock()
	if _, err := w.s.Mesh.Table().DeleteOwned(KindReplica, pairID(w.s.self, r.uid)); err != nil {
		w.s.log.Debug("replica not withdrawn", "model", r.name, "error", err)
	}
}

// stopAll ends every run and returns when their engines are gone.
func (w *worker) stopAll() {
	v := w.s.newView()
	stop, end := func(r *run) { r.cancel() }, func(s *share) { s.cancel() }
	if w.s.barred(v) {
		stop = (*run).stopNow
	}
	if !v.peer[w.s.self].takesShares() {
		end = (*share).stopNow
	}
	w.mu.Lock()
	for _, r := range w.runs {
		stop(r)
	}
	for _, s := range w.shares {
		end(s)
	}
	w.mu.Unlock()
	w.wait.Wait()
}
