package api

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"

	"relay/api/continuation"
	"relay/scheduler"
)

// attempt is one try at one replica.
type attempt struct {
	door  *Door
	call  *call
	route scheduler.Route
	// request is what the client wants, shown what the answer calls the model.
	request *request
	shown   string
	headway *headway
	// plan is how the attempt goes on with the answer; nil for one that begins it.
	plan *continuation.Plan
	// reached says that there was a connection to the replica.
	reached atomic.Bool
	// began says that something of the answer came from the replica, farther that the
	// answer has come farther by it.
	began, farther bool
	// from is how many tokens it had before.
	from int
	// turnedDown says that the engine refused the request itself, as it should.
	turnedDown bool
	away       away
}

// who names the replica in sentences.
func (a *attempt) who() string {
	switch {
	case a.route.Local:
		return "this peer's engine"
	case a.route.PeerName != "":
		return "peer " + clip(a.route.PeerName, 60)
	}
	return "peer " + shortPeer(a.route.Peer)
}

// errPanicked is what a route or lease ends with when the code that held it
// fails.
var errPanicked = errors.New("relay failed in the middle of a request")

// do runs the attempt and ends its route. gone means that nobody waits for an
// answer any more.
func (a *attempt) do(ctx context.Context) (no *refusal, gone bool) {
	end := errPanicked
	defer func() { a.route.Done(end) }()
	a.from = a.headway.tokens()
	no = a.run(ctx)
	switch {
	case no == nil:
		end = nil
	case left(ctx) || errors.Is(no, errLost):
		end, gone = context.Canceled, true
	case a.turnedDown:
		end = nil // the engine did its part
	case a.away.left != nil:
		end = context.Canceled // it was well, as far as this request can tell
	default:
		end = no
	}
	return no, gone
}

// left says of the time that a request has that it ended because the client left.
func left(ctx context.Context) bool {
	var late *deadlineError
	return ctx.Err() != nil && !errors.As(context.Cause(ctx), &late)
}

// run asks the replica and passes its answer on. nil means that the whole
// answer went to the client. When the client has left the refusal means nothing.
func (a *attempt) run(ctx context.Context) *refusal {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := &clock{cancel: cancel}
	if a.plan != nil {
		k.until, k.most = a.headway.gap.until, a.headway.gap.most
	}
	defer k.stop()
	defer a.watch(cancel)()
	q := a.request
	switch {
	case a.plan != nil:
		return a.goOn(ctx, k)
	case q.whole == nil:
		resp, no := a.send(ctx, k, q.path, q.calling(a.route.Model.UID), "text/event-stream")
		if no != nil {
			return no
		}
		defer resp.Body.Close()
		a.away.mu.Lock()
		a.headway.begin()
		a.from = 0
		a.away.mu.Unlock()
		return a.passStream(ctx, k, resp, nil)
	}
	if q.then != nil {
		first, no := a.wholeOf(ctx, k, q.path, q.calling(a.route.Model.UID), a.call.hold)
		if no != nil {
			return no
		}
		next, err := q.then(first)
		if err != nil {
			return a.answer(a.failed(err, "%s sent bytes that are no answer", a.who()))
		}
		next.whole, q = q.whole, next
	}
	body, no := a.wholeOf(ctx, k, q.path, q.calling(a.route.Model.UID), a.call.hold)
	if no != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		a.reckon(q)
	}
	if no == nil {
		no = a.passWhole(q, body)
	}
	return no
}

// send asks the replica at one of the engine's paths. The answer is there and of the type
// that is wanted, and its body is the caller's to close, exactly where there is no refusal.
func (a *attempt) send(ctx context.Context, k *clock, path string, body payload, want string) (*http.Response, *refusal) {
	limits := a.door.opt.Deadlines
	first := func() { k.set("the first token came", limits.FirstToken) }
	// How long the engine may take is the engine's, and the serving peer says at once
	// that it is there; so a peer that is stuck does not cost the engine's time.
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			a.reached.Store(true)
			if a.route.Local {
				first()
			} else {
				k.set("a sign of the peer came", limits.Headers)
			}
		},
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == http.StatusProcessing {
				first()
			}
			return nil
		},
	})
	out := onward(traced, path, body, a.call.id)
	if a.route.Local {
		out.Close = true
	} else {
		hop := a.headway.want
		hop.UID, hop.Light = a.route.Model.UID, light(path)
		putWant(out.Header, hop)
	}
	k.set("a connection was made", limits.Dial)
	over := a.call.waits()
	resp, err := roundTrip(a.route.Client, out)
	over()
	if err != nil {
		no := a.broken(ctx, err, nil)
		no.unasked = !a.reached.Load()
		return nil, no
	}
	resp.Body = a.call.waited(resp.Body)
	if !a.route.Local {
		a.heard(resp.Header)
	}
	var no *refusal
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case !a.route.Local && resp.Header.Get(headerRefusal) != "":
		no = readHopRefusal(resp, a.who())
		// Where all are busy the client waits better than this peer does.
		no.answered = no.reason == scheduler.Busy
		no.unasked = !no.died
	case resp.StatusCode != http.StatusOK:
		no = a.engineError(resp)
	case kind != want:
		no = a.answer(a.failed(nil, "%s answered with %q, which is not what was asked for", a.who(), clip(kind, 60)))
	default:
		first()
		return resp, nil
	}
	resp.Body.Close()
	return nil, no
}
