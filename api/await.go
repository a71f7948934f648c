package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"relay/scheduler"
)

// stageFetching is the stage of a replica whose peer fetches the file first.
const stageFetching = "fetching"

const (
	// lookEvery is how often a model is looked at that somebody waits for.
	lookEvery = 250 * time.Millisecond
	// nothingComes is how long nothing may be under way before that is the answer:
	// what the leader says of it may be about to change.
	nothingComes = 5 * time.Second
	// nothingRestarts is the same while a restart has replicas left that serve: they
	// go one after another.
	nothingRestarts = 30 * time.Second
)

// awaited is what somebody waits for.
type awaited interface {
	// there says whether it is so. It may fill in what it asked other peers for.
	there(ctx context.Context, m *scheduler.ModelState) bool
	// refused is why it is not so, after nothing was under way for so long; nil where
	// that is not long enough yet. names are those of the peers, by id.
	refused(m scheduler.ModelState, still time.Duration, names map[string]string) error
}

// await follows a model until what is awaited of it is there or refused, and says
// meanwhile what is under way, each time that it is something else; text where
// nothing is yet.
func (c *Control) await(ctx context.Context, uid, text string, until awaited, progress func(ProgressLine)) (scheduler.ModelState, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	names := c.names()
	var said underWay
	var were []string
	moved := time.Now()
	for {
		m, err := c.Scheduler.Model(uid)
		if err != nil || until.there(ctx, &m) {
			return m, err
		}
		now, moves := underWayOf(m, names)
		if are := states(m); moves || !slices.Equal(are, were) {
			moved, were = time.Now(), are
		}
		if !moves {
			if err := until.refused(m, time.Since(moved), names); err != nil {
				return m, err
			}
			now.why = text
		}
		if now != said {
			progress(now.line())
			said = now
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return m, ctx.Err()
		}
	}
}

// names are what the peers are called, by id.
func (c *Control) names() map[string]string {
	names := map[string]string{}
	for _, p := range c.Scheduler.Peers() {
		names[p.ID] = p.Name
	}
	return names
}

// states are those of the replicas of a model.
func states(m scheduler.ModelState) []string {
	list := make([]string, 0, len(m.Replicas))
	for _, r := range m.Replicas {
		list = append(list, r.Peer+" "+r.State)
	}
	return list
}

// underWay is what a model that somebody waits for is at.
type underWay struct {
	phase, why  string
	done, total int64
}

func (u underWay) line() ProgressLine {
	return ProgressLine{Phase: u.phase, Why: u.why, Done: u.done, Total: u.total}
}

// underWayOf says what a model is at, of several replicas that of the one that is
// nearest to serving; moves, whether anything is.
func underWayOf(m scheduler.ModelState, names map[string]string) (u underWay, moves bool) {
	u = underWay{phase: "wait", total: -1}
	best := 0
	for _, r := range m.Replicas {
		switch {
		case r.State == scheduler.StateLoading && r.Stage != stageFetching && best < 3:
			best, u = 3, underWay{phase: "start", why: names[r.Peer] + " starts its engine", total: -1}
		case r.State == scheduler.StateLoading && best < 2:
			best, u = 2, underWay{phase: "fetch", why: names[r.Peer] + " fetches its file", done: r.Done, total: r.Total}
			if r.Total <= 0 {
				u.total = -1
			}
		case r.State == scheduler.StateDraining && best < 1:
			best, u = 1, underWay{phase: "wait", why: "requests are still running on " + names[r.Peer], total: -1}
		}
	}
	return u, best > 0
}

func serves(m scheduler.ModelState) bool {
	return slices.ContainsFunc(m.Replicas, func(r scheduler.ReplicaState) bool { return r.State == scheduler.StateReady })
}

// served waits until a replica serves.
type served struct{}

func (served) there(_ context.Context, m *scheduler.ModelState) bool { return serves(*m) }

func (served) refused(m scheduler.ModelState, still time.Duration, names map[string]string) error {
	if m.Final {
		return notServed(m, names)
	}
	if still < nothingComes || m.Asleep && still < leaderless { // Its leader has not said anything yet.
		return nil
	}
	return notServed(m, names)
}

// notServed is why a model serves nowhere and nothing is under way: what the peer
// that was to run it said last, else what its leader says.
func notServed(m scheduler.ModelState, names map[string]string) error {
	for _, r := range m.Replicas {
		if (r.State == scheduler.StateFailed || r.State == scheduler.StateRefused) && len(m.Parked) == 0 {
			why := scheduler.Reason(r.Reason)
			if _, known := verdictOf(why); !known { // The peer is of another release.
				why = scheduler.NoCapacity
			}
			return scheduler.Errorf(why, "model %q on %s: %s", m.Name, names[r.Peer], r.Message)
		}
	}
	if m.Placed == "" {
		return scheduler.Errorf(scheduler.ModelLoading, "model %q: nobody has placed it yet", m.Name)
	}
	if len(m.Parked) > 0 {
		return scheduler.Errorf(scheduler.Parked, "%s", m.Placed)
	}
	why := scheduler.Reason(m.Reason)
	if _, known := verdictOf(why); !known {
		why = scheduler.NoCapacity
	}
	return scheduler.Errorf(why, "%s", m.Placed)
}

// restarted waits until every replica that served when it was made was restarted,
// or serves elsewhere.
type restarted struct {
	c     *Control
	began time.Time
	left  map[string]bool // The ids of the peers whose replica is still the old one.
}

func newRestarted(c *Control, before scheduler.ModelState) *restarted {
	r := &restarted{c: c, began: time.Now(), left: map[string]bool{}}
	for _, run := range before.Replicas {
		if run.State == scheduler.StateReady {
			r.left[run.Peer] = true
		}
	}
	return r
}

func (r *restarted) there(ctx context.Context, m *scheduler.ModelState) bool {
	since := time.Since(r.began).Seconds() // Before it is asked, so that an old one is never taken for a new one.
	r.fillIn(ctx, m)
	ready := map[string]bool{}
	settled := true
	for _, run := range m.Replicas {
		switch {
		case run.State == scheduler.StateLoading || run.State == scheduler.StateDraining:
			settled = false
		case run.State == scheduler.StateReady && (run.Resident == nil || *run.Resident >= since):
			ready[run.Peer] = true
		}
	}
	for id := range r.left {
		if !ready[id] { // It is down, gone, or new.
			delete(r.left, id)
		}
	}
	return len(r.left) == 0 && settled && serves(*m)
}

// fillIn asks the peers that are left since when their replicas are there.
func (r *restarted) fillIn(ctx context.Context, m *scheduler.ModelState) {
	if len(r.left) == 0 {
		return
	}
	peers := slices.DeleteFunc(r.c.running(*m), func(p scheduler.PeerState) bool { return !r.left[p.ID] })
	fillIn(m, r.c.askWorkloads(ctx, peers))
}

func (r *restarted) refused(m scheduler.ModelState, still time.Duration, names map[string]string) error {
	switch {
	case !serves(m):
		return served{}.refused(m, still, names)
	case still < nothingRestarts:
		return nil
	}
	var left []string
	for id := range r.left {
		left = append(left, names[id])
	}
	slices.Sort(left)
	return scheduler.Errorf(scheduler.Timeout, "model %q is not restarted on %s: nothing has happened for %s, and what ran there still serves",
		m.Name, strings.Join(left, ", "), nothingRestarts)
}
