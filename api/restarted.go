package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"relay/p2p/liveness"
	"relay/scheduler"
)

// nothingRestarts is how long nothing may change while a restart has replicas left
// before that is the answer: they go one after another.
const nothingRestarts = 30 * time.Second

// restarted waits until every replica that served when it was made was restarted,
// or is no longer to be.
type restarted struct {
	c     *Control
	began time.Time
	left  map[string]*due // By the id of the peer.
	// gap: there was a moment at which one was on its way and none served.
	gap bool
}

// due is a replica that is not restarted yet.
type due struct {
	// said is what its record says since before the restart.
	said string
	// down: it was seen not to serve, so the next that serves is a new one.
	down bool
	// untold: its peer was there, and told of no replica, when last looked.
	untold bool
}

func newRestarted(c *Control, before scheduler.ModelState) *restarted {
	r := &restarted{c: c, began: time.Now(), left: map[string]*due{}}
	for _, run := range before.Replicas {
		if run.State == scheduler.StateReady {
			r.left[run.Peer] = &due{said: run.Message}
		}
	}
	return r
}

func (r *restarted) there(ctx context.Context, m *scheduler.ModelState) bool {
	since := time.Since(r.began).Seconds() // Before it is asked, so that an old one is never taken for a new one.
	states, asked := map[string]string{}, []scheduler.PeerState{}
	for _, p := range r.c.Scheduler.Peers() {
		states[p.ID] = p.State
		if r.left[p.ID] != nil {
			asked = append(asked, p)
		}
	}
	fillIn(m, r.c.askWorkloads(ctx, asked))
	runs := map[string]scheduler.ReplicaState{}
	for _, run := range m.Replicas {
		runs[run.Peer] = run
	}
	for id, d := range r.left {
		run, told := runs[id]
		if told && d.restarted(run, since) || !told && d.over(states[id]) {
			delete(r.left, id)
		}
	}
	moves := slices.ContainsFunc(m.Replicas, onTheWay)
	r.gap = r.gap || moves && !serves(*m)
	return len(r.left) == 0 && !moves && serves(*m)
}

// restarted says whether the replica is a new one, where the restart began so many
// seconds ago.
func (d *due) restarted(run scheduler.ReplicaState, since float64) bool {
	d.untold = false
	switch {
	case run.State != scheduler.StateReady:
		d.down = true
	case d.down, run.Resident != nil && *run.Resident < since:
		return true
	case run.Message != d.said || run.Stage != "": // What it says from now on is news.
		d.said = ""
	}
	return false
}

// over says whether there is nothing left to restart on a peer, in a state, that
// tells of no replica. Of one that is suspect nothing is told for now; and as its
// state and the replicas are not looked at together, one that is there counts only
// when looked at again.
func (d *due) over(state string) bool {
	switch state {
	case "", string(liveness.Gone):
		return true
	case string(liveness.Suspect):
		d.untold = false
		return false
	}
	was := d.untold
	d.untold = true
	return was
}

func (r *restarted) refused(m scheduler.ModelState, still time.Duration, names map[string]string) error {
	if !serves(m) {
		return served{}.refused(m, still, names)
	}
	patience := nothingRestarts
	if slices.ContainsFunc(m.Replicas, startsBeside) { // Its peer ends one that takes too long, and says so.
		patience += loadBudget(m)
	}
	for _, run := range m.Replicas {
		d := r.left[run.Peer]
		switch {
		case d == nil:
		case failed(run) && still >= nothingComes:
			return saidOf(m, run, scheduler.NoCapacity, names)
		case run.State == scheduler.StateReady && run.Stage == "" && run.Message != "" && (run.Message != d.said || still >= patience):
			return saidOf(m, run, scheduler.EngineFailed, names) // The old engine goes on.
		}
	}
	if still < patience {
		return nil
	}
	var left []string
	for id := range r.left {
		left = append(left, names[id])
	}
	slices.Sort(left)
	return scheduler.Errorf(scheduler.Timeout, "model %q is not restarted on %s: nothing has happened for %s, and what ran there still serves",
		m.Name, strings.Join(left, ", "), patience)
}
