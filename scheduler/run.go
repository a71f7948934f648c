package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	cid "github.com/ipfs/go-cid"

	"relay/p2p/record"
	"relay/scheduler/leadership"
	"relay/scheduler/ways"
	"relay/store/content"
)

// run is one model on this peer, from the order to the end of its engine.
type run struct {
	uid  string
	name string

	// telling is held while the record is written, so that records are written
	// in the order of what they say. It is taken before worker.mu.
	telling sync.Mutex

	// Of worker.mu.
	model     Model
	evict     bool // Idle models may be unloaded for it: somebody waits for it, or wants it kept.
	way       ways.Way
	order     record.Version // The placement that is obeyed.
	moveTo    *ways.Way      // How it is to run; nil is as it does.
	moveBy    record.Version // The order that says so, and the one that was last tried.
	movedBy   record.Version
	tried     *Tried // A way that did not work out.
	fence     leadership.Fence
	engine    *engine   // Takes requests; nil while none does.
	renewing  bool      // Another engine is being started in the place of that one.
	leaked    time.Time // When its engine was last to be replaced because it leaked,
	leaks     int       // and how often it was.
	restarted uint64    // The number of the last restart that it has been through.
	restartTo uint64    // The number of the one that is ordered.
	failed    bool      // It ended by itself and waits for a new order.
	served    bool      // A request got its answer.
	lost      string    // The worker of its group whose fault that was; "" where it was nobody's.
	told      Replica   // What the mesh was last told; zero while that is nothing.

	ending  sync.WaitGroup // Engines that were replaced and finish their requests.
	cancel  context.CancelFunc
	cut     chan struct{}     // Closed when its requests may not even finish.
	notices chan *Error       // It is to end until it is ordered anew; nothing new is let in any more.
	renewal chan renewalOrder // Its engine is to be started anew.
}

// renewalOrder has the engine of a run replaced by a new one.
type renewalOrder struct {
	number uint64 // Of the restart; 0 where this peer itself wants it.
	text   string // Why, for the log and status.
	// move: it is to run another way, which the run knows.
	move bool
	// spare: it is not worth a gap.
	spare bool
}

func newRun(m *modelView, p placementView, self string, cancel context.CancelFunc) *run {
	return &run{
		uid: m.uid, name: m.shown, model: m.Model, way: p.way(self, m.Model), order: p.version, fence: p.fence(), evict: p.Evict,
		restarted: p.Restart, restartTo: p.Restart,
		cancel: cancel, cut: make(chan struct{}), notices: make(chan *Error, 1), renewal: make(chan renewalOrder, 1),
	}
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

// askRestart has the engine replaced, once for each number; worker.mu is held.
func (r *run) askRestart(number uint64) {
	if r.restartTo >= number {
		return
	}
	select {
	case r.renewal <- renewalOrder{number: number}:
		r.restartTo = number
	default: // It is at it for another reason: the next look asks again.
	}
}

// askMove has the engine replaced by one that runs another way, once for each
// order; worker.mu is held.
func (r *run) askMove(way ways.Way, order record.Version) {
	r.moveTo, r.moveBy = &way, order
	if r.movedBy == order {
		return
	}
	select {
	case r.renewal <- renewalOrder{move: true, text: fmt.Sprintf("it is to run %s", way.Kind), spare: true}:
	default: // It is at it, or will be.
	}
}

// serve loads the model and serves it until ctx ends (nil) or the engine does.
// Its errors name neither the model nor this peer: whoever shows them does.
func (w *worker) serve(ctx context.Context, r *run) error {
	if w.s.Engine == nil {
		return Errorf(NoEngine, "%s", w.s.NoEngine)
	}
	// Its memory first: what finds no room here is not worth fetching.
	e := newEngine(Launch{UID: r.uid, Model: w.modelOf(r), Way: r.way})
	if err := w.reserve(r, e, true); err != nil {
		return err
	}
	w.s.advert.again()
	if err := w.fetch(ctx, r); err != nil {
		w.free(e)
		return err
	}
	defer r.ending.Wait()
	if err := w.launch(ctx, r, e, false, ""); err != nil {
		return err
	}
	w.mu.Lock()
	r.engine = e
	w.mu.Unlock()
	for {
		w.announce(r, e)
		next, err := w.watch(ctx, r, e)
		if next == nil {
			return err
		}
		e = next
	}
}

// bringUp takes the memory for an engine that runs a way, and starts it. Of the two
// that a run has while one replaces the other, nth is 0 or 1. One that starts beside
// another takes only memory that is free, and the other one is what is told of; else
// text is told with the stage.
func (w *worker) bringUp(ctx context.Context, r *run, way ways.Way, nth int, beside bool, text string) (*engine, error) {
	e := newEngine(Launch{UID: r.uid, Nth: nth, Model: w.modelOf(r), Way: way})
	if err := w.reserve(r, e, !beside); err != nil {
		return nil, err
	}
	w.s.advert.again()
	return e, w.launch(ctx, r, e, beside, text)
}

// launch starts an engine whose memory is reserved, and gives that back where it
// does not start.
func (w *worker) launch(ctx context.Context, r *run, e *engine, beside bool, text string) (err error) {
	defer func() {
		if err != nil {
			w.free(e)
		}
	}()
	launch, err := w.find(e)
	if err == nil {
		err = errors.Join(w.s.CheckArgs(launch.Model.Args), w.s.CheckEnv(launch.Model.Env))
	}
	if err != nil {
		return err
	}
	if e.onCPU() {
		e.cores = w.share(r, nil)
	}
	launch.Threads = max(1, e.cores)
	launch.Started = func(pid int) { e.pid.Store(int64(pid)) }
	if e.way.Group != nil {
		if err := w.gather(ctx, r, e); err != nil {
			return err
		}
		links := newTunnels(w, r, e.way.Group)
		defer func() {
			if fault := links.faultOf(err); fault != nil {
				err = fault
			}
			w.mu.Lock()
			r.lost = links.lostWorker()
			w.mu.Unlock()
		}()
		launch.Connected = links.connect
		w.mu.Lock()
		e.tunnels = links
		w.mu.Unlock()
		w.judgeGroups(w.s.newView())
	}
	if !beside {
		w.tell(r, Replica{State: StateLoading, Stage: StageStarting, Parts: e.way.Parts, Message: text})
	}
	began := time.Now()
	process, err := w.s.Engine.Start(ctx, launch)
	if err != nil {
		return err
	}
	w.mu.Lock()
	e.process, e.load, e.ready = process, time.Since(began), time.Now()
	w.mu.Unlock()
	w.wait.Go(func() { w.pulse(r, e) })
	w.measured(r, e)
	return nil
}

// find finds the files for an engine.
func (w *worker) find(e *engine) (Launch, error) {
	l := Launch{UID: e.uid, Nth: e.nth, Model: e.model, Way: e.way}
	for i, c := range l.Model.roots() {
		root, err := cid.Decode(c.CID)
		if err != nil {
			return l, Errorf(NotFound, "its CID is none")
		}
		if w.isClaimed(c.CID) {
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

// fetch brings the files of a model here where they are not, from the peers that
// have them.
func (w *worker) fetch(ctx context.Context, r *run) error {
	m := w.s.newView().model[r.uid]
	if m == nil {
		return Errorf(NotFound, "the model is gone")
	}
	missing, err := w.s.missing(m)
	if err != nil || len(missing) == 0 {
		return err
	}
	for _, root := range missing {
		if here, err := w.s.Content.Get(root); err == nil && here.InPlace {
			return nil // Its owner's file, which is not what it was: launch says what is wrong with it.
		}
	}
	if err := w.s.mayFetch(m); err != nil {
		return err
	}
	told := time.Time{}
	w.tell(r, Replica{State: StateLoading, Stage: StageFetching, Total: m.size()})
	_, err = w.s.Pull(ctx, PullOptions{Name: r.uid}, func(p content.Progress) {
		if now := time.Now(); p.Phase == content.PhaseFetch && now.Sub(told) >= stageEvery {
			told = now
			w.tell(r, Replica{State: StateLoading, Stage: StageFetching, Done: p.Done, Total: m.size()})
		}
	})
	return err
}

// stageEvery is how often the mesh is told how far a fetch is.
const stageEvery = 2 * time.Second

// modelOf is what a run serves, as it was last defined.
func (w *worker) modelOf(r *run) Model {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.model
}

// touch notes that what a run serves is in use.
func (w *worker) touch(m Model) {
	for _, c := range m.roots() {
		root, err := cid.Decode(c.CID)
		if err == nil {
			err = w.s.Content.Touch(root)
		}
		if err != nil {
			w.s.log.Debug("use not noted", "cid", c.CID, "error", err)
		}
	}
}

// announce tells the mesh of an engine that requests are let to.
func (w *worker) announce(r *run, e *engine) {
	w.touch(e.model)
	w.tell(r, w.readyNow(r, e))
	w.s.log.Info("ready", "model", r.name, "device", e.process.Device(), "way", string(e.way.Kind), "load_ms", e.load.Milliseconds())
	w.s.advert.again()
	w.s.wake()
}

// readyNow is what is told of a replica that serves.
func (w *worker) readyNow(r *run, e *engine) Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Replica{
		State: StateReady, Device: e.process.Device(), LoadMS: e.load.Milliseconds(), Parts: partsOf(w.s.ledger.Of(e.name), e.way), Load: e.pressure,
		CPUExperts: e.way.CPUExperts, Tried: r.tried, Engine: e.number,
	}
}

// watch looks after an engine that serves. It returns the engine that takes its
// place, or nil when the run is over: with nil where that was ordered.
func (w *worker) watch(ctx context.Context, r *run, e *engine) (*engine, error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.process.Done():
			w.shut(r, e)
			w.free(e)
			if fault := w.fault(r, e); fault != nil {
				return nil, fault
			}
			return nil, w.ended(e)
		case <-ctx.Done():
			w.shut(r, e)
			w.tell(r, Replica{State: StateDraining, Device: e.process.Device(), Parts: e.way.Parts})
			w.end(r, e, drainTime)
			return nil, nil
		case <-e.tunnels.breaks(): // An idle engine would notice at the next request.
			w.shut(r, e)
			w.end(r, e, 0)
			return nil, w.fault(r, e)
		case why := <-r.notices:
			w.shut(r, e)
			if why.Why != Unloaded { // It may be needed elsewhere while its requests finish.
				w.tell(r, Replica{State: StateDraining, Device: e.process.Device(), Parts: e.way.Parts, Message: why.Message})
			}
			w.end(r, e, drainTime)
			return nil, why
		case order := <-w.renewal(r):
			if next, err := w.renewEngine(ctx, r, e, order); next != nil || err != nil {
				return next, err
			}
		case <-e.doubt:
			if err := w.doubt(ctx, r, e); err != nil {
				return nil, err
			}
		case <-e.rest:
			w.learn(ctx, r, e)
		case <-tick.C:
			w.observe(r, e)
			w.shareCores(r, e)
		}
	}
}

// fault is what an engine that has ended lost of its group, nil where nothing.
func (w *worker) fault(r *run, e *engine) error {
	fault := e.tunnels.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	r.lost = e.tunnels.lostWorker()
	return fault
}

// doubt asks an engine for a token, after a request had waited for one in vain, and
// ends one that gives none: it is healthy by its own word, and lies.
func (w *worker) doubt(ctx context.Context, r *run, e *engine) error {
	err := e.process.Check(ctx)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	w.shut(r, e)
	w.end(r, e, 0)
	return &Error{Why: EngineFailed, Message: fmt.Sprintf("the engine gives no tokens any more: %v", err), Err: err}
}

// shut lets nothing new to an engine.
func (w *worker) shut(r *run, e *engine) {
	w.mu.Lock()
	if r.engine == e {
		r.engine = nil
	}
	e.close()
	w.mu.Unlock()
	w.touch(e.model)
}

// end has an engine finish its requests, at most for so long, stops it and frees
// its memory.
func (w *worker) end(r *run, e *engine, patience time.Duration) {
	grace := stopTime
	select {
	case <-r.cut: // Looked at first: there may be nothing to wait for.
		grace = cutTime
	default:
		drained := time.NewTimer(patience)
		select {
		case <-w.quiet(e):
		case <-drained.C:
		case <-e.process.Done():
		case <-r.cut:
			grace = cutTime
		}
		drained.Stop()
	}
	_ = e.tunnels.close() // It ends because it is to.
	stop, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := e.process.Stop(stop); err != nil && grace == stopTime {
		w.s.log.Error("engine not stopped", "model", r.name, "error", err)
	}
	w.free(e)
}

// free gives back the memory of an engine that is gone, once.
func (w *worker) free(e *engine) {
	w.mu.Lock()
	freed := !w.engines[e]
	delete(w.engines, e)
	w.mu.Unlock()
	if freed {
		return
	}
	w.s.ledger.Release(e.name)
	close(e.freed)
	w.s.advert.again()
}

// renewal is where orders to replace a run's engine come from, once the one that
// was replaced before is gone: there are two at most.
func (w *worker) renewal(r *run) <-chan renewalOrder {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.countOf(r.uid) > 1 {
		return nil
	}
	return r.renewal
}

// countOf is how many engines a model has here; worker.mu is held.
func (w *worker) countOf(uid string) (n int) {
	for e := range w.engines {
		if e.uid == uid {
			n++
		}
	}
	return n
}

// renewEngine starts another engine in the place of one that serves: beside it
// where there is memory for two, so that there is no gap. Where the new one does
// not start the old one goes on.
func (w *worker) renewEngine(ctx context.Context, r *run, e *engine, order renewalOrder) (*engine, error) {
	w.mu.Lock()
	way, idle := r.way, r.engine != e // It was unloaded, which the loop finds.
	if order.move {
		if r.moveTo == nil || sameWay(r.way, *r.moveTo) || r.movedBy == r.moveBy {
			idle = true // It has come about, or is not wanted any more.
		} else {
			way, r.movedBy = *r.moveTo, r.moveBy
		}
	}
	tried := r.moveBy
	r.renewing = !idle // From now on it is not unloaded for others, who would wait for each other.
	w.mu.Unlock()
	if idle {
		return nil, nil
	}
	defer func() {
		w.mu.Lock()
		r.renewing = false
		w.mu.Unlock()
	}()
	w.tellBeside(r, e, StageStarting, "")
	nth := 1 - e.nth
	over := w.mind(r, e)
	next, err := w.bringUp(ctx, r, way, nth, true, "")
	ended := over()
	switch {
	case err == nil:
		w.mu.Lock()
		r.restarted = max(r.restarted, order.number)
		next.pressure, next.used = e.pressure, e.used
		if r.engine == e || ended {
			r.engine = next
		} // Else it is to be unloaded, which the loop finds.
		e.close()
		r.way, r.tried = way, nil
		w.mu.Unlock()
		w.s.log.Info("engine replaced", "model", r.name, "why", order.text)
		r.ending.Go(func() { w.end(r, e, drainTime) })
		return next, nil
	case ctx.Err() != nil || ended:
		return nil, nil // The loop finds it.
	case order.spare || ReasonOf(err) != NoCapacity:
		w.keep(r, e, order, way, tried, err)
		return nil, nil
	}
	w.shut(r, e) // There is no room for two.
	text := cmp.Or(order.text, "it is being restarted; there is no room for two engines at a time")
	w.s.decisions.say(r.name, fmt.Sprintf("model %q on %s: %s", r.name, w.s.Mesh.NameOf(w.s.Mesh.Self()), text))
	w.s.log.Info("engine replaced with a gap", "model", r.name, "why", text)
	w.tell(r, Replica{State: StateLoading, Stage: StageStarting, Parts: way.Parts, Message: text})
	w.end(r, e, drainTime)
	next, err = w.bringUp(ctx, r, way, nth, false, text)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	r.restarted = max(r.restarted, order.number)
	next.used = e.used
	r.engine = next
	w.mu.Unlock()
	return next, nil
}

// mind looks after an engine while another one is started in its place: where it ends
// by itself nothing is sent there any more. over ends that, and says whether it did.
func (w *worker) mind(r *run, e *engine) (over func() (ended bool)) {
	stop := make(chan struct{})
	var minding sync.WaitGroup
	ended := false
	minding.Go(func() {
		select {
		case <-e.process.Done():
			ended = true
			w.shut(r, e)
			w.tell(r, Replica{State: StateLoading, Stage: StageStarting, Parts: e.way.Parts, Message: "the engine ended while another one was being started in its place"})
			w.free(e)
		case <-stop:
		}
	})
	return func() bool {
		close(stop)
		minding.Wait()
		return ended
	}
}

// keep goes on with an engine whose successor did not start, and says so.
func (w *worker) keep(r *run, e *engine, order renewalOrder, way ways.Way, by record.Version, err error) {
	w.mu.Lock()
	r.restarted = max(r.restarted, order.number)
	if order.move {
		r.tried = &Tried{Way: string(way.Kind), Order: by.String(), Reason: string(ReasonOf(err)), Text: bounded(err.Error(), maxSentence)}
	}
	w.mu.Unlock()
	w.s.log.Warn("engine not replaced", "model", r.name, "error", err)
	if order.number == 0 && !order.move {
		w.tell(r, w.readyNow(r, e)) // Nobody asked for it.
		return
	}
	w.tellBeside(r, e, "", fmt.Sprintf("the engine was not replaced, and the old one goes on: %v", err))
}

// tellBeside says of a replica that serves what happens beside that.
func (w *worker) tellBeside(r *run, e *engine, stage, text string) {
	ready := w.readyNow(r, e)
	ready.Stage, ready.Message = stage, text
	w.tell(r, ready)
}
