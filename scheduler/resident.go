package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"relay/scheduler/ledger"
	"relay/scheduler/residency"
	"relay/scheduler/ways"
)

// engine is a process of this peer that serves a model, with the requests that it
// has. What changes is of worker.mu.
type engine struct {
	uid     string
	name    string // Under which its memory is reserved, and its turns on the cores are counted.
	nth     int
	model   Model // As it was started.
	process Process
	pid     atomic.Int64 // Also while it starts; 0 before.
	way     ways.Way
	slots   int
	cores   int // That it keeps busy while it computes; 0 where a GPU does that.
	load    time.Duration
	ready   time.Time

	inFlight int
	queued   int           // Of them those that wait for the cores.
	peak     int           // The most requests at a time since its timings were last looked at.
	used     time.Time     // When a request last ended; zero before the first.
	idle     chan struct{} // Closed when the last request ends; nil while nobody waits for that.
	rest     chan struct{} // A request ended, and none runs.
	doubt    chan struct{} // A request waited for a token in vain.
	shut     chan struct{} // Closed when nothing new is let in any more.
	since    time.Time     // Since when requests wait; zero while none does.
	pressure string        // What the mesh was told of its load.
	timings  Timings       // At the last look.
	freed    chan struct{} // Closed when its memory is given back.
	timed    bool          // The engine tells its timings.
	noted    time.Time     // When its speed was last told.
	looked   time.Time     // When its memory was last looked at.
	halved   bool          // It was to be replaced by one with half the cores.
	baseline uint64        // What it took at the first look, in bytes.
	private  atomic.Uint64 // Memory that nobody else could have while it lives, at the last look, in bytes.
}

func newEngine(l Launch) *engine {
	return &engine{
		uid: l.UID, name: l.instance(), nth: l.Nth, model: l.Model, way: l.Way, slots: l.Model.Slots,
		rest: make(chan struct{}, 1), doubt: make(chan struct{}, 1), shut: make(chan struct{}), freed: make(chan struct{}),
	}
}

// onCPU says whether it computes on the cores that are lent.
func (e *engine) onCPU() bool { return onCPU(e.way) }

func onCPU(way ways.Way) bool { return way.Kind == ways.CPU || way.Kind == ways.Hybrid }

// waiting is how many of its requests wait: for a slot, or for the cores;
// worker.mu is held.
func (e *engine) waiting() int { return max(e.queued, e.inFlight-e.slots, 0) }

// InFlight counts the requests on each of this peer's replicas, by uid.
func (s *Scheduler) InFlight() map[string]int {
	counts := map[string]int{}
	for _, l := range s.Workload() {
		if l.InFlight > 0 {
			counts[l.UID] = l.InFlight
		}
	}
	return counts
}

// Workload lists this peer's own replicas, by uid.
func (s *Scheduler) Workload() []Workload {
	w := s.work
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []Workload{}
	for _, uid := range slices.Sorted(maps.Keys(w.runs)) {
		r := w.runs[uid]
		l := Workload{UID: uid, State: r.told.State}
		for e := range w.engines {
			if e.uid != uid || e.ready.IsZero() {
				continue
			}
			l.InFlight += e.inFlight
			l.Waiting += e.waiting()
			l.LastServed = latest(l.LastServed, e.used)
			l.Resident = latest(l.Resident, e.ready)
		}
		list = append(list, l)
	}
	return list
}

// latest is how many seconds ago the later of two moments was, one of them given so
// already; nil where there was none.
func latest(ago *float64, t time.Time) *float64 {
	seconds := time.Since(t).Seconds()
	if t.IsZero() || ago != nil && *ago <= seconds {
		return ago
	}
	return &seconds
}

// occupy takes a place on this peer's own replica, and its turn on the cores,
// until leave is called, with the error that ended the request; process is nil
// where no replica serves. The error is ctx's.
func (w *worker) occupy(ctx context.Context, uid string) (process Process, leave func(error), err error) {
	e := w.enter(uid)
	if e == nil {
		return nil, nil, nil
	}
	yield := func() {}
	if e.cores > 0 {
		w.mu.Lock()
		e.queued++
		w.mu.Unlock()
		open, over := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { // Until the turn has come, or there is none to wait for.
			select {
			case <-e.shut:
				over()
			case <-open.Done():
			}
		})
		yield, err = w.s.cores.Enter(open, e.name, e.cores)
		over()
		watch.Wait()
		w.mu.Lock()
		e.queued--
		shut := e.isShut()
		w.mu.Unlock()
		switch {
		case shut && ctx.Err() == nil: // Another engine may serve by now.
			if err == nil {
				yield()
			}
			w.leave(e, nil)
			return nil, nil, nil
		case err != nil:
			w.leave(e, nil)
			return nil, nil, err
		}
	}
	return e.process, w.leaving(e, yield), nil
}

// isShut says that nothing new is let in; worker.mu is held.
func (e *engine) isShut() bool {
	select {
	case <-e.shut:
		return true
	default:
		return false
	}
}

// close lets nothing new in; worker.mu is held.
func (e *engine) close() {
	if !e.isShut() {
		close(e.shut)
	}
}

// occupyNow is occupy for whoever does not wait for the cores; busy says that it
// would have to.
func (w *worker) occupyNow(uid string) (process Process, leave func(error), busy bool) {
	e := w.enter(uid)
	if e == nil {
		return nil, nil, false
	}
	yield := func() {}
	if e.cores > 0 {
		var ok bool
		if yield, ok = w.s.cores.Try(e.name, e.cores); !ok {
			w.leave(e, nil)
			return nil, nil, true
		}
	}
	return e.process, w.leaving(e, yield), false
}

// enter counts a request on the engine that serves a model; nil where none does.
func (w *worker) enter(uid string) *engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.runs[uid]
	if r == nil || r.engine == nil {
		return nil
	}
	e := r.engine
	e.inFlight++
	e.peak = max(e.peak, e.inFlight)
	for o := range w.engines { // What two of them do at a time says little about one.
		if o != e && o.inFlight > 0 && sharesDevice(o.way, e.way) {
			o.peak, e.peak = max(o.peak, 2), max(e.peak, 2)
		}
	}
	return e
}

func sharesDevice(a, b ways.Way) bool {
	return slices.ContainsFunc(a.Parts, func(p ways.Part) bool {
		return p.Layers > 0 && slices.ContainsFunc(b.Parts, func(q ways.Part) bool { return q.Device == p.Device && q.Layers > 0 })
	})
}

// leaving ends a request's place and turn, once.
func (w *worker) leaving(e *engine, yield func()) func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			yield()
			w.leave(e, err)
		})
	}
}

func (w *worker) leave(e *engine, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.inFlight--
	e.used = time.Now()
	if err != nil && ReasonOf(err) == Timeout {
		select {
		case e.doubt <- struct{}{}:
		default:
		}
	}
	if e.inFlight > 0 {
		return
	}
	if e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
	select {
	case e.rest <- struct{}{}:
	default:
	}
}

// quiet is closed once no request runs on an engine.
func (w *worker) quiet(e *engine) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.inFlight == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if e.idle == nil {
		e.idle = make(chan struct{})
	}
	return e.idle
}

// share is how many cores an engine keeps busy while it computes: all that are
// lent where no other model is here, half of them where one is, so that two can
// work at a time.
func (w *worker) share(r *run) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.runs {
		if o != r && !o.failed && onCPU(o.way) {
			return max(1, w.s.CoresLent/2)
		}
	}
	return max(1, w.s.CoresLent)
}

// shareCores has an engine that got all the cores replaced by one with half of
// them, when it is idle and another one is here: then both can work at a time.
func (w *worker) shareCores(r *run, e *engine) {
	half := max(1, w.s.CoresLent/2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.cores <= half || e.inFlight > 0 || e.halved || r.engine != e {
		return
	}
	for o := range w.engines {
		if o.uid != e.uid && o.onCPU() && !o.ready.IsZero() {
			select {
			case r.renewal <- renewalOrder{text: "it shares the cores that are lent with another model", spare: true}:
				e.halved = true
			default:
			}
			return
		}
	}
}

// reserve takes the memory that an engine is to have, and unloads idle models
// for it where that may be.
func (w *worker) reserve(r *run, e *engine, mayEvict bool) error {
	w.reserving.Lock()
	defer w.reserving.Unlock()
	cost, err := w.cost(e)
	if err != nil {
		return err
	}
	e.way.Parts = reckoned(e.way, cost)
	need := w.s.advert.booked(cost)
	err = w.book(e, need)
	var short *ledger.Shortage
	w.mu.Lock()
	evict := mayEvict && r.evict
	w.mu.Unlock()
	if !errors.As(err, &short) || !evict {
		return err
	}
	for range maxEvictions {
		goes, stays, ok := residency.Choose(w.residents(r), need, w.s.ledger.Free(), w.now())
		if !ok {
			return Errorf(NoCapacity, "%w%s", short, staysText(stays))
		}
		for _, uid := range goes {
			w.unload(uid, Errorf(Unloaded, "unloaded to make room for model %q", r.name), false)
		}
		if err = w.book(e, need); err == nil {
			return nil
		}
		// One of them was asked for in the meantime.
	}
	return err
}

// cost is what an engine is to have, by device: by this peer's own reckoning, or what
// it took when it last ran so, and no less than the order says. A way that is none of
// the model's, or names what this peer does not lend, is refused.
func (w *worker) cost(e *engine) (map[string]uint64, error) {
	cost, ok := ways.Of(e.model.shape()).Cost(e.way)
	if !ok {
		return nil, Errorf(NotAllowed, "it was ordered to run a way (%q) that is none of this model's", e.way.Kind)
	}
	for _, s := range w.s.measuredOf(e.uid, e.model) {
		if s.Kind == e.way.Kind && sawWay(s, e.way) {
			cost = ways.Way{Parts: s.Parts}.Need()
		}
	}
	for device := range cost {
		if device != ways.HostID && !w.s.advert.lends(device) {
			return nil, Errorf(NoCapacity, "it was ordered to run on %q, which this peer does not lend", device)
		}
	}
	for device, bytes := range e.way.Need() {
		if _, known := cost[device]; known {
			cost[device] = max(cost[device], bytes)
		}
	}
	return cost, nil
}

// reckoned are the parts of a way with what they cost.
func reckoned(way ways.Way, cost map[string]uint64) []ways.Part {
	if len(way.Parts) == 0 {
		return []ways.Part{{Device: ways.HostID, Bytes: cost[ways.HostID]}}
	}
	return partsOf(cost, way)
}

func (w *worker) book(e *engine, need map[string]uint64) error {
	err := w.s.ledger.Reserve(e.name, need)
	if err == nil {
		w.mu.Lock()
		w.engines[e] = true
		w.mu.Unlock()
	}
	return err
}

// maxEvictions bounds how often models to unload are chosen anew because those
// that were chosen came into use.
const maxEvictions = 3

// stayText says which models were not unloaded, and why.
func staysText(stays []residency.Stay) string {
	if len(stays) == 0 {
		return ""
	}
	var parts []string
	for _, s := range stays[:min(4, len(stays))] {
		parts = append(parts, fmt.Sprintf("%q %s", s.Name, s.Text))
	}
	return "; " + strings.Join(parts, ", ")
}

// now is the time on this worker's own clock.
func (w *worker) now() time.Duration { return time.Since(w.s.started) }

// residents are the models that serve here, but for one.
func (w *worker) residents(but *run) []residency.Resident {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []residency.Resident
	for uid, r := range w.runs {
		e := r.engine
		if e == nil || r == but || r.renewing || w.countOf(uid) > 1 {
			continue
		}
		resident := residency.Resident{
			ID: uid, Name: r.name, Bytes: w.s.ledger.Of(e.name), Kept: r.model.kept(), InFlight: e.inFlight, Asked: r.evict && e.used.IsZero(),
			Loaded: e.ready.Sub(w.s.started), Used: -1, IdleUnload: time.Duration(r.model.IdleUnload) * time.Second,
		}
		if !e.used.IsZero() {
			resident.Used = e.used.Sub(w.s.started)
		}
		list = append(list, resident)
	}
	return list
}

// owned is what this peer's own engines take, with the memory of the host that
// nobody else could have while they live, and the devices on which one of them is
// starting: what that one holds is not told from what other programs do.
type owned struct {
	Own
	private  uint64
	starting map[string]bool
}

func (w *worker) own() owned {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := owned{Own: Own{Bytes: w.s.ledger.Reserved(), Engines: map[string]int{}}, starting: map[string]bool{}}
	for e := range w.engines {
		for _, part := range e.way.Parts {
			if part.Layers > 0 {
				o.Engines[part.Device]++
			}
		}
		if pid := int(e.pid.Load()); pid > 0 {
			o.PIDs = append(o.PIDs, pid)
		}
		o.private += e.private.Load()
		if e.process == nil {
			for _, part := range e.way.Parts {
				o.starting[part.Device] = true
			}
		}
	}
	return o
}

// pause unloads what runs on a device, once its requests are finished. It returns
// at once.
func (w *worker) pause(device string, why *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, r := range w.runs {
		if e := r.engine; e != nil && slices.ContainsFunc(e.way.Parts, func(p ways.Part) bool { return p.Device == device }) {
			w.wait.Go(func() { w.unload(uid, why, true) })
		}
	}
}

// evictable is the memory that unloading idle models would free, by device.
func (w *worker) evictable() map[string]uint64 { return residency.Evictable(w.residents(nil), w.now()) }

// unloadIdle unloads the models that nobody has asked for in their time.
func (w *worker) unloadIdle() {
	for _, uid := range residency.Idle(w.residents(nil), w.now()) {
		w.mu.Lock()
		after := time.Duration(0)
		if r := w.runs[uid]; r != nil {
			after = time.Duration(r.model.IdleUnload) * time.Second
		}
		w.mu.Unlock()
		w.wait.Go(func() { w.unload(uid, Errorf(Unloaded, "unloaded after %s without a request", after), false) })
	}
}

// unload has a model end here until it is ordered anew, and returns when its
// memory is free. One that is in use is left alone unless force says that its
// requests are to finish and then it ends.
func (w *worker) unload(uid string, why *Error, force bool) {
	w.mu.Lock()
	r := w.runs[uid]
	if r == nil || r.engine == nil || !force && (r.engine.inFlight > 0 || r.renewing) {
		w.mu.Unlock()
		return
	}
	e := r.engine
	select {
	case r.notices <- why:
		r.engine = nil // Nothing new goes there from now on.
		e.close()
	default: // It is on its way out already.
	}
	w.mu.Unlock()
	w.s.log.Info("unloading", "model", r.name, "why", why.Message)
	<-e.freed
}

// partsOf puts what is reserved by device into the order of a way's parts.
func partsOf(reserved map[string]uint64, way ways.Way) []ways.Part {
	parts := slices.Clone(way.Parts)
	for i := range parts {
		if bytes, ok := reserved[parts[i].Device]; ok {
			parts[i].Bytes = bytes
		}
	}
	return parts
}
