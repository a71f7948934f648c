package api

import (
	"context"
	"slices"
	"time"

	"relay/scheduler"
)

const (
	// lookEvery is how often a model is looked at that somebody waits for.
	lookEvery = 250 * time.Millisecond
	// nothingComes is how long nothing may be under way before that is the answer:
	// what the leader says of it may be about to change.
	nothingComes = 5 * time.Second
)

// awaited is what somebody waits for.
type awaited interface {
	// there says whether it is so. It may fill in what it asked other peers for.
	there(ctx context.Context, m *scheduler.ModelState) bool
	// refused is why it is not so, and will not be, after nothing has changed for so
	// long; nil where that is not long enough yet. names are those of the peers, by id.
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
		if err := until.refused(m, time.Since(moved), names); err != nil {
			return m, err
		}
		if now.why == "" {
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

// states are those of the replicas of a model, with their stages.
func states(m scheduler.ModelState) []string {
	list := make([]string, 0, len(m.Replicas))
	for _, r := range m.Replicas {
		list = append(list, r.Peer+" "+r.State+" "+r.Stage)
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
// nearest to serving. moves says whether that takes as long as it takes: not what
// only waits, nor an engine that starts beside the one that it replaces.
func underWayOf(m scheduler.ModelState, names map[string]string) (u underWay, moves bool) {
	u = underWay{phase: "wait", total: -1}
	if m.Later {
		u.why = m.Placed
	}
	best := 0
	for _, r := range m.Replicas {
		moves = moves || onTheWay(r)
		switch {
		case r.State == scheduler.StateLoading && r.Stage == scheduler.StageGathering && best < 4:
			best, u = 4, underWay{phase: "gather", why: r.Message, total: -1}
		case r.State == scheduler.StateLoading && r.Stage != scheduler.StageFetching && best < 4:
			best, u = 4, underWay{phase: "start", why: names[r.Peer] + " starts its engine", total: -1}
		case startsBeside(r) && best < 3:
			best, u = 3, underWay{phase: "start", why: names[r.Peer] + " starts a new engine beside the old one", total: -1}
		case r.State == scheduler.StateLoading && best < 2:
			best, u = 2, underWay{phase: "fetch", why: names[r.Peer] + " fetches its file", done: r.Done, total: r.Total}
			if r.Total <= 0 {
				u.total = -1
			}
		case r.State == scheduler.StateDraining && best < 1:
			best, u = 1, underWay{phase: "wait", why: "requests are still running on " + names[r.Peer], total: -1}
		}
	}
	return u, moves
}

// onTheWay says of a replica that it comes or goes.
func onTheWay(r scheduler.ReplicaState) bool {
	return r.State == scheduler.StateLoading || r.State == scheduler.StateDraining
}

// startsBeside says of a replica that serves that another engine starts beside its own.
func startsBeside(r scheduler.ReplicaState) bool {
	return r.State == scheduler.StateReady && r.Stage == scheduler.StageStarting
}

func serves(m scheduler.ModelState) bool { return Ready(m) > 0 }

// Ready is how many replicas of a model serve.
func Ready(m scheduler.ModelState) (n int) {
	for _, r := range m.Replicas {
		if r.State == scheduler.StateReady {
			n++
		}
	}
	return n
}

// served waits until a replica serves.
type served struct {
	spread bool // On several peers.
}

func (w served) there(_ context.Context, m *scheduler.ModelState) bool {
	return w.spread == m.Spread && slices.ContainsFunc(m.Replicas, func(r scheduler.ReplicaState) bool {
		// The shares of a group that is on its way out are not told any more.
		placed := (r.Way == "shards") == (len(r.Shares) > 0)
		return r.State == scheduler.StateReady && placed && (!w.spread || len(r.Shares) > 0)
	})
}

func (served) refused(m scheduler.ModelState, still time.Duration, names map[string]string) error {
	patience := nothingComes
	switch {
	case m.Final:
		patience = lookEvery
	case m.Later:
		patience = loadBudget(m)
	case m.Asleep: // Its leader has not said anything yet.
		patience = leaderless
	}
	if still < patience {
		return nil
	}
	return notServed(m, names)
}

// loadBudget is how long a model may take to load: what the scheduler gives it.
func loadBudget(m scheduler.ModelState) time.Duration {
	return 5*time.Minute + time.Duration(m.Size()>>30)*20*time.Second
}

// notServed is why a model serves nowhere and nothing is under way: what the peer
// that was to run it said last, else what its leader says.
func notServed(m scheduler.ModelState, names map[string]string) error {
	for _, r := range m.Replicas {
		if failed(r) && len(m.Parked) == 0 && !m.Later {
			return saidOf(m, r, scheduler.NoCapacity, names)
		}
	}
	switch {
	case m.Placed == "":
		return scheduler.Errorf(scheduler.ModelLoading, "model %q: nobody has placed it yet", m.Name)
	case len(m.Parked) > 0 && !m.Later:
		return scheduler.Errorf(scheduler.Parked, "%s", m.Placed)
	}
	return scheduler.Errorf(knownOr(m.Reason, scheduler.NoCapacity), "%s", m.Placed)
}

func failed(r scheduler.ReplicaState) bool {
	return r.State == scheduler.StateFailed || r.State == scheduler.StateRefused
}

// saidOf is what a peer says went wrong with its replica, for the reason that it
// gives, else for another.
func saidOf(m scheduler.ModelState, r scheduler.ReplicaState, otherwise scheduler.Reason, names map[string]string) error {
	return scheduler.Errorf(knownOr(r.Reason, otherwise), "model %q on %s: %s", m.Name, names[r.Peer], r.Message)
}

// knownOr is a reason, or another one where it is a word of another release.
func knownOr(reason string, otherwise scheduler.Reason) scheduler.Reason {
	why := scheduler.Reason(reason)
	if _, known := verdictOf(why); !known {
		return otherwise
	}
	return why
}
