package placement

import (
	"cmp"
	"slices"

	"relay/scheduler/ways"
)

// Option is one way on one peer, with what comes of it.
type Option struct {
	Peer string `json:"peer"`
	Name string `json:"name"`
	ways.Rung
	// Holds: the peer has the file. FetchSeconds is how long fetching it would take,
	// 0 where it holds it, below 0 where nobody knows.
	Holds        bool    `json:"holds"`
	FetchSeconds float64 `json:"fetch_seconds"`
	// Chosen: the plan has it run there that way. Runs: it does.
	Chosen bool `json:"chosen"`
	Runs   bool `json:"runs"`
	// Measured is what was measured the last time, nil where nothing was.
	Measured *ways.Seen `json:"measured,omitempty"`
}

// Options are all ways on all peers: those of the plan first, then by verdict,
// then those that are predicted to be faster, then by the peer's name and id and in the order of
// the ladder. Of a peer that could coordinate a group, its best group is one.
func Options(m Model, s Snapshot) []Option {
	p := newPlanner(m, s)
	chosen, stand := p.choose()
	planned := make(map[string]ways.Way)
	evicts := make(map[string]bool)
	for _, c := range chosen {
		planned[c.peer.ID], evicts[c.peer.ID] = c.way, c.evicts
	}
	for _, q := range stand {
		planned[q.ID] = p.kept(q)
	}
	var list []Option
	problem := p.sharded()
	for _, q := range p.sorted() {
		worst, reason, text := p.bar(q)
		plan, isPlanned := planned[q.ID]
		rungs := p.pieces.Ladder(&q.Machine)
		if r, ok := p.shardsRung(q, problem); ok {
			rungs = slices.Insert(rungs, len(rungs)-1, r) // Above the CPU.
		}
		for _, r := range rungs {
			o := Option{Peer: q.ID, Name: q.Name, Rung: r, Holds: q.Holds, FetchSeconds: p.fetchSeconds(q), Measured: measured(q, r.Kind)}
			o.Runs = q.Runs && q.Way != nil && q.Way.Kind == r.Kind
			switch o.Chosen = isPlanned && plan.Kind == r.Kind; {
			case o.Chosen && q.Runs: // Its own memory is what is not free.
				if plan.Decode == 0 && plan.Prefill == 0 { // A peer tells how it runs, not how fast.
					plan = p.pieces.Predicted(&q.Machine, plan)
				}
				o.Rung = ways.Rung{Way: plan, Verdict: ways.Fits, Text: "runs"}
			case o.Chosen && evicts[q.ID]: // There may be such a way that unloads nothing, too.
				o.Rung = ways.Unloading(plan)
			case p.unable(q) != able: // Its memory, as it was last told, is the lesser matter.
				o.Verdict, o.Reason, o.Text = max(r.Verdict, worst), reason, text
				if r.Verdict > worst && r.Reason != "" {
					o.Text += "; " + r.Text
				}
			case r.Verdict < worst:
				o.Verdict, o.Reason, o.Text = worst, reason, text
			}
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b Option) int {
		return cmp.Or(first(a.Chosen, b.Chosen), cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(b.Decode, a.Decode), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// bar is what keeps a peer from running the model whatever its memory: the best
// verdict that is left, and why.
func (p *planner) bar(q *Peer) (best ways.Verdict, reason, text string) {
	switch u := p.unable(q); {
	case u == able:
	case u == isElsewhere, u == isBarred, u == hasNoEngine:
		return ways.Never, u.reason(), p.unableText(q, u)
	default:
		return ways.Later, u.reason(), p.unableText(q, u)
	}
	switch {
	case q.Parked:
		r := p.failureText(q)
		return ways.Never, r.Reason, r.Text
	case q.Failed != "":
		reason, text = p.reject(q)
		return ways.Later, reason, text
	case !q.Runs && p.fileless(q) != hasFile:
		reason, text = p.filelessText(q)
		return ways.Later, reason, text
	}
	return ways.Fits, "", ""
}

func (p *planner) fetchSeconds(q *Peer) float64 {
	switch {
	case q.Holds:
		return 0
	case q.FetchRate > 0:
		return min(float64(max(0, p.m.Bytes))/q.FetchRate, mostSeconds)
	}
	return -1
}

// mostSeconds bounds what comes of a rate that another peer told.
const mostSeconds = 1e9

// measured is how the model did there that way.
func measured(q *Peer, k ways.Kind) *ways.Seen {
	for i := range q.Machine.Seen {
		if s := &q.Machine.Seen[i]; s.Kind == k {
			return s
		}
	}
	return nil
}
