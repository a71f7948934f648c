package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/scheduler"
)

// attempt is one try at one replica.
type attempt struct {
	door  *Door
	call  *call
	route scheduler.Route
	nth   int
	// delivered says that data of the answer has gone to the client, after
	// which no other replica may begin again.
	delivered bool
	// turnedDown says that the engine refused the request itself, as it should.
	turnedDown bool
}

// mark puts who serves into an answer's headers.
func (a *attempt) mark(h http.Header) {
	h.Set(headerPeer, a.route.Peer)
	h.Set(headerAttempts, strconv.Itoa(a.nth))
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

// deadlineError is a deadline of the door's own that passed.
type deadlineError struct {
	what  string
	after time.Duration
}

func (e *deadlineError) Error() string { return fmt.Sprintf("%s not within %s", e.what, e.after) }

// clock cancels an attempt that takes too long over one step.
type clock struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// set gives the next step its time, and takes away what was left of the last
// one's; 0 sets no bound.
func (k *clock) set(what string, after time.Duration) {
	k.stop()
	if after > 0 {
		k.timer = time.AfterFunc(after, func() { k.cancel(&deadlineError{what, after}) })
	}
}

func (k *clock) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// errPanicked is what a route or lease ends with when the code that held it
// fails.
var errPanicked = errors.New("relay failed in the middle of a request")

// do runs the attempt and ends its route. gone means that nobody waits for an
// answer any more.
func (a *attempt) do(ctx context.Context, path string, req completionRequest, ans *answer) (no *refusal, gone bool) {
	end := errPanicked
	defer func() { a.route.Done(end) }()
	no = a.run(ctx, path, req, ans)
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
func (a *attempt) run(ctx context.Context, path string, req completionRequest, ans *answer) *refusal {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := &clock{cancel: cancel}
	defer k.stop()
	limits := a.door.opt.Deadlines
	if req.stream {
		k.set("the first token came", limits.FirstToken)
	} else {
		k.set("the whole answer came", limits.Total)
	}

	out := onward(ctx, path, req.calling(a.route.Model.UID), a.call.id)
	if a.route.Local {
		out.Close = true
	} else {
		out.Header.Set(headerModel, a.route.Model.UID)
		out.Header.Set(headerKey, a.call.keyID)
	}
	resp, err := roundTrip(a.route.Client, out)
	if err != nil {
		return a.broken(ctx, err, nil)
	}
	defer resp.Body.Close()

	if !a.route.Local && resp.Header.Get(headerRefusal) != "" {
		no := readHopRefusal(resp, a.who())
		// Where all are busy the client waits better than this peer does.
		no.answered = no.reason == scheduler.Busy
		return no
	}
	if resp.StatusCode != http.StatusOK {
		return a.engineError(resp)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream" && req.stream:
		return a.passStream(ctx, k, resp, req.model, ans)
	case kind == "application/json" && !req.stream:
		return a.passWhole(ctx, resp, req.model, ans)
	}
	return a.answer(a.failed(nil, "%s answered with %q, which is not what was asked for", a.who(), clip(kind, 60)))
}

// passStream passes a stream on event by event.
func (a *attempt) passStream(ctx context.Context, k *clock, resp *http.Response, model string, ans *answer) *refusal {
	events := newEventReader(resp.Body, maxEvent)
	for {
		ev, err := events.next()
		if err != nil {
			return a.broken(ctx, err, resp)
		}
		switch {
		case ev.data == nil:
			// A comment keeps the engine's connection alive; the client has
			// comments of the door's own.
			continue
		case string(ev.data) == endOfStream:
			if !a.delivered {
				return a.failed(nil, "%s ended an answer before it began", a.who())
			}
			k.stop()
			if err := ans.event(dataEvent([]byte(endOfStream)), a); err != nil {
				return a.lost(err)
			}
			// What is left is the end of the body; read, it leaves the
			// connection fit for the next request.
			k.set("the connection ended", time.Second)
			io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
			return nil
		}
		out, err := outlineOf(ev.data)
		if err != nil {
			return a.failed(fmt.Errorf("event %d: %w", a.call.events+1, err), "%s sent bytes that are no event", a.who())
		}
		if out.err.found() && string(out.err.of(ev.data)) != "null" {
			return a.late(a.engineRefusal(0, out.err.of(ev.data)))
		}
		raw := ev.raw
		if renamed := renamed(ev.data, out, model); renamed != nil {
			raw = dataEvent(renamed)
		}
		k.stop()
		if err := ans.event(raw, a); err != nil {
			return a.lost(err)
		}
		a.delivered = true
		a.call.events++
		k.set("the next token came", a.door.opt.Deadlines.BetweenTokens)
	}
}

// renamed is an answer's JSON with the model called what the client called it,
// or nil where it is already.
func renamed(data []byte, out outline, model string) []byte {
	if !out.model.found() || data[out.model.start] != '"' || unquote(out.model.of(data)) == model {
		return nil
	}
	return replace(data, out.model, model)
}

// passWhole passes an unstreamed answer on once it is there in full, or, where
// it is larger than may be held, as it comes.
func (a *attempt) passWhole(ctx context.Context, resp *http.Response, model string, ans *answer) *refusal {
	buf := &buffer{held: a.door.held}
	defer buf.drop()
	for {
		if len(buf.b) == cap(buf.b) && !buf.more(1) {
			return a.passLarge(ctx, resp, buf, ans)
		}
		n, err := resp.Body.Read(buf.b[len(buf.b):cap(buf.b)])
		buf.b = buf.b[:len(buf.b)+n]
		if err == io.EOF && resp.Trailer.Get(headerBroken) == "" {
			break
		}
		if err != nil {
			return a.broken(ctx, err, resp)
		}
	}
	out, err := outlineOf(buf.b)
	if err != nil {
		return a.failed(fmt.Errorf("answer of %d bytes: %w", len(buf.b), err), "%s sent bytes that are no answer", a.who())
	}
	body := buf.b
	if renamed := renamed(body, out, model); renamed != nil {
		body = renamed
	}
	if err := ans.whole(http.StatusOK, "application/json; charset=utf-8", body, a); err != nil {
		return a.lost(err)
	}
	return nil
}

// passLarge gives up holding an answer back: what is there goes out, then the
// rest as it comes. If it breaks, so does the client's connection.
func (a *attempt) passLarge(ctx context.Context, resp *http.Response, buf *buffer, ans *answer) *refusal {
	ans.mu.Lock()
	ans.open(http.StatusOK, "application/json; charset=utf-8", resp.ContentLength, a)
	ans.mu.Unlock()
	a.delivered = true
	if err := ans.part(buf.b); err != nil {
		return a.lost(err)
	}
	chunk := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(chunk)
		if n > 0 {
			if err := ans.part(chunk[:n]); err != nil {
				return a.lost(err)
			}
		}
		if err == io.EOF && resp.Trailer.Get(headerBroken) == "" {
			return nil
		}
		if err != nil {
			a.call.aborted = true
			return a.broken(ctx, err, resp)
		}
	}
}

// lost is a client that no longer takes its answer.
func (a *attempt) lost(err error) *refusal {
	a.call.aborted = true
	no := refuse(scheduler.CannotContinue, "the client does not take its answer")
	no.cause = fmt.Errorf("%w: %w", errLost, err)
	no.retry = scheduler.RetryNever
	return no
}

// failed is an engine that did what it must not.
func (a *attempt) failed(cause error, format string, args ...any) *refusal {
	no := refuse(scheduler.EngineFailed, format, args...)
	no.cause = cause
	return a.late(no)
}

// late turns a failure into the one that can be said in the middle of an
// answer.
func (a *attempt) late(no *refusal) *refusal {
	if !a.delivered {
		return no
	}
	why := scheduler.CannotContinue
	if no.reason == scheduler.PeerGone {
		why = scheduler.PeerGone
	}
	ended := refuse(why, "the answer broke off after %d events: %s; ask again", a.call.events, no.message)
	ended.cause = no.cause
	ended.retry = scheduler.RetryLater
	return ended
}

// broken is an answer, or the wait for one, that ended by an error.
func (a *attempt) broken(ctx context.Context, err error, resp *http.Response) *refusal {
	var late *deadlineError
	var barred *scheduler.Error
	var no *refusal
	switch {
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
	case err == io.EOF: // itself: what ends a link may wrap it
		no = refuse(scheduler.EngineFailed, "%s ended an answer before its end", a.who())
	default:
		no = refuse(scheduler.PeerGone, "%s went away", a.who())
	}
	no.cause = err
	return a.late(no)
}

// engineError reads an engine's answer that is not 200.
func (a *attempt) engineError(resp *http.Response) *refusal {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var shape struct {
		Error json.RawMessage `json:"error"`
	}
	if err != nil || json.Unmarshal(body, &shape) != nil {
		shape.Error = nil
	}
	return a.engineRefusal(resp.StatusCode, shape.Error)
}

// engineRefusal puts an error of llama-server's into relay's words. status 0
// means that the error itself says it.
func (a *attempt) engineRefusal(status int, raw json.RawMessage) *refusal {
	var e struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
		Type    string `json:"type"`
	}
	if json.Unmarshal(raw, &e) != nil {
		json.Unmarshal(raw, &e.Message) // some say it in a string
	}
	if code, ok := e.Code.(float64); ok && status == 0 {
		status = int(code)
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	said := clip(e.Message, 2000)
	if said == "" {
		said = fmt.Sprintf("it answered %d without a word", status)
	}
	fault := func(why scheduler.Reason, as int) *refusal {
		a.turnedDown = true
		no := refuse(why, "%s", said)
		no.status, no.retry = as, scheduler.RetryNever
		return no
	}
	switch {
	case e.Type == "exceed_context_size_error" || e.Message == "Context size has been exceeded.":
		return fault(scheduler.ContextLength, http.StatusBadRequest)
	case status == http.StatusNotImplemented, status >= 500 && isRequestsFault(e.Message):
		return fault(scheduler.InvalidRequest, http.StatusBadRequest)
	case status == http.StatusServiceUnavailable:
		return a.failure(scheduler.ModelLoading, "%s is not ready: %s", a.who(), said)
	case status == http.StatusTooManyRequests:
		return a.answer(a.failure(scheduler.Busy, "%s is busy: %s", a.who(), said))
	case status >= 500:
		return a.answer(a.failure(scheduler.EngineFailed, "%s failed: %s", a.who(), said))
	case status < 400, slices.Contains([]int{401, 403, 404, 405, 408}, status):
		return a.answer(a.failure(scheduler.EngineFailed, "%s answered %d, which no fitting engine does: %s", a.who(), status, said))
	}
	return fault(scheduler.InvalidRequest, status)
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

// isRequestsFault knows the errors that llama-server answers with 500 although
// the request is to blame: what its JSON library throws, and what it throws
// itself before it begins.
func isRequestsFault(message string) bool {
	for _, beginning := range []string{
		"Failed to parse ", "Invalid base64 value", "Cannot use both json_schema and grammar", "Cannot specify grammar with tools",
		"Unknown reasoning format", "Multimodal data provided",
	} {
		if strings.HasPrefix(message, beginning) {
			return true
		}
	}
	return strings.Contains(message, "[json.exception.") || strings.Contains(message, "input is not supported")
}
