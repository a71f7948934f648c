package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

const (
	// hopeless is how long a request waits although the leader says that the
	// model runs nowhere: what it says may be about to change.
	hopeless = 3 * time.Second
	// leaderless is how long it waits while nobody leads.
	leaderless = 20 * time.Second
)

// Models lists what the mesh serves, by name.
func (s *Scheduler) Models() []ServedModel {
	v, _ := s.latest()
	list := make([]ServedModel, 0, len(v.models))
	for _, m := range v.models {
		list = append(list, m.served())
	}
	return list
}

func (m *modelView) served() ServedModel {
	return ServedModel{UID: m.uid, Name: m.shown, Context: m.Context, Created: m.Created}
}

// Route picks a replica for a model, waiting for one that comes up. tried are
// the peers that already failed this request: they are asked again only once
// their replica is another than it was. Errors are of type *Error.
func (s *Scheduler) Route(ctx context.Context, name string, tried []string) (Route, error) {
	started := time.Now()
	v, changed := s.latest()
	before := map[string]record.Version{}
	if m := v.find(name); m != nil {
		for _, r := range m.replicas {
			before[r.peer] = r.version
		}
	}
	for {
		m := v.find(name)
		if m == nil {
			return Route{}, &Error{Why: ModelNotFound, Message: fmt.Sprintf("no model %q in this mesh; %s", name, v.names()), Retry: RetryNever}
		}
		route, ok := s.pick(v, m, func(r replicaView) bool {
			return slices.Contains(tried, r.peer) && before[r.peer] == r.version
		})
		if ok {
			return route, nil
		}
		patience, err := s.outlook(v, m)
		left := patience - time.Since(started)
		if left <= 0 {
			return Route{}, err
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			err.Err = ctx.Err()
			return Route{}, err
		}
		timer.Stop()
		v, changed = s.latest()
	}
}

// pick chooses among the replicas that are ready: one of this peer's own first,
// then the one that this entrance keeps least busy, then the nearest.
func (s *Scheduler) pick(v *view, m *modelView, excluded func(replicaView) bool) (Route, bool) {
	var ready []replicaView
	for _, r := range m.replicas {
		if p := v.peer[r.peer]; r.State == StateReady && p != nil && p.alive() && !excluded(r) {
			ready = append(ready, r)
		}
	}
	slices.SortFunc(ready, func(a, b replicaView) int {
		return cmp.Or(
			cmp.Compare(s.traffic.sentTo(a.peer, m.uid), s.traffic.sentTo(b.peer, m.uid)),
			boolCompare(b.peer == s.self, a.peer == s.self),
			cmp.Compare(v.peer[a.peer].RTT, v.peer[b.peer].RTT),
			cmp.Compare(a.peer, b.peer))
	})
	for _, r := range ready {
		route := Route{Model: m.served(), Peer: r.peer, PeerName: v.peer[r.peer].Name, Local: r.peer == s.self}
		if route.Local {
			process, _ := s.work.process(m.uid)
			if process == nil {
				continue
			}
			route.Client = process.Client()
		} else {
			id, err := peer.Decode(r.peer)
			if err != nil {
				continue
			}
			route.Client = s.Mesh.HTTP(id)
		}
		route.Done = s.done(r.peer, m.uid, route.Local)
		return route, true
	}
	return Route{}, false
}

// done counts the attempt until it is over.
func (s *Scheduler) done(peer, uid string, local bool) func(error) {
	back := s.traffic.send(peer, uid)
	leave := func() {}
	if local {
		leave = s.traffic.enter(uid)
	}
	return func(error) {
		back()
		leave()
	}
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// outlook says how long it is worth waiting for a model that nothing serves
// right now, and what to answer when that is over.
func (s *Scheduler) outlook(v *view, m *modelView) (time.Duration, *Error) {
	p, placed := v.placements[m.uid]
	leader := v.peer[p.leader]
	switch {
	case !placed || leader == nil || !leader.alive():
		return leaderless, &Error{Why: ModelLoading, Retry: RetryLater, RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("model %q: its leader is being elected", m.shown)}
	case len(p.Peers) == 0:
		return hopeless, &Error{Why: Reason(cmp.Or(p.Reason, string(NoCapacity))), Retry: RetryLater, RetryAfter: 30 * time.Second, Message: p.Text}
	}
	return m.budget(), &Error{Why: ModelLoading, Retry: RetryLater, RetryAfter: 10 * time.Second,
		Message: fmt.Sprintf("model %q is still loading (%s)", m.shown, p.Text)}
}

// Serve takes a place on this peer's own replica for a request that another
// peer's door forwarded. Errors are of type *Error and say what to do.
func (s *Scheduler) Serve(_ context.Context, uid string) (Lease, error) {
	v, _ := s.latest()
	m := v.model[uid]
	if m == nil {
		return Lease{}, &Error{Why: ModelNotFound, Message: "this peer knows no such model", Retry: RetryElsewhere}
	}
	process, _ := s.work.process(uid)
	if process == nil {
		return Lease{}, &Error{Why: ModelLoading, Message: fmt.Sprintf("model %q does not run on this peer any more", m.shown), Retry: RetryElsewhere}
	}
	leave := s.traffic.enter(uid)
	return Lease{Model: m.served(), Client: process.Client(), Done: func(error) { leave() }}, nil
}
