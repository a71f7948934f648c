package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/scheduler"
)

// errLost is why a request ends whose client went away.
var errLost = errors.New("the client went away")

// completions serves the two completion routes: it finds a replica, passes its
// answer on, and tries another one as long as the client has seen nothing.
func (d *Door) completions(w http.ResponseWriter, r *http.Request, c *call) {
	buf, no := d.readBody(w, r)
	defer buf.drop()
	if no != nil {
		d.refuse(w, c, no)
		return
	}
	req, no := parseCompletion(buf.b)
	if no != nil {
		d.refuse(w, c, no)
		return
	}
	c.model, c.stream = req.model, req.stream

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	ans := newAnswer(w, c, d.opt.Deadlines, func() { cancel(errLost) })
	defer ans.end()

	patience := d.patience(r)
	var tried []string
	var last *refusal // why the attempt before this one failed
	for {
		rt, err := d.pick(ctx, c, patience, tried, last)
		if err != nil {
			if ctx.Err() != nil {
				c.gone(ctx)
				return
			}
			no := d.notServed(err, req.model, c)
			if last != nil && last.answered {
				// A living replica said no, and there is no other to ask: its
				// words say more than that there is none.
				no = last
			}
			ans.refuse(d, no)
			return
		}
		c.tries++
		c.peer = rt.Peer
		a := &attempt{door: d, call: c, route: rt, nth: c.tries}
		no, gone := a.do(ctx, r.URL.Path, req, ans)
		switch {
		case gone:
			c.gone(ctx)
			return
		case no == nil:
			return
		case c.aborted:
			c.refused(no)
			return
		}
		last = no
		if mark := cmp.Or(rt.Mark, rt.Peer); !slices.Contains(tried, mark) {
			tried = append(tried, mark)
		}
		if a.delivered || no.verdict().retry != scheduler.RetryElsewhere || c.tries >= d.opt.Attempts {
			ans.refuse(d, no)
			return
		}
		d.opt.Log.Info("trying elsewhere", "request_id", c.id, "peer", shortPeer(rt.Peer), "attempt", c.tries, "reason", no.reason)
	}
}

// gone notes that nobody waits for the answer any more.
func (c *call) gone(ctx context.Context) {
	c.status, c.reason, c.cause = statusGone, "", context.Cause(ctx)
}

// patience is how long the client lets the scheduler take: Prefer: wait=N, in
// seconds (RFC 7240). wait=0 asks for what is ready now.
func (d *Door) patience(r *http.Request) time.Duration {
	most := d.opt.Deadlines.Route
	for _, prefer := range r.Header.Values("Prefer") {
		for p := range strings.SplitSeq(prefer, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || n < 0 || n > 1<<20 {
				continue // a preference that is not understood is ignored
			}
			// A moment is left for looking around even where none is given.
			wait := max(time.Duration(n)*time.Second, 100*time.Millisecond)
			if most == 0 || wait < most {
				return wait
			}
		}
	}
	return most
}

// pick asks the scheduler for a replica, within bounds.
func (d *Door) pick(ctx context.Context, c *call, patience time.Duration, tried []string, last *refusal) (scheduler.Route, error) {
	began := time.Now()
	defer func() { c.routed += time.Since(began) }()
	if last != nil && last.answered && (patience == 0 || patience > d.opt.Deadlines.Retry) {
		patience = d.opt.Deadlines.Retry
	}
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	rt, err := d.opt.Scheduler.Route(ctx, c.model, slices.Clone(tried))
	if err == nil && (rt.Client == nil || rt.Done == nil) {
		return rt, errors.New("the scheduler named a replica without a way to it")
	}
	return rt, err
}

// notServed is the refusal for a scheduler's error.
func (d *Door) notServed(err error, model string, c *call) *refusal {
	var no *refusal
	switch why := scheduler.ReasonOf(err); {
	case why == scheduler.ModelNotFound:
		no = unknownModel(model, d.models())
	case why == scheduler.Internal && errors.Is(err, context.DeadlineExceeded):
		// Whatever was waited for did not come up in the time there was.
		no = refuse(scheduler.ModelLoading, "model %q is not ready yet; ask again", clip(model, 100))
	default:
		return refusalOf(err, c.id)
	}
	no.cause = err
	return no
}
