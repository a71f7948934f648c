package api

import (
	"context"

	"relay/scheduler"
)

// goOn asks the replica for what is left of an answer that another one began, and passes it
// on.
func (a *attempt) goOn(ctx context.Context, k *clock) *refusal {
	for {
		next := a.plan.Next()
		if next.Stream {
			break
		}
		if no := a.prepare(ctx, k, next.Path, payload{next.Body}); no != nil {
			return no
		}
	}
	next := a.plan.Next()
	resp, no := a.send(ctx, k, next.Path, payload{next.Body}, "text/event-stream")
	switch {
	case no != nil && no.reason == scheduler.ContextLength && a.turnedDown:
		if full := a.plan.Full(); full != nil { // The first engine would have ended here.
			a.away.mu.Lock()
			defer a.away.mu.Unlock()
			return a.headway.close(full)
		}
		return a.cannotGoOn(no)
	case no != nil && a.turnedDown:
		return a.cannotGoOn(no)
	case no != nil:
		return no
	}
	defer resp.Body.Close()
	a.away.mu.Lock()
	seam := a.plan.Seam()
	a.away.mu.Unlock()
	return a.passStream(ctx, k, resp, seam)
}

// prepare asks the replica for what the plan wants to know first.
func (a *attempt) prepare(ctx context.Context, k *clock, path string, body payload) *refusal {
	buf := &buffer{held: a.door.held}
	defer buf.drop()
	answer, no := a.wholeOf(ctx, k, path, body, buf)
	switch {
	case no != nil && a.turnedDown: // There may be another way.
		a.turnedDown, answer = false, nil
	case no != nil:
		return no
	}
	if err := a.plan.Answer(answer); err != nil {
		return a.cannotGoOn(refusalOf(err, a.call.id))
	}
	return nil
}

// cannotGoOn is an answer that an engine refuses to go on with: others would do the same.
func (a *attempt) cannotGoOn(no *refusal) *refusal {
	a.away.mu.Lock()
	defer a.away.mu.Unlock()
	a.headway.stuck = no.message
	return a.failure(scheduler.EngineFailed, "%s would not go on with the answer", a.who())
}
