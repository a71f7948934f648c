package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay/scheduler/ledger"
	"relay/scheduler/residency"
	"relay/scheduler/ways"
)

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
	w.mu.Lock()
	evict := mayEvict && r.evict
	w.mu.Unlock()
	return w.take(need, evict, r, r.name, func() error { return w.book(e, need) })
}

// take has book take memory for a model, and where that may be unloads idle models for
// it, but for one. reserving is held.
func (w *worker) take(need map[string]uint64, evict bool, but *run, name string, book func() error) error {
	err := book()
	var short *ledger.Shortage
	if !errors.As(err, &short) || !evict {
		return err
	}
	for range maxEvictions {
		goes, stays, ok := residency.Choose(w.residents(but), need, w.s.ledger.Free(), w.now())
		if !ok {
			return Errorf(NoCapacity, "%w%s", short, staysText(stays))
		}
		for _, uid := range goes {
			w.unload(uid, Errorf(Unloaded, "unloaded to make room for model %q", name), false)
		}
		if err = book(); err == nil {
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
		w.started++
		e.number = w.started
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

// residents are the models that serve here, or have layers here, but for one.
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
	for uid, s := range w.shares {
		if s.server == nil {
			continue
		}
		resident := residency.Resident{ID: uid, Name: s.name, Bytes: w.s.ledger.Of(s.reservation()), Kept: s.model.kept(), Loaded: s.ready.Sub(w.s.started), Used: -1}
		if moved := s.moved.Load(); moved > 0 {
			resident.Used = time.Unix(0, moved).Sub(w.s.started)
			if len(s.conns) > 0 && !s.quiet() {
				resident.InFlight = 1
			}
		}
		list = append(list, resident)
	}
	return list
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
	for _, s := range w.shares {
		if slices.ContainsFunc(s.take.Parts, func(p ways.Part) bool { return p.Device == device && p.Layers > 0 }) {
			select {
			case s.notices <- why:
			default: // It is on its way out already.
			}
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
	if s := w.shares[uid]; s != nil && s.server != nil {
		s.server = nil // Nothing new goes there from now on.
		select {
		case s.notices <- why:
		default: // It is on its way out already.
		}
		w.mu.Unlock()
		w.s.log.Info("giving layers back", "model", s.name, "why", why.Message)
		<-s.freed
		return
	}
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
