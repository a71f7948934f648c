package api

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"time"

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
	// delivered says that data of the answer has gone to the client, after
	// which no other replica may begin again.
	delivered bool
	// began says that something of the answer came from the replica.
	began bool
	// turnedDown says that the engine refused the request itself, as it should.
	turnedDown bool
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
func (a *attempt) do(ctx context.Context, ans *answer) (no *refusal, gone bool) {
	end := errPanicked
	defer func() { a.route.Done(end) }()
	no = a.run(ctx, ans)
	switch {
	case no == nil:
		end = nil
	case ctx.Err() != nil || errors.Is(no, errLost):
		end, gone = context.Canceled, true
	case a.turnedDown:
		end = nil // the engine did its part
	default:
		end = no
	}
	return no, gone
}

// run asks the replica and passes its answer on. nil means that the whole
// answer went to the client. When ctx has ended the refusal means nothing.
func (a *attempt) run(ctx context.Context, ans *answer) *refusal {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t := a.door.opt.Deadlines.Total; t > 0 {
		total := time.AfterFunc(t, func() { cancel(&deadlineError{"the whole answer came", t}) })
		defer total.Stop()
	}
	k := &clock{cancel: cancel}
	defer k.stop()
	q := a.request
	if q.then != nil {
		first, no := a.wholeOf(ctx, k, q)
		if no != nil {
			return no
		}
		next, err := q.then(first)
		if err != nil {
			return a.answer(a.failed(err, "%s sent bytes that are no answer", a.who()))
		}
		next.whole, q = q.whole, next
	}
	if q.whole != nil {
		body, no := a.wholeOf(ctx, k, q)
		if no != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			a.reckon(q)
		}
		if no == nil {
			no = a.passWhole(q, body, ans)
		}
		return no
	}
	resp, no := a.send(ctx, k, q, "text/event-stream")
	if no != nil {
		return no
	}
	defer resp.Body.Close()
	return a.passStream(ctx, k, resp, ans)
}

// send asks the replica. The answer is there and of the type that is wanted, and its body
// is the caller's to close, exactly where there is no refusal.
func (a *attempt) send(ctx context.Context, k *clock, q *request, want string) (*http.Response, *refusal) {
	limits := a.door.opt.Deadlines
	first := func() { k.set("the first token came", limits.FirstToken) }
	// How long the engine may take is the engine's, and the serving peer says at once
	// that it is there; so a peer that is stuck does not cost the engine's time.
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
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
	out := onward(traced, q.path, q.calling(a.route.Model.UID), a.call.id)
	if a.route.Local {
		out.Close = true
	} else {
		putWant(out.Header, a.call.wants(q, a.route.Model.UID))
	}
	k.set("a connection was made", limits.Dial)
	over := a.call.waits()
	resp, err := roundTrip(a.route.Client, out)
	over()
	if err != nil {
		return nil, a.broken(ctx, err, nil)
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
