package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// deadlineError is a deadline of the door's own that passed.
type deadlineError struct {
	what  string
	after time.Duration
}

func (e *deadlineError) Error() string { return fmt.Sprintf("%s not within %s", e.what, e.after) }

// clock cancels an attempt that takes too long over one step.
type clock struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	timer  *time.Timer
	over   bool
}

// set gives the next step its time, and takes away what was left of the last
// one's; 0 sets no bound.
func (k *clock) set(what string, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
	}
	if after > 0 && !k.over {
		k.timer = time.AfterFunc(after, func() { k.cancel(&deadlineError{what, after}) })
	}
}

// pause takes the time of the step away: it is done.
func (k *clock) pause() { k.set("", 0) }

// stop is pause, for good.
func (k *clock) stop() {
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
	k.pause()
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

// passStream passes a stream on event by event.
func (a *attempt) passStream(ctx context.Context, k *clock, resp *http.Response, ans *answer) *refusal {
	q, c := a.request, a.call
	events := newEventReader(resp.Body, maxEvent)
	ans.speak(q.reply(c, a.shown))
	c.hold.drop() // what an attempt before this one kept
	t := tally{answers: q.answers, most: q.choices()}
	var ev chunk
	for {
		next, err := events.next()
		if err != nil {
			return a.broken(ctx, err, resp)
		}
		switch string(next.data) {
		case "": // A comment keeps the engine's connection alive; the client has some of the door's own.
			continue
		case "null": // llama-server sends it between the answers to several prompts.
			continue
		case endOfStream:
			if !a.began {
				return a.failed(nil, "%s ended an answer before it began", a.who())
			}
			k.pause()
			wrong, lost := ans.finish(t.sum())
			switch {
			case lost != nil:
				return a.lost(lost)
			case wrong != nil && heldTooMuch(wrong) != nil:
				return a.late(heldTooMuch(wrong))
			case wrong != nil:
				return a.failed(wrong, "%s ended an answer before its end", a.who())
			}
			// What is left is the end of the body; read, it leaves the
			// connection fit for the next request.
			k.set("the connection ended", time.Second)
			io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
			return nil
		}
		ev.data = next.data
		if err := outlineInto(&ev.out, ev.data); err != nil {
			return a.failed(fmt.Errorf("event %d: %w", c.events+1, err), "%s sent bytes that are no event", a.who())
		}
		if e := ev.value("error"); len(e) > 0 && string(e) != "null" {
			return a.late(a.engineRefusal(0, e))
		}
		if t.note(&ev) {
			u := t.sum()
			c.prompt, c.answer, c.cached = u.Prompt, u.Completion, u.Cached
			c.ticket.Used(u.Prompt, u.Completion)
		}
		if ev.out.get("prompt_progress").found() {
			if !q.progress {
				continue
			}
		} else if !a.began {
			a.began = true
			c.token = time.Since(c.began)
		}
		k.pause()
		var sent bool
		var wrong, lost error
		if !q.single || !ev.furtherCall() {
			sent, wrong, lost = ans.pass(&ev)
		}
		switch {
		case lost != nil:
			return a.lost(lost)
		case wrong != nil && heldTooMuch(wrong) != nil:
			return a.late(heldTooMuch(wrong))
		case wrong != nil:
			return a.failed(fmt.Errorf("event %d: %w", c.events+1, wrong), "%s sent an event that is not what was asked for", a.who())
		case sent:
			a.delivered = true
			c.events++
		}
		if a.began {
			k.set("the next token came", a.door.opt.Deadlines.BetweenTokens)
		} else {
			k.set("the first token came", a.door.opt.Deadlines.FirstToken)
		}
	}
}

// reckon counts what a client takes that leaves before a whole answer is there, which
// says nothing until then: a token for every four bytes of its request, as the engine
// computes on for a while and nobody is to have that for nothing.
func (a *attempt) reckon(q *request) {
	if q.kind != kindEmbed && q.kind != kindRerank {
		return
	}
	a.call.prompt = len(q.body) / 4
	a.call.ticket.Used(a.call.prompt, 0)
}

// wholeOf asks the replica for an answer that is not streamed, and reads all of it.
func (a *attempt) wholeOf(ctx context.Context, k *clock, q *request) ([]byte, *refusal) {
	resp, no := a.send(ctx, k, q, "application/json")
	if no != nil {
		return nil, no
	}
	defer resp.Body.Close()
	buf := a.call.hold
	buf.drop()
	for {
		if len(buf.b) == cap(buf.b) && !buf.more(1) {
			return nil, busyBodies()
		}
		n, err := resp.Body.Read(buf.b[len(buf.b):cap(buf.b)])
		buf.b = buf.b[:len(buf.b)+n]
		if err == io.EOF && resp.Trailer.Get(headerBroken) == "" {
			k.pause()
			return buf.b, nil
		}
		if err != nil {
			return nil, a.broken(ctx, err, resp)
		}
		k.set("the rest of the answer came", a.door.opt.Deadlines.BetweenTokens)
	}
}

// passWhole renders an engine's whole answer and sends it.
func (a *attempt) passWhole(q *request, body []byte, ans *answer) *refusal {
	c := a.call
	var ev chunk
	ev.data = body
	if err := outlineInto(&ev.out, body); err != nil {
		return a.answer(a.failed(fmt.Errorf("answer of %d bytes: %w", len(body), err), "%s sent bytes that are no answer", a.who()))
	}
	if u := ev.value("usage"); len(u) > 0 && u[0] == '{' {
		c.prompt, _ = numberAt(u, `"prompt_tokens":`)
		c.ticket.Used(c.prompt, 0)
	}
	c.token = time.Since(c.began)
	out, err := q.whole(c, a.shown, body)
	switch {
	case errors.Is(err, errTooMuch):
		return busyBodies()
	case err != nil:
		var own *refusal
		if errors.As(err, &own) { // the request's fault, as the answer shows
			a.turnedDown = true
			return own
		}
		return a.answer(a.failed(err, "%s sent an answer that is not what was asked for", a.who()))
	}
	if err := ans.whole(out); err != nil {
		return a.lost(err)
	}
	return nil
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
		no.died = !undialled(err)
	case err == io.EOF: // itself: what ends a link may wrap it
		no = refuse(scheduler.EngineFailed, "%s ended an answer before its end", a.who())
	default:
		no = refuse(scheduler.PeerGone, "%s went away", a.who())
	}
	no.cause = err
	no.died = no.died && !a.began
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
		Tokens  int    `json:"n_prompt_tokens"`
		Context int    `json:"n_ctx"`
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
		no := refuse(why, "%s", plain(said))
		no.status, no.retry, no.param = as, scheduler.RetryNever, a.request.paramOf(said)
		return no
	}
	switch {
	case e.Type == "exceed_context_size_error" || e.Message == "Context size has been exceeded.":
		a.turnedDown = true
		return a.request.tooLong(cmp.Or(e.Tokens, a.call.prompt), cmp.Or(e.Context, a.route.Model.Context))
	case overBatch.MatchString(e.Message):
		a.turnedDown = true
		figures := overBatch.FindStringSubmatch(e.Message)
		tokens, _ := strconv.Atoi(figures[1])
		most, _ := strconv.Atoi(figures[2])
		return a.request.tooLong(tokens, most)
	case a.request.path == pathDetokenize && status == http.StatusInternalServerError && strings.Contains(e.Message, "vector"):
		a.turnedDown = true // What the C++ library says of an index that is not there; the words differ.
		no := invalid("tokens", "tokens: there is an id in it that is no token of model %q", clip(a.shown, 100))
		no.retry = scheduler.RetryNever
		return no
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

// overBatch is what llama-server says, with 500, of a text that must be computed at one go,
// as for an embedding or a rank, and is longer than that.
var overBatch = regexp.MustCompile(`^input \((\d{1,9}) tokens\) is too large to process\..*batch size: (\d{1,9})\)`)

// isRequestsFault knows the errors that llama-server answers with 500 although
// the request is to blame: what its JSON library throws, and what it throws
// itself before it begins.
func isRequestsFault(message string) bool {
	for _, beginning := range []string{
		"Field '", "Failed to parse ", "Invalid base64 value", "Cannot use both json_schema and grammar", "Cannot specify grammar with tools",
		"Unknown reasoning format", "Multimodal data provided",
	} {
		if strings.HasPrefix(message, beginning) {
			return true
		}
	}
	return strings.Contains(message, "[json.exception.") || strings.Contains(message, "input is not supported")
}

// paramOf is the field of the client's that an error of llama-server's is about, or empty.
func (q *request) paramOf(message string) string {
	about := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(message, word) })
	}
	switch {
	case about("JSON schema conversion", "failed to parse grammar"):
		return q.named("response_format", "json_schema", "grammar", "tools")
	case about("grammar"):
		return q.named("grammar")
	case about("reasoning format"):
		return q.named("reasoning_format")
	case about("continue_final_message"):
		return q.named("continue_final_message")
	case about("enable_thinking"):
		return q.named("chat_template_kwargs")
	case about("invalid tokens", "\"prompt\"", "Input content"):
		return q.asks
	case about("messages", "content[]", "'content'", "assistant message", "input is not supported", "base64", "Invalid uri", "image or audio", "Jinja Exception"):
		return cmp.Or(q.asks, "messages")
	}
	for _, quote := range []string{"Field '", "'", "\""} {
		rest, ok := strings.CutPrefix(message, quote)
		if !ok {
			continue
		}
		name, _, ok := strings.Cut(rest, quote[len(quote)-1:])
		if ok && len(name) <= 60 && !strings.ContainsAny(name, " {}[]") {
			return name
		}
	}
	if about("Failed to parse tools") {
		return q.named("tools")
	}
	return ""
}

// named is the first of these fields that the client sent, as it is called there, or empty.
func (q *request) named(fields ...string) string {
	for _, name := range fields {
		switch {
		case q.value(name) == nil && !slices.ContainsFunc(q.added, func(b []byte) bool { return bytes.HasPrefix(b, []byte(`,"`+name+`":`)) }):
		case q.kind == kindChat && q.asks == "input" && name == "response_format": // A response's.
			return "text"
		default:
			return name
		}
	}
	return ""
}

// plain is an error of llama-server's without the marks of its libraries.
func plain(message string) string {
	if _, said, found := strings.Cut(message, "Error: Jinja Exception: "); found {
		return "the model's chat template refuses this: " + said
	}
	message = strings.TrimPrefix(message, "Unable to generate parser for this template. Automatic parser generation failed: ")
	before, rest, found := strings.Cut(message, "[json.exception.")
	if !found {
		return message
	}
	_, after, found := strings.Cut(rest, "] ")
	if !found {
		return message
	}
	return before + after
}
