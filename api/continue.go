package api

import (
	"errors"
	"fmt"
	"time"

	"relay/api/continuation"
	"relay/scheduler"
)

// headway is how far the answer to a request has come, over all attempts at it: an attempt
// begins the answer, or goes on with it where another one left it.
type headway struct {
	door    *Door
	call    *call
	request *request
	ans     *answer
	// shown is what the answer calls the model.
	shown string
	// patience is how long the client waits for the scheduler, all in all.
	patience time.Duration
	want     scheduler.Want
	// start begins the time that all attempts have together.
	start func()

	tally tally
	// track keeps what was taken in of the answer; nil where answers of this kind cannot
	// be gone on with.
	track   *continuation.Track
	tracked buffer // counts what track keeps
	piece   continuation.Piece
	// taken says that the reply has taken in a part of the answer, seen that data of it
	// went to the client.
	taken, seen bool
	// stuck is why the answer cannot be gone on with, whatever track says.
	stuck string
	// asked is what the engine that began was asked, counted in kept; nil before that is
	// needed.
	asked []byte
	kept  buffer

	// Since the answer last came farther: fruitless are the attempts that an engine failed,
	// idle those that no engine failed, left those of them whose replica was left; deaths
	// are those over which an engine ended.
	fruitless, idle, left, deaths int
	// last is when a part of the answer was taken in last; gap is what is known of the
	// time since, while nobody goes on with it.
	last time.Time
	gap  *gap
}

// gap is the time in which nobody goes on with an answer.
type gap struct {
	from    string   // the peer that is lost
	why     *refusal // how
	noticed time.Time
	// until is when it must have ended, most after it was noticed; zero is never.
	until time.Time
	most  time.Duration
}

func (d *Door) newHeadway(c *call, q *request, ans *answer, patience time.Duration) *headway {
	h := &headway{door: d, call: c, request: q, ans: ans, shown: q.model, patience: patience, kept: buffer{held: d.held}, tracked: buffer{held: d.held}}
	h.want = c.wants(q)
	q.begins(&h.want)
	return h
}

// begin has the answer begun anew: nothing of it was seen.
func (h *headway) begin() {
	c, q := h.call, h.request
	c.hold.drop() // what an attempt before this one kept
	c.prompt, c.answer, c.cached = 0, 0, 0
	h.tally = tally{answers: q.answers, most: q.choices()}
	h.taken, h.stuck, h.track = false, "", nil
	h.tracked.drop()
	if q.tracked {
		h.track = continuation.New(q.completion, h.tracked.countSpare)
	}
	h.ans.speak(q.reply(c, h.shown))
}

// take has the reply take in a chunk of the answer, and counts it. The errors are those of
// answer.pass.
func (h *headway) take(ev *chunk) (wrong, lost error) {
	h.note(ev)
	c := h.call
	var sent bool
	if !h.request.single || !ev.furtherCall() {
		sent, wrong, lost = h.ans.pass(ev)
	}
	switch {
	case lost != nil:
		return nil, lost
	case wrong != nil: // It may have taken in a part of it.
		h.stuck = "it had come to an event that is not what was asked for"
		return wrong, nil
	case sent:
		h.seen = true
		c.events++
	}
	h.taken, h.last = true, time.Now()
	if h.track != nil {
		if err := h.piece.Read(ev.data); err != nil {
			h.stuck = "the engine's events are not understood"
		} else {
			h.track.Delivered(&h.piece)
		}
	}
	return nil, nil
}

// note counts what an event tells.
func (h *headway) note(ev *chunk) {
	if c := h.call; h.tally.note(ev) {
		u := h.tally.sum()
		c.prompt, c.answer, c.cached = u.Prompt, u.Completion, u.Cached
		c.ticket.Used(u.Prompt, u.Completion)
	}
}

// finish sends what the answer ends with. The errors are those of answer.finish.
func (h *headway) finish() (wrong, lost error) { return h.ans.finish(h.tally.sum()) }

// goesOn says whether there is something of the answer that must not be lost: then it is
// not begun anew as long as it can be gone on with.
func (h *headway) goesOn() bool { return h.seen || h.taken && !h.request.stream }

// plan is how the answer is gone on with, or why it cannot be, as the end of a sentence.
func (h *headway) plan() (p *continuation.Plan, why string) {
	switch {
	case h.stuck != "":
		return nil, h.stuck
	case h.track == nil:
		return nil, "there are several answers to the request"
	case !h.keepAsked():
		return nil, "this peer holds as many bytes of requests and answers as it may"
	}
	p, err := h.track.Plan(h.asked)
	var cannot *continuation.Cannot
	switch {
	case errors.As(err, &cannot):
		return nil, cannot.Why
	case err != nil:
		return nil, err.Error()
	}
	return p, ""
}

// keepAsked joins what the engine was asked, and reports whether that may be held.
func (h *headway) keepAsked() bool {
	if h.asked != nil {
		return true
	}
	body := h.request.calling(h.want.UID)
	// Once more in what is asked next.
	if !h.kept.countSpare(2 * int(body.size())) {
		return false
	}
	for _, part := range body {
		h.asked = append(h.asked, part...)
	}
	return true
}

// drop lets go what was kept to go on.
func (h *headway) drop() {
	h.kept.drop()
	h.tracked.drop()
}

// brokeOff is the end of an answer of which the client has seen a part. why says why it
// cannot be gone on with; it may be empty.
func (h *headway) brokeOff(no *refusal, why string) *refusal {
	h.door.opt.Metrics.BrokeOff()
	text := no.message
	if why != "" {
		text += "; it cannot be continued: " + why
	}
	ended := refuse(scheduler.CannotContinue, "the answer broke off after %d events: %s; ask again", h.call.events, text)
	ended.cause, ended.retry, ended.last = no.cause, scheduler.RetryLater, true
	return ended
}

// lose begins a gap, or goes on with one.
func (h *headway) lose(a *attempt, no *refusal) {
	if h.gap != nil {
		return
	}
	h.gap = &gap{from: a.route.Peer, why: no, noticed: time.Now()}
	if most := h.door.opt.Deadlines.BetweenTokens; most > 0 {
		h.gap.until, h.gap.most = h.gap.noticed.Add(most), most
	}
}

// goneOn notes that another replica goes on with the answer, before the first chunk of its own
// is taken in.
func (h *headway) goneOn(a *attempt) error {
	c, g := h.call, h.gap
	h.gap = nil
	c.continued++
	by, tokens := a.plan.By(), h.track.Tokens()
	lasted := time.Since(h.last)
	h.door.opt.Metrics.Continued(by, lasted)
	h.door.opt.Log.Info("continued", "request_id", c.id, "model", clip(c.served, 100), "from", shortPeer(g.from), "to", shortPeer(a.route.Peer),
		"tokens", tokens, "by", by, "noticed_ms", ms(g.noticed.Sub(h.last)), "gap_ms", ms(lasted))
	if !c.stream {
		return nil
	}
	return h.ans.comment(fmt.Sprintf(": relay continued from=%s to=%s tokens=%d by=%s\n\n", g.from, a.route.Peer, tokens, by))
}

// close ends an answer that is whole but for what an engine says at its end.
func (h *headway) close(chunks [][]byte) *refusal {
	wrong, lost := h.takeAll(chunks)
	if wrong == nil && lost == nil {
		wrong, lost = h.finish()
	}
	switch {
	case lost != nil:
		return h.call.lost(lost)
	case wrong != nil && heldTooMuch(wrong) != nil && !h.seen:
		return heldTooMuch(wrong)
	case wrong != nil:
		no := h.brokeOff(h.gap.why, "its end could not be made")
		no.cause = wrong
		return no
	}
	h.gap = nil
	return nil
}

func (h *headway) takeAll(chunks [][]byte) (wrong, lost error) {
	for _, data := range chunks {
		ev := chunk{data: data}
		if err := outlineInto(&ev.out, data); err != nil {
			return err, nil
		}
		if wrong, lost = h.take(&ev); wrong != nil || lost != nil {
			break
		}
	}
	return wrong, lost
}
