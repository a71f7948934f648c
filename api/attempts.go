package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"relay/scheduler"
)

const (
	// maxDeaths is how many engines may end over a request before it is given to one more:
	// the first may have ended by itself, the second shows that the request ends engines. So
	// it is again once the answer has come aliveTokens farther.
	maxDeaths, aliveTokens = 1, 32
	// maxDeathsInAll is how many may end in all.
	maxDeathsInAll = 4
	// idlePerAttempt is how many attempts may fail for each further one without an engine's
	// fault: peers may not be reached, go away, or take nothing now.
	idlePerAttempt = 10
)

// attempts asks one model's replicas in turn, until one has given the whole answer, or what
// was left of it. nil means that the whole answer went out.
func (d *Door) attempts(ctx context.Context, m scheduler.ServedModel, h *headway) *refusal {
	c := h.call
	h.want.UID, h.want.Tried = m.UID, nil
	h.fruitless, h.idle, h.left, h.asked = 0, 0, 0, nil
	h.gap, h.taken, h.stuck, h.track = nil, false, "", nil // What another model said is not gone on with.
	h.drop()
	var last *refusal // why the attempt before this one failed
	for {
		a := &attempt{door: d, call: c, headway: h, request: h.request, shown: h.shown}
		if h.gap != nil {
			plan, why := h.plan()
			switch {
			case plan == nil && h.seen:
				return h.brokeOff(h.gap.why, why)
			case plan == nil:
				h.gap = nil // It is begun anew.
			case plan.Ending() != nil:
				return h.close(plan.Ending())
			}
			a.plan = plan
		}
		rt, err := d.pick(ctx, h, last)
		if err != nil {
			no := d.notServed(err, m, c)
			switch {
			case h.gap != nil && h.seen:
				return h.brokeOff(h.gap.why, no.message)
			case h.gap != nil: // Its loss says more than that nobody made it good.
				no = h.gap.why
			case last != nil && last.answered:
				// A living replica said no, and there is no other to ask: its
				// words say more than that there is none.
				no = last
			}
			return no
		}
		c.tries++
		c.peer, c.path, c.hardware = rt.Peer, rt.Path, rt.Hardware
		c.served = cmp.Or(rt.Model.Name, m.Name)
		a.route = rt
		h.start()
		no, gone := a.do(ctx)
		if no == nil || gone || c.aborted {
			return no
		}
		last = no
		mark := cmp.Or(rt.Mark, rt.Peer)
		h.want.Tried = append(slices.DeleteFunc(h.want.Tried, func(tried string) bool { return tried == mark }), mark)
		if end := h.failed(ctx, a, no); end != nil {
			return end
		}
		d.opt.Log.Info("trying elsewhere", "request_id", c.id, "peer", shortPeer(rt.Peer), "attempt", c.tries, "reason", no.reason)
	}
}

// failed counts an attempt that failed with a refusal. nil means that another replica may be
// asked; else it is the end.
func (h *headway) failed(ctx context.Context, a *attempt, no *refusal) *refusal {
	c, why := h.call, ""
	goesOn := h.goesOn()
	if goesOn {
		if _, why = h.plan(); why != "" && !h.seen {
			goesOn = false // It is begun anew.
		}
	}
	switch {
	case a.farther && goesOn:
		h.fruitless, h.idle, h.left = 0, 0, 0
		h.want.Tried = h.want.Tried[len(h.want.Tried)-1:] // The others may be well by now.
	case h.gap != nil && no.reason == scheduler.Busy: // As long as the gap may last, there may be room.
	case a.away.left != nil:
		h.idle, h.left = h.idle+1, h.left+1
	case no.unasked, no.reason == scheduler.PeerGone:
		h.idle++
	default:
		h.fruitless++
	}
	if no.died {
		c.deaths++
		if tokens := h.tokens(); tokens-h.diedAt >= aliveTokens {
			h.deaths, h.diedAt = 1, tokens
		} else {
			h.deaths++
		}
	}
	most, retry := h.door.opt.Attempts, no.verdict().retry
	if h.gap != nil && no.reason == scheduler.Busy && retry == scheduler.RetryLater {
		retry = scheduler.RetryElsewhere
	}
	var end *refusal
	switch {
	case h.deaths > maxDeaths || c.deaths >= maxDeathsInAll:
		end = noMoreDeaths(c.deaths, no)
	case ctx.Err() != nil: // The time for all attempts is over.
		end = no
	case retry != scheduler.RetryElsewhere || h.fruitless >= most || h.idle > idlePerAttempt*(most-1):
		end = no
	}
	switch {
	case h.seen && end != nil && end.retry == scheduler.RetryNever && why == "":
		return h.brokeOff(end, "")
	case h.seen && (end != nil || why != ""):
		if h.gap != nil && why == "" { // The loss says more than that nobody made it good.
			no, why = h.gap.why, end.message
		}
		return h.brokeOff(no, why)
	case end != nil:
		return end
	case goesOn:
		h.lose(a, no)
	default:
		h.gap = nil
	}
	return nil
}

// noMoreDeaths is the end of a request that engines end over: it is given to nobody else,
// by relay or by its client.
func noMoreDeaths(deaths int, last *refusal) *refusal {
	no := refuse(scheduler.EngineFailed, "%d engines ended over this request, so relay gives it to no other; do not send it again as it is", deaths)
	no.retry, no.last, no.cause = scheduler.RetryNever, true, last.cause
	return no
}

// pick asks the scheduler for a replica, within bounds.
func (d *Door) pick(ctx context.Context, h *headway, last *refusal) (scheduler.Route, error) {
	c := h.call
	began := time.Now()
	defer func() { c.routed += time.Since(began) }()
	var most time.Duration // 0 is no bound
	bound := func(by time.Duration) {
		if by = max(by, time.Nanosecond); most == 0 || by < most {
			most = by
		}
	}
	if h.patience > 0 {
		// One time for all attempts, of which a moment is left for looking around.
		bound(max(h.patience-c.routed, glance))
	}
	if retry := d.opt.Deadlines.Retry; h.gap == nil && last != nil && last.answered && retry > 0 {
		bound(retry)
	}
	if h.gap != nil && !h.gap.until.IsZero() {
		bound(time.Until(h.gap.until))
	}
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	h.want.Continues = h.taken
	want := h.want
	want.Tried = slices.Clone(want.Tried)
	rt, err := d.opt.Scheduler.Route(ctx, want)
	if err == nil && (rt.Client == nil || rt.Done == nil) {
		return rt, errors.New("the scheduler named a replica without a way to it")
	}
	return rt, err
}

// glance is how long a request waits at least for the scheduler, which looks around
// meanwhile.
const glance = 100 * time.Millisecond

// notServed is the refusal for a scheduler's error.
func (d *Door) notServed(err error, m scheduler.ServedModel, c *call) *refusal {
	var no *refusal
	switch why := scheduler.ReasonOf(err); {
	case why == scheduler.ModelNotFound:
		no = unknownModel(c.model, d.modelsFor(c))
	case why == scheduler.Internal && errors.Is(err, context.DeadlineExceeded):
		// Whatever was waited for did not come up in the time there was.
		no = refuse(scheduler.ModelLoading, "model %q is not ready yet; ask again", clip(c.model, 100))
	default:
		return refusalOf(err, c.id)
	}
	no.cause = err
	return no
}
