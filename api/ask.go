package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"relay/scheduler"
)

// errLost is why a request ends whose client went away.
var errLost = errors.New("the client went away")

// copiesOfTranslated is how often what a body holds is held once more by a dialect that
// writes the engine's body anew: as texts, and in that body.
const copiesOfTranslated = 2

// ask makes a route of a dialect: it finds a replica, passes its answer on, and tries
// another one as long as the client has seen nothing. copies is how many more times the
// dialect holds what the body does, until the request is over.
func (d *Door) ask(speak dialect, copies int) func(http.ResponseWriter, *http.Request, *call) {
	return func(w http.ResponseWriter, r *http.Request, c *call) {
		buf, no := d.readBody(w, r)
		defer buf.drop()
		if no != nil {
			d.refuse(w, c, no)
			return
		}
		if !buf.count(copies * len(buf.b)) {
			d.refuse(w, c, busyBodies())
			return
		}
		q, no := speak(r.Header, buf.b)
		if no != nil {
			d.refuse(w, c, d.unknownFirst(c, buf.b, no))
			return
		}
		c.model, c.stream = q.model, q.stream
		c.meter.several = q.choices() > 1
		m, no := d.modelFor(q, c)
		if no != nil {
			d.refuse(w, c, no)
			return
		}
		d.inFlight(c, m.Name)
		ticket, no := d.admit(w, c)
		if no != nil {
			d.refuse(w, c, no)
			return
		}
		c.ticket = ticket
		defer ticket.Done()

		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		c.hold = &buffer{held: d.held}
		defer c.hold.drop()
		ans := newAnswer(w, c, d.opt.Deadlines, func() { cancel(errLost) })
		defer ans.end()
		if q.reply != nil {
			ans.speak(q.reply(c, q.model))
		}
		h := d.newHeadway(c, q, ans, d.patience(r))
		defer h.drop()
		timed, start, over := d.total(ctx)
		defer over()
		h.start = start
		no = d.attempts(timed, m, h)
		if fallback, found := d.fallback(c, q, m, no); found && !ans.begun() { // Else no header could say so.
			d.opt.Log.Info("falling back", "request_id", c.id, "model", m.Name, "fallback", fallback.Name, "reason", no.reason)
			h.shown = fallback.Name
			no = d.attempts(timed, fallback, h)
		}
		switch {
		case no == nil:
		case ctx.Err() != nil || errors.Is(no, errLost):
			ans.end()
			c.gone(ctx)
		case c.aborted:
			c.refused(no)
		default:
			ans.refuse(d, no)
		}
	}
}

// unknownFirst is the refusal of a body: where it names a model that there is not, that,
// whatever else is wrong with it.
func (d *Door) unknownFirst(c *call, body []byte, no *refusal) *refusal {
	out, err := outlineOf(body)
	at := out.get("model")
	if err != nil || out.twice != "" || !at.found() || body[at.start] != '"' {
		return no
	}
	name := unquote(at.of(body))
	if name == "" || len(name) > maxModelNamed {
		return no
	}
	c.model = name
	if _, found := d.opt.Scheduler.Resolve(name); found {
		return no
	}
	return unknownModel(name, d.modelsFor(c))
}

// modelFor finds the model of a request, which the key must be allowed to use and which
// must be of the kind that the route is for.
func (d *Door) modelFor(q *request, c *call) (m scheduler.ServedModel, no *refusal) {
	m, found := d.opt.Scheduler.Resolve(q.model)
	if !found {
		return m, unknownModel(q.model, d.modelsFor(c))
	}
	if !c.grant.May(m.Name) {
		no = refuse(scheduler.NotAllowed, "the key %q may not use model %q; GET /v1/models lists what it may, and an admin can make a key for it (relay key add)", clip(c.grant.Name, 60), clip(q.model, 100))
		no.param = "model"
		return m, no
	}
	return m, q.fits(m)
}

// fits says why a model cannot answer a request. Of a model that was registered by a
// release that did not look, the engine says what it cannot.
func (q *request) fits(m scheduler.ServedModel) *refusal {
	kind, looked := cmp.Or(m.Kind, kindChat), m.Kind != "" && !m.Unknown
	switch {
	case q.kind != "" && q.kind != kind:
		return invalid("model", "model %q is %s; ask it at %s", clip(q.model, 100), kindText[kind], kindRoutes[kind])
	case q.images && looked && !m.Images:
		return invalid("messages", "model %q cannot read images: it has no projector for them; send text, or ask a model that can (GET /v1/models)", clip(q.model, 100))
	case q.tools && looked && !m.Tools:
		return invalid("tools", "model %q cannot call tools: its template has no place for them; leave tools out, or ask a model that can (GET /v1/models)", clip(q.model, 100))
	}
	return q.overflows(m.Context)
}

// kindText says what a kind of model does, kindRoutes where it is asked.
var (
	kindText   = map[string]string{kindChat: "a chat model", kindEmbed: "an embedding model", kindRerank: "a reranking model"}
	kindRoutes = map[string]string{
		kindChat:  "POST /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages",
		kindEmbed: "POST /v1/embeddings", kindRerank: "POST /v1/rerank",
	}
)

// fallback is the model that an admin lets answer in the place of one that cannot be
// served, where there is one that the key may use. It is one step: a fallback's own does
// not count.
func (d *Door) fallback(c *call, q *request, m scheduler.ServedModel, no *refusal) (scheduler.ServedModel, bool) {
	if no == nil || no.last || m.Fallback == "" || c.aborted {
		return m, false
	}
	switch no.reason {
	case scheduler.NoCapacity, scheduler.NoHolder, scheduler.NoEngine, scheduler.Parked, scheduler.DeviceBusy, scheduler.Cordoned, scheduler.Unloaded,
		scheduler.EngineFailed, scheduler.PeerGone:
	default:
		return m, false
	}
	f, found := d.opt.Scheduler.Resolve(m.Fallback)
	return f, found && f.UID != m.UID && c.grant.May(f.Name) && q.fits(f) == nil
}

// gone notes that nobody waits for the answer any more, and has the connection cut: whoever
// has only shut their own side of it must not take what there is for an answer.
func (c *call) gone(ctx context.Context) {
	c.status, c.reason, c.cause, c.aborted = statusGone, "", context.Cause(ctx), true
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
			wait := max(time.Duration(n)*time.Second, glance)
			if most == 0 || wait < most {
				return wait
			}
		}
	}
	return most
}
