package scheduler

import (
	"cmp"
	"slices"
	"time"

	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

// restarting is how far the restart of a model is.
type restarting struct {
	// peer is the one whose turn it is, under that it has been told so; "" where all
	// is done.
	peer  string
	under bool
	// gap: nobody else serves the model, and the peer has no room for two engines.
	gap bool
}

// turn is how long it has been whose turn to restart.
type turn struct {
	peer   string
	number uint64
	since  time.Time
	passed map[string]bool // Those whose time was over: they do not know how, or cannot.
}

func (t turn) late(peer string, number uint64) bool { return t.number == number && t.passed[peer] }

// noteTurn ends a turn that takes longer than any load.
func (l *leading) noteTurn(m *modelView, peer string, number uint64, now time.Time) {
	t := l.turns[m.uid]
	if t.number != number {
		t = turn{number: number, passed: map[string]bool{}}
	}
	switch {
	case t.peer != peer:
		t.peer, t.since = peer, now
	case peer != "" && now.Sub(t.since) > m.budget()+2*drainTime:
		t.passed[peer] = true
	}
	l.turns[m.uid] = t
}

// restartOf says whose turn it is to restart: one peer after another, each once
// the one before is ready again. passed are those that are left out.
func restartOf(v *view, m *modelView, current placementView, number uint64, passed func(peer string) bool) restarting {
	var due []string
	ready := 0
	for _, r := range m.replicas {
		if !slices.Contains(current.Peers, r.peer) || !v.peer[r.peer].alive() || r.State != StateReady && r.State != StateLoading {
			continue
		}
		if r.State == StateReady {
			ready++
		}
		if r.Restart < number && !passed(r.peer) && (r.State == StateReady || r.peer == current.Turn) {
			due = append(due, r.peer)
		}
	}
	switch {
	case len(due) == 0:
		return restarting{}
	case slices.Contains(due, current.Turn) && current.Restart == number:
		return restarting{peer: current.Turn, under: true}
	}
	slices.Sort(due)
	return restarting{peer: due[0], gap: ready <= 1 && !roomForTwo(v, m, current, due[0])}
}

// placeRestart places a model that is being restarted: with one replica more than
// wanted where there would be a gap, until the one whose turn it is is through.
// turn is empty while another peer is to be ready first.
func (l *leading) placeRestart(current placementView, r restarting, place func(more int) placement.Plan) (plan placement.Plan, turn string) {
	plan = place(0)
	if r.peer == "" {
		return plan, ""
	}
	standsIn := len(current.Peers) > len(plan.Orders)
	if !standsIn && (r.under || !r.gap) {
		return plan, r.peer
	}
	with := place(1)
	switch {
	case len(with.Orders) <= len(plan.Orders): // Nobody can stand in.
		return plan, r.peer
	case r.under || !r.gap:
		return with, r.peer
	}
	return with, ""
}

// roomForTwo says whether a peer has memory for a second engine of a model.
func roomForTwo(v *view, m *modelView, current placementView, peer string) bool {
	p := v.peer[peer]
	machine := v.machine(p, m.uid)
	free, pool := map[string]uint64{ways.HostID: machine.Host.Free}, map[string]string{}
	for _, d := range machine.GPUs {
		if free[d.ID] = d.Free; d.Unified {
			pool[d.ID] = ways.HostID
		}
	}
	need := map[string]uint64{}
	for device, bytes := range current.way(peer, m.Model).Need() {
		need[cmp.Or(pool[device], device)] += bytes
	}
	for device, bytes := range need {
		if bytes > free[device] {
			return false
		}
	}
	return true
}
