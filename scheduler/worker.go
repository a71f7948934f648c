package scheduler

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	cid "github.com/ipfs/go-cid"

	"relay/scheduler/leadership"
	"relay/store"
)

// worker carries out this peer's share of the placements. It has the last word:
// what its ledger does not cover is refused.
type worker struct {
	s *Scheduler

	mu      sync.Mutex
	runs    map[string]*run          // By uid.
	claimed map[string]chan struct{} // Contents that are being deleted, by CID; closed when that is over.
	wait    sync.WaitGroup
}

// run is one model on this peer, from the order to the end of its engine.
type run struct {
	uid     string
	model   Model
	name    string
	order   record.Version // The placement that is obeyed.
	fence   leadership.Fence
	cancel  context.CancelFunc
	cut     chan struct{} // Closed when its requests may not even finish.
	process Process       // Set while requests may go there.
	failed  bool          // It ended by itself and waits for a new order.
	told    Replica       // What the mesh was last told; zero while that is nothing.

	// telling is held while the record is written, so that records are written
	// in the order of what they say. It is taken before worker.mu.
	telling sync.Mutex
}

func newWorker(s *Scheduler) *worker {
	return &worker{s: s, runs: map[string]*run{}, claimed: map[string]chan struct{}{}}
}

// stopNow ends a run without letting its requests finish; worker.mu is held.
func (r *run) stopNow() {
	select {
	case <-r.cut:
	default:
		close(r.cut)
	}
	r.cancel()
}

// carryOut starts what is placed here and stops what no longer is.
func (w *worker) carryOut(ctx context.Context, v *view) {
	for _, r := range w.compare(ctx, v) {
		w.renew(r)
	}
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
		case r == nil:
			w.start(ctx, m, p)
		case !r.model.servedAs(m.Model) || r.failed && r.order.Less(p.version):
			r.cancel() // The next look finds it gone and starts it anew.
		default:
			r.order = p.version
			if r.fence != p.fence() {
				r.fence = p.fence()
				renewed = append(renewed, r)
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
	r := &run{uid: m.uid, model: m.Model, name: m.shown, order: p.version, fence: p.fence(), cancel: cancel, cut: make(chan struct{})}
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
	if why := ReasonOf(err); why == NoCapacity || why == FileChanged || why == NotFound || why == NoEngine {
		state = StateRefused
	}
	w.s.log.Warn("replica "+state, "model", r.name, "error", err)
	w.tell(r, Replica{State: state, Reason: string(ReasonOf(err)), Message: err.Error()})
	w.mu.Lock()
	r.failed = true
	w.mu.Unlock()
	<-ctx.Done() // Until the leader orders something else.
	w.withdraw(r)
}

// serve loads the model and serves it until ctx ends (nil) or the engine does.
// Its errors name neither the model nor this peer: whoever shows them does.
func (w *worker) serve(ctx context.Context, r *run) error {
	if w.s.Engine == nil {
		return Errorf(NoEngine, "%s", w.s.NoEngine)
	}
	launch, err := w.launch(r)
	if err != nil {
		return err
	}
	if err := w.s.CheckArgs(r.model.Args); err != nil {
		return err
	}
	if err := w.s.ledger.Reserve(r.uid, r.model.Need); err != nil {
		return err
	}
	defer w.s.advert.again()
	defer w.s.ledger.Release(r.uid)
	w.s.advert.again()
	w.tell(r, Replica{State: StateLoading})
	began := time.Now()
	process, err := w.s.Engine.Start(ctx, launch)
	if err != nil {
		return err
	}
	w.touch(r)
	defer w.touch(r)
	w.setProcess(r, process)
	w.tell(r, Replica{State: StateReady, Device: process.Device(), LoadMS: time.Since(began).Milliseconds()})
	w.s.log.Info("ready", "model", r.name, "device", process.Device(), "load_ms", time.Since(began).Milliseconds())
	w.s.wake()

	select {
	case <-process.Done():
		w.setProcess(r, nil)
		return &Error{Why: EngineFailed, Message: fmt.Sprintf("the engine ended: %v", process.Err()), Err: process.Err()}
	case <-ctx.Done():
	}
	w.setProcess(r, nil) // Nothing new goes there.
	w.tell(r, Replica{State: StateDraining, Device: process.Device()})
	drained := time.NewTimer(drainTime)
	defer drained.Stop()
	grace := stopTime
	select {
	case <-r.cut: // Looked at first: there may be nothing to wait for.
		grace = cutTime
	default:
		select {
		case <-w.s.traffic.quiet(r.uid):
		case <-drained.C:
		case <-process.Done():
		case <-r.cut:
			grace = cutTime
		}
	}
	stop, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := process.Stop(stop); err != nil && grace == stopTime {
		w.s.log.Error("engine not stopped", "model", r.name, "error", err)
	}
	return nil
}

// launch finds the files of a model.
func (w *worker) launch(r *run) (Launch, error) {
	l := Launch{UID: r.uid, Model: r.model}
	for i, content := range r.model.roots() {
		root, err := cid.Decode(content.CID)
		if err != nil {
			return l, Errorf(NotFound, "its CID is none")
		}
		if w.isClaimed(content.CID) {
			return l, Errorf(NotFound, "its file is being deleted here")
		}
		path, err := w.s.Content.Path(root)
		if err != nil {
			return l, err
		}
		if i > 0 {
			l.Projector = path
			continue
		}
		here, err := w.s.Content.Get(root)
		if err != nil {
			return l, err
		}
		l.Path, l.Files = path, slices.DeleteFunc(slices.Clone(here.Files), func(f string) bool { return f == path })
	}
	return l, nil
}

// touch notes that what a run serves is in use.
func (w *worker) touch(r *run) {
	for _, content := range r.model.roots() {
		root, err := cid.Decode(content.CID)
		if err == nil {
			err = w.s.Content.Touch(root)
		}
		if err != nil {
			w.s.log.Debug("use not noted", "cid", content.CID, "error", err)
		}
	}
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

func (w *worker) setProcess(r *run, p Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.process = p
}

// process is the engine that serves a model here, or nil.
func (w *worker) process(uid string) Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[uid]; r != nil {
		return r.process
	}
	return nil
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
	state.Epoch, state.Rank = r.fence.Epoch, r.fence.Rank
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
	stop := (*run).stopNow
	if !w.s.barred(w.s.newView()) {
		stop = func(r *run) { r.cancel() }
	}
	w.mu.Lock()
	for _, r := range w.runs {
		stop(r)
	}
	w.mu.Unlock()
	w.wait.Wait()
}
