package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/scheduler/routing"
)

// replicaKey names a model's replica by where it is.
type replicaKey struct{ peer, uid string }

// pick chooses among the replicas that are ready the one with which the answer is expected
// soonest. Where that is this peer's own one it waits for slots of it, and for its turn on
// the cores. The error is admit's: of one that says to try elsewhere where nobody else is
// left. ok is false where there is none, or none any more.
func (s *Scheduler) pick(ctx context.Context, v *view, m *modelView, want Want, tried func(replicaView) bool) (route Route, ok bool, err error) {
	list := make([]routing.Replica, len(m.replicas))
	decode, prefill := v.speeds(m)
	for i, r := range m.replicas {
		list[i] = s.routable(v, m, r, tried)
		list[i].Decode, list[i].Prefill = decode[i], prefill[i]
	}
	w := routing.Want{Prefix: want.Prefix, Shared: want.Shared, Tokens: want.Tokens, Answers: want.Answers, Light: want.Light}
	var full error // Of this peer's own one.
	for looked := false; ; {
		d, trip := s.routes.Pick(m.uid, w, list, time.Now(), rand.Uint64())
		if trip == nil {
			return Route{}, false, full
		}
		r := m.replicas[d.Pick]
		if r.peer != s.self {
			id, err := peer.Decode(r.peer)
			if err != nil {
				trip.Done(routing.NotAsked, time.Now(), 0)
				list[d.Pick].Out = routing.NotAlive
				continue
			}
			away, over := s.awayFrom(v, m, r)
			route := s.begun(s.routeTo(v, m, r), trip, away, func(error) { over() })
			route.Client = s.cuttable(r.peer, s.Mesh.HTTP(id))
			return route, true, nil
		}
		own, busy := s.work.admitNow(want)
		if load := &list[d.Pick].Load; busy && !looked && load.Running+load.Waiting < load.Slots {
			// What it has got free is not for this request, or not the cores: others may have.
			trip.Done(routing.NotAsked, time.Now(), 0)
			load.Running, load.Waiting = load.Slots, 1
			looked = true
			continue
		}
		away, over := s.awayFrom(v, m, r)
		if busy {
			own, err = s.admitted(ctx, away, want)
		}
		if no := (*Error)(nil); errors.As(err, &no) && no.Why == Busy && no.Retry == RetryElsewhere {
			over()
			trip.Done(routing.Refused, time.Now(), 0)
			list[d.Pick].Out, full = routing.Tried, err
			continue
		}
		if err != nil || own.process == nil {
			over()
			trip.Done(routing.NotAsked, time.Now(), 0)
			if err != nil || busy {
				return Route{}, false, err
			}
			list[d.Pick].Out = routing.NotReady
			continue
		}
		route := s.begun(s.routeTo(v, m, r), trip, away, func(err error) {
			over()
			own.leave(err)
		})
		route.Client = own.process.Client()
		return route, true, nil
	}
}

// routable is a replica as package routing knows it.
func (s *Scheduler) routable(v *view, m *modelView, r replicaView, tried func(replicaView) bool) routing.Replica {
	to := routing.Replica{Peer: r.peer, Mark: fmt.Sprint(r.version[0], ".", r.Engine), Local: r.peer == s.self, Context: m.Context, Slots: m.Slots}
	if to.Local {
		to.Load = routing.Load(s.work.loadOf(m.uid))
	}
	p := v.peer[r.peer]
	switch {
	case p == nil || !p.alive():
		to.Out = routing.NotAlive
	case !p.trusted():
		to.Out = routing.NoTrust
	case r.State != StateReady:
		to.Out = routing.NotReady
	case tried(r):
		to.Out = routing.Tried
	case v.going(r) != nil:
		to.Out = routing.Leaving
	}
	if p != nil {
		to.RTT, to.Relayed = p.RTT, p.Relayed
	}
	return to
}

// begun is a route on which a request is under way, until its Done, which calls leave.
func (s *Scheduler) begun(route Route, trip *routing.Trip, away context.Context, leave func(error)) Route {
	route.Away = away
	route.Heard = func(l Load) { trip.Heard(routing.Load(l), time.Now()) }
	route.Done = func(err error) {
		trip.Done(endOf(err), time.Now(), rand.Uint64())
		leave(err)
	}
	return route
}

// endOf is what an attempt's end says of the replica.
func endOf(err error) routing.End {
	switch {
	case err == nil:
		return routing.Served
	case errors.Is(err, context.Canceled), ReasonOf(err) == Draining:
		return routing.Dropped
	case ReasonOf(err) == Busy:
		return routing.Refused
	}
	return routing.Failed
}

// awayFrom is away for a replica that was picked; nil where it is to be left already and was
// picked all the same: those to which the answer could go have failed the request.
func (s *Scheduler) awayFrom(v *view, m *modelView, r replicaView) (ctx context.Context, over func()) {
	if v.away(r.engineKey(m.uid)) != nil {
		return nil, func() {}
	}
	return s.away(m.uid, r)
}

// admitted is admit, for as long as the replica is not to be left; where it is, there is no
// place and no error. away may be nil.
func (s *Scheduler) admitted(ctx, away context.Context, want Want) (place, error) {
	if away == nil {
		return s.work.admit(ctx, want)
	}
	waiting, over := context.WithCancel(ctx)
	defer over()
	defer context.AfterFunc(away, over)()
	own, err := s.work.admit(waiting, want)
	if err != nil && away.Err() != nil && ctx.Err() == nil {
		return place{}, nil
	}
	return own, err
}
