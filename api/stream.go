package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

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
