package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"relay/scheduler"
)

// lost is a client that no longer takes its answer.
func (c *call) lost(err error) *refusal {
	c.aborted = true
	no := refuse(scheduler.CannotContinue, "the client does not take its answer")
	no.cause = fmt.Errorf("%w: %w", errLost, err)
	no.retry = scheduler.RetryNever
	return no
}

// failed is an engine that did what it must not.
func (a *attempt) failed(cause error, format string, args ...any) *refusal {
	no := refuse(scheduler.EngineFailed, format, args...)
	no.cause = cause
	return no
}

// broken is an answer, or the wait for one, that ended by an error.
func (a *attempt) broken(ctx context.Context, err error, resp *http.Response) *refusal {
	var late *deadlineError
	var barred *scheduler.Error
	var away leftError
	var no *refusal
	switch {
	case errors.As(context.Cause(ctx), &away):
		return a.hasLeft()
	case errors.As(context.Cause(ctx), &late):
		no = refuse(scheduler.Timeout, "%s took too long: %s", a.who(), late)
	case errors.As(err, &barred): // By the scheduler, which named this replica before.
		no = refuse(barred.Why, "%s", barred.Message)
	case errors.Is(err, errEventTooLong):
		no = refuse(scheduler.EngineFailed, "%s sent an event of more than %d bytes", a.who(), maxEvent)
	case resp != nil && !a.route.Local && resp.Trailer.Get(headerBroken) != "":
		// The other peer is there and says what became of its engine.
		no = parseHopRefusal([]byte(resp.Trailer.Get(headerBroken)), a.who())
	case a.route.Local:
		no = refuse(scheduler.EngineFailed, "this peer's engine ended in the middle of its work")
		no.died = !undialled(err)
	case err == io.EOF: // itself: what ends a link may wrap it
		no = refuse(scheduler.EngineFailed, "%s ended an answer before its end", a.who())
	default:
		no = refuse(scheduler.PeerGone, "%s went away", a.who())
	}
	no.cause = err
	return no
}

func (a *attempt) failure(why scheduler.Reason, format string, args ...any) *refusal {
	no := refuse(why, format, args...)
	no.retry = scheduler.RetryElsewhere
	return no
}

// answer marks what a living engine said: asking it again would not help.
func (a *attempt) answer(no *refusal) *refusal {
	no.answered = true
	return no
}
