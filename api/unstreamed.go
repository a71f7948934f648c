package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

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

// wholeOf asks the replica for an answer that is not streamed, and reads all of it into buf.
func (a *attempt) wholeOf(ctx context.Context, k *clock, path string, body payload, buf *buffer) ([]byte, *refusal) {
	resp, no := a.send(ctx, k, path, body, "application/json")
	if no != nil {
		return nil, no
	}
	defer resp.Body.Close()
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
func (a *attempt) passWhole(q *request, body []byte) *refusal {
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
	if err := a.headway.ans.whole(out); err != nil {
		return c.lost(err)
	}
	return nil
}
