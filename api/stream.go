package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"relay/api/chat"
	"relay/api/continuation"
)

// passStream passes a stream on event by event. seam turns the events of a replica that goes
// on with another one's answer; nil is one that begins it.
func (a *attempt) passStream(ctx context.Context, k *clock, resp *http.Response, seam *continuation.Seam) *refusal {
	events := newEventReader(resp.Body, maxEvent)
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
		}
		ev.data = next.data
		over, no := a.passEvent(ctx, k, &ev, seam)
		switch {
		case no != nil:
			return no
		case over:
			// What is left is the end of the body; read, it leaves the
			// connection fit for the next request.
			k.set("the connection ended", time.Second)
			io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
			return nil
		}
	}
}

// passEvent passes one event on. over says that it was the last.
func (a *attempt) passEvent(ctx context.Context, k *clock, ev *chunk, seam *continuation.Seam) (over bool, no *refusal) {
	a.away.mu.Lock()
	defer a.away.mu.Unlock()
	if a.away.left != nil {
		return false, a.hasLeft()
	}
	if string(ev.data) == endOfStream {
		return true, a.finish(k)
	}
	h, c := a.headway, a.call
	if err := outlineInto(&ev.out, ev.data); err != nil {
		return false, a.failed(fmt.Errorf("event %d: %w", c.events+1, err), "%s sent bytes that are no event", a.who())
	}
	if e := ev.value("error"); len(e) > 0 && string(e) != "null" {
		return false, a.engineRefusal(0, e)
	}
	progress := ev.out.get("prompt_progress").found()
	if !progress && !a.began {
		a.began = true
		if seam == nil {
			c.token = time.Since(c.began)
		}
	}
	if progress && (seam != nil || !h.request.progress) { // It takes nothing away of the time for the first token.
		if seam == nil {
			h.note(ev)
		}
		return false, nil
	}
	k.pause()
	if no := a.turn(k, ev, seam); no != nil {
		return false, no
	}
	if a.began {
		k.set("the next token came", a.door.opt.Deadlines.BetweenTokens)
	} else {
		k.set("the first token came", a.door.opt.Deadlines.FirstToken)
	}
	a.look(ctx)
	return false, nil
}

// turn has the reply take in an event, or what the seam makes of it.
func (a *attempt) turn(k *clock, ev *chunk, seam *continuation.Seam) *refusal {
	if seam == nil {
		return a.take(k, ev)
	}
	turned, err := seam.Turn(ev.data)
	for _, data := range turned {
		if ev.data = data; err == nil {
			err = outlineInto(&ev.out, data)
		}
		if err != nil {
			break
		}
		if no := a.take(k, ev); no != nil {
			return no
		}
	}
	if err != nil {
		return a.failed(fmt.Errorf("event %d: %w", a.call.events+1, err), "%s sent an event that is not what was asked for", a.who())
	}
	return nil
}

// take has the reply take in an event.
func (a *attempt) take(k *clock, ev *chunk) *refusal {
	h := a.headway
	if h.gap != nil && brings(ev) {
		if err := h.goneOn(a); err != nil {
			return a.call.lost(err)
		}
		k.goneOn()
	}
	wrong, lost := h.take(ev)
	switch {
	case lost != nil:
		return a.call.lost(lost)
	case wrong != nil && heldTooMuch(wrong) != nil:
		return heldTooMuch(wrong)
	case wrong != nil:
		return a.failed(fmt.Errorf("event %d: %w", a.call.events+1, wrong), "%s sent an event that is not what was asked for", a.who())
	}
	a.farther = a.farther || h.tokens() > a.from
	return nil
}

// brings says whether an event has something of an answer.
func brings(ev *chunk) bool {
	var c chat.Chunk
	return c.Read(ev.data) == nil && !c.Empty()
}

// finish sends what the answer ends with.
func (a *attempt) finish(k *clock) *refusal {
	if !a.began {
		return a.failed(nil, "%s ended an answer before it began", a.who())
	}
	k.pause()
	wrong, lost := a.headway.finish()
	switch {
	case lost != nil:
		return a.call.lost(lost)
	case wrong != nil && heldTooMuch(wrong) != nil:
		return heldTooMuch(wrong)
	case wrong != nil:
		return a.failed(wrong, "%s ended an answer before its end", a.who())
	}
	a.away.over = true
	return nil
}
