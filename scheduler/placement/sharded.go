package placement

import (
	"slices"

	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// Sharded is the same decision for a group of peers. Who may not run anything is barred
// from it, and so is everybody else where the model may run on one peer only. What a peer
// has reserved for the model already counts as free. Force, Turns and Coordinator are
// the caller's to set.
func Sharded(m Model, s Snapshot) shards.Problem { return newPlanner(m, s).sharded() }

func (p *planner) sharded() shards.Problem {
	problem := shards.Problem{Name: p.m.Name, Bytes: p.m.Bytes, Pieces: p.pieces, Worst: ways.Fits}
	if p.m.Evict {
		problem.Worst = ways.Evicts
	}
	for i := range p.peers {
		q := &p.peers[i]
		problem.Members = append(problem.Members, shards.Member{
			ID: q.ID, Name: q.Name, Machine: q.without(q.Own), Holds: q.Holds, ShardOnly: q.Trust == "shard-only",
			Build: q.Build, RTT: q.RTT, Barred: p.barred(q),
		})
	}
	return problem
}

// without is its machine as if so much memory were not taken; what a GPU without memory
// of its own has is the host's.
func (q *Peer) without(own map[string]uint64) ways.Machine {
	m := q.Machine
	if len(own) == 0 {
		return m
	}
	m.GPUs = slices.Clone(m.GPUs)
	inHost := own[ways.HostID]
	for i := range m.GPUs {
		g := &m.GPUs[i]
		back := own[g.ID]
		if g.Unified {
			inHost += own[g.ID]
			back += own[ways.HostID]
		}
		g.Free = min(g.Lent, g.Free+back)
	}
	m.Host.Free = min(m.Host.Lent, m.Host.Free+inHost)
	return m
}

// barred is why a peer takes no part in a group; nil where it may.
func (p *planner) barred(q *Peer) *shards.Bar {
	trusted := *q
	if q.Trust == "shard-only" {
		trusted.Trust = "replicas" // Whole models are what it may not run.
	}
	if u := p.unable(&trusted); u != able {
		text := p.unableText(q, u)
		if u == isBarred {
			text = q.Name + " runs nothing for others (its trust is " + q.Trust + ")"
		}
		return &shards.Bar{Reason: u.reason(), Text: text}
	}
	if q.Parked || q.Failed != "" {
		r := p.failureText(q)
		return &shards.Bar{Reason: r.Reason, Text: r.Text}
	}
	return nil
}

// WholeSomewhere says whether some peer that may run the model could hold it whole, now
// or once other models there ended, and has its file or could fetch it: there it goes, or
// waits, rather than to a group. A peer on which it is parked is none.
func WholeSomewhere(m Model, s Snapshot) bool {
	p := newPlanner(m, s)
	for i := range p.peers {
		q := &p.peers[i]
		if p.unable(q) != able || p.parked(q) {
			continue
		}
		alone := *q // A group that runs there shows nothing.
		alone.Runs = q.Runs && (q.Way == nil || q.Way.Kind != ways.Shards)
		if f := p.fileless(q); alone.Runs || (f == hasFile || f == notAsked) && p.ever(&alone) {
			return true
		}
	}
	return false
}

// shardsRung is the best group that a peer could coordinate, as a rung of its ladder; ok
// is false where it may not coordinate any. problem is that of all, and is left as it was.
func (p *planner) shardsRung(q *Peer, problem shards.Problem) (r ways.Rung, ok bool) {
	if !q.Holds || q.Trust != "replicas" {
		return r, false
	}
	r = ways.Rung{Way: ways.Way{Kind: ways.Shards}}
	if p.unable(q) != able { // That says it all.
		return r, true
	}
	problem.Coordinator, problem.Worst = q.ID, ways.Evicts
	plan, no := shards.Form(problem)
	if no != nil {
		r.Verdict, r.Reason, r.Text = no.Verdict, no.Reason, no.Text
		return r, true
	}
	r.Way, r.Verdict, r.Text = plan.Way, plan.Verdict, plan.Layers
	if plan.Verdict == ways.Evicts {
		r.Text += ", once idle models are unloaded"
	}
	return r, true
}
