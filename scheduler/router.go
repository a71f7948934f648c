package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"relay/p2p/record"
	"relay/store"
)

const (
	// hopeless is how long a request waits although the leader says that the
	// model runs nowhere: what it says may be about to change.
	hopeless = 3 * time.Second
	// leaderless is how long it waits while nobody leads.
	leaderless = 20 * time.Second
)

// Models lists what a request could be answered by, now or once it is loaded, by
// name. Resolve finds the others as well, so that who asks for one is told why.
func (s *Scheduler) Models() []ServedModel {
	v, _ := s.latest()
	list := make([]ServedModel, 0, len(v.models))
	for _, m := range v.models {
		if v.servable(m) {
			list = append(list, v.served(m))
		}
	}
	return list
}

// prospect is what a request that nothing serves right now may wait for.
type prospect int

const (
	loading  prospect = iota // A replica comes up.
	election                 // Nobody leads.
	waking                   // It is unloaded, and its leader is told that it is asked for.
	nowhere                  // The leader says that the model runs nowhere.
	later                    // It runs there once what is in its way has ended.
	never                    // Nothing but a person changes that it runs nowhere.
)

// patience is how long a request waits while its prospect stays the same; for a
// replica that comes up, the model's whole budget.
func (p prospect) patience(budget time.Duration) time.Duration {
	switch p {
	case election, waking:
		return leaderless
	case nowhere:
		return hopeless
	case never:
		return 0
	}
	return budget
}

// again is after how long a request goes back to a replica that failed it, where
// there is no other.
const again = 2 * time.Second

// Route picks a replica for a model, waiting for one that comes up. Those that were tried
// are asked again once their replica is another than it was, or where nothing
// else is ready for a while. Errors are of type *Error.
func (s *Scheduler) Route(ctx context.Context, want Want) (Route, error) {
	name, tried := want.UID, want.Tried
	started := time.Now()
	v, changed := s.latest()
	before := map[string]record.Version{}
	if m := v.resolve(name); m != nil {
		for _, r := range m.replicas {
			before[r.peer] = r.version
		}
	}
	var waitingFor prospect
	since := started // That is waited for.
	for {
		m := v.resolve(name)
		if m == nil {
			return Route{}, v.unknown(name)
		}
		passed := false
		want.UID = m.uid
		route, ok, err := s.pick(ctx, v, m, want, func(r replicaView) bool {
			failed := slices.Contains(tried, r.mark()) || slices.Contains(tried, r.peer) && before[r.peer] == r.version
			passed = passed || failed
			return failed
		})
		if ok || err != nil {
			return route, err
		}
		p, no := s.outlook(v, m)
		if p != loading {
			s.asks.want(m.uid)
		}
		if p != waitingFor {
			waitingFor, since = p, time.Now()
		}
		if passed && time.Since(started) >= again {
			tried = nil
			continue
		}
		left := min(p.patience(m.budget())-time.Since(since), m.budget()-time.Since(started))
		if left <= 0 {
			return Route{}, no
		}
		timer := time.NewTimer(min(left, askEvery, again)) // The leader is told again meanwhile.
		select {
		case <-changed:
		case <-timer.C:
		case <-s.ended:
			timer.Stop()
			return Route{}, &Error{Why: Draining, Retry: RetryElsewhere, Message: "this peer is stopping; ask another one"}
		case <-ctx.Done():
			timer.Stop()
			no.Err = ctx.Err()
			return Route{}, no
		}
		timer.Stop()
		v, changed = s.latest()
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

// outlook says what a request may wait for where nothing serves the model right
// now, and what to answer when it has waited for long enough.
func (s *Scheduler) outlook(v *view, m *modelView) (prospect, *Error) {
	p, placed := v.placements[m.uid]
	leader := v.peer[p.leader]
	coming := slices.ContainsFunc(m.replicas, func(r replicaView) bool {
		return (r.State == StateLoading || r.State == StateReady) && v.peer[r.peer].alive()
	})
	switch {
	case coming: // Whoever leads: it is served as soon as it is up.
	case !placed || !v.inForce(p) || !leader.alive():
		return election, &Error{Why: ModelLoading, Retry: RetryLater, RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("model %q: its leader is being elected", m.shown)}
	case len(p.Peers) == 0 && (p.Asleep || Reason(p.Reason) == Unloaded):
		return waking, &Error{Why: ModelLoading, Retry: RetryLater, RetryAfter: m.loadTime(v),
			Message: fmt.Sprintf("model %q was unloaded and is being loaded now that it is asked for", m.shown)}
	case len(p.Peers) == 0 && p.Final:
		return never, &Error{Why: Reason(cmp.Or(p.Reason, string(NoCapacity))), Retry: RetryLater, RetryAfter: time.Minute, Message: p.Text}
	case len(p.Peers) == 0 && p.Later:
		return later, &Error{Why: Reason(cmp.Or(p.Reason, string(NoCapacity))), Retry: RetryLater, RetryAfter: 10 * time.Second, Message: p.Text}
	case len(p.Peers) == 0:
		return nowhere, &Error{Why: Reason(cmp.Or(p.Reason, string(NoCapacity))), Retry: RetryLater, RetryAfter: 30 * time.Second, Message: p.Text}
	}
	return loading, &Error{Why: ModelLoading, Retry: RetryLater, RetryAfter: m.loadTime(v), Message: m.progress(v, p)}
}

// progress says how far a model is that loads.
func (m *modelView) progress(v *view, p placementView) string {
	for _, r := range m.replicas {
		if r.State != StateLoading || !v.peer[r.peer].alive() {
			continue
		}
		name := v.peer[r.peer].Name
		if r.Stage == StageFetching {
			return fmt.Sprintf("model %q is being fetched by %s (%d %% of %s)", m.shown, name, 100*r.Done/max(1, r.Total), store.FormatBytes(uint64(max(0, r.Total))))
		}
		if r.Stage == StageGathering {
			return fmt.Sprintf("model %q is to run on several peers: %s", m.shown, r.Message)
		}
		text := fmt.Sprintf("model %q is being started on %s", m.shown, name)
		if took := v.loadMS(r.peer, m.uid); took >= 100 {
			text += fmt.Sprintf(" (it took %s last time)", (time.Duration(took) * time.Millisecond).Round(time.Second/10))
		}
		return text
	}
	return fmt.Sprintf("model %q is still loading (%s)", m.shown, p.Text)
}

// loadTime is when a client may ask again for a model that loads.
func (m *modelView) loadTime(v *view) time.Duration {
	longest := int64(0)
	for _, r := range m.replicas {
		longest = max(longest, v.loadMS(r.peer, m.uid))
	}
	if longest == 0 {
		return 10 * time.Second
	}
	return min(max(time.Second, time.Duration(longest)*time.Millisecond), time.Minute)
}

// loadMS is how long a model took to load on a peer when it last did, 0 where that
// is not known.
func (v *view) loadMS(peer, uid string) int64 {
	for _, s := range v.seen[replicaKey{peer, uid}] {
		return s.LoadMS
	}
	return 0
}
