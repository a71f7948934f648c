package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// aways are the requests that this entrance has under way, by the engine that answers
// them: all of one engine are told at the same moment, and with one look.
type aways struct {
	log *slog.Logger
	mu  sync.Mutex
	way map[engineKey]*awayFrom
}

// engineKey names one engine of a model: the peer on which it runs, in which of that
// peer's lives, and which of those that it started then. Peers of older releases do not
// count theirs.
type engineKey struct {
	uid, peer string
	life, nth uint64
}

func (r replicaView) engineKey(uid string) engineKey {
	return engineKey{uid, r.peer, r.version[0], r.Engine}
}

type awayFrom struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	held int
}

func newAways(log *slog.Logger) *aways { return &aways{log: log, way: map[engineKey]*awayFrom{}} }

// away is a context that ends once an answer by this replica had better go on elsewhere,
// and another one is ready there: its cause is the *Error that says why. over is to be
// called when the answer has ended, once; the context does not end by that.
func (s *Scheduler) away(uid string, r replicaView) (ctx context.Context, over func()) {
	key := r.engineKey(uid)
	a := s.aways.add(key)
	v, _ := s.latest()
	s.aways.judge(v) // It may have been judged before this request was there.
	return a.ctx, sync.OnceFunc(func() { s.aways.leave(key, a) })
}

func (a *aways) add(key engineKey) *awayFrom {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.way[key]
	if w == nil {
		w = &awayFrom{}
		w.ctx, w.end = context.WithCancelCause(context.Background())
		a.way[key] = w
	}
	w.held++
	return w
}

func (a *aways) leave(key engineKey, w *awayFrom) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.held--; w.held == 0 && a.way[key] == w {
		delete(a.way, key)
	}
}

// judge tells the requests that are to go on elsewhere.
func (a *aways) judge(v *view) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, w := range a.way {
		if why := v.away(key); why != nil {
			delete(a.way, key) // Requests that come here later are judged anew.
			a.log.Info("answers go on elsewhere", "model", v.model[key.uid].shown, "requests", w.held, "why", why.Message)
			w.end(why)
		}
	}
}

// away is why what an engine answers is to go on elsewhere, nil where it is not, or where
// there is nowhere to go.
func (v *view) away(key engineKey) *Error {
	m := v.model[key.uid]
	if m == nil {
		return nil
	}
	var why *Error
	switch i := slices.IndexFunc(m.replicas, func(r replicaView) bool { return r.peer == key.peer }); {
	case i < 0:
		why = v.replaced(key.peer)
	case m.replicas[i].engineKey(m.uid) != key && v.going(m.replicas[i]) == nil:
		why = v.replaced(key.peer)
	default:
		why = v.going(m.replicas[i])
	}
	if why == nil || !slices.ContainsFunc(m.replicas, func(r replicaView) bool { return r.engineKey(key.uid) != key && v.going(r) == nil }) {
		return nil
	}
	return why
}

// going is why requests had better not be at a replica, nil where they are well there: it
// is ready, on a peer that answers and is to stay.
func (v *view) going(r replicaView) *Error {
	p := v.peer[r.peer]
	if p == nil {
		return goingFor(PeerGone, "the peer that served is no member any more")
	}
	switch {
	case !p.trusted():
		return errNoMoreTrust
	case !p.alive() || p.Quiet:
		return goingFor(PeerGone, "%s does not answer", p.Name)
	case p.advert.Draining:
		return goingFor(Draining, "%s is stopping", p.Name)
	case p.Draining:
		return goingFor(Draining, "%s is drained", p.Name)
	case r.State == StateReady:
		return nil
	case r.State == StateFailed || r.State == StateRefused:
		return goingFor(EngineFailed, "the engine on %s has ended", p.Name)
	case r.State == StateLoading:
		return v.replaced(r.peer)
	}
	return goingFor(Draining, "the model is to run on %s no longer", p.Name)
}

// replaced is why requests leave an engine that another one has taken the place of, or
// takes it: it serves only what it has, for a while.
func (v *view) replaced(peer string) *Error {
	p := v.peer[peer]
	switch {
	case p == nil:
		return goingFor(PeerGone, "the peer that served is no member any more")
	case !p.alive() || p.Quiet:
		return goingFor(PeerGone, "%s does not answer", p.Name)
	}
	return goingFor(Draining, "the engine on %s serves no more, or another one in its place", p.Name)
}

func goingFor(why Reason, format string, args ...any) *Error {
	return &Error{Why: why, Retry: RetryElsewhere, Message: fmt.Sprintf(format, args...)}
}
