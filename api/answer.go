package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// answer is what a client is sent for one request. While a streamed one waits, a
// timer sends comments; the lock keeps them between events, and the reply's methods
// apart.
type answer struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	call *call
	// write bounds one write, every is the silence after which a comment goes
	// out; 0 means never.
	write, every time.Duration
	// lost is called when a comment cannot be sent.
	lost func()

	mu        sync.Mutex
	says      reply // nil for answers that are never streams
	committed bool
	over      bool
	silence   *time.Timer
}

func newAnswer(w http.ResponseWriter, c *call, d Deadlines, lost func()) *answer {
	a := &answer{w: w, rc: http.NewResponseController(w), call: c, write: d.Write, lost: lost}
	if c.stream && d.KeepAlive > 0 {
		a.every = d.KeepAlive
		a.mu.Lock() // the timer may be early
		a.silence = time.AfterFunc(a.every, a.keepAlive)
		a.mu.Unlock()
	}
	return a
}

// speak has what is sent without an event of the engine's be in a reply's words.
func (a *answer) speak(r reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says = r
}

// begun says whether the headers are gone.
func (a *answer) begun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.committed
}

// end stops the comments, waits for one under way, and takes the deadlines off
// the connection, which may serve more requests.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.silence != nil {
		a.silence.Stop()
	}
	if a.call.stream && a.committed && a.call.continued > 0 {
		a.w.Header().Set(headerContinued, strconv.Itoa(a.call.continued))
	}
	if a.write > 0 && !a.call.aborted {
		a.rc.SetWriteDeadline(time.Time{})
	}
}

func (a *answer) keepAlive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.begin(false)
	comment := waiting
	if a.says != nil {
		comment = a.says.keepAlive()
	}
	if a.put(comment) != nil {
		a.over = true
		a.lost()
	}
}

// begin sends the headers of a stream, once. served says that they name who serves it:
// before its first event that may still change.
func (a *answer) begin(served bool) {
	if a.committed {
		return
	}
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // keeps proxies from collecting events
	h.Set("Trailer", headerContinued)
	if served {
		a.call.mark(h)
	}
	a.w.WriteHeader(http.StatusOK)
	a.committed = true
}

// comment sends a comment, in a stream that has begun.
func (a *answer) comment(text string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.committed {
		return nil
	}
	return a.put([]byte(text))
}

// put writes and flushes; the lock is held.
func (a *answer) put(b []byte) error {
	if a.call.first == 0 {
		a.call.first = time.Since(a.call.began)
	}
	if a.write > 0 {
		a.rc.SetWriteDeadline(time.Now().Add(a.write))
	}
	if _, err := a.w.Write(b); err != nil {
		return err
	}
	if err := a.rc.Flush(); err != nil {
		return err
	}
	if a.silence != nil && !a.over {
		a.silence.Reset(a.every)
	}
	return nil
}

// pass gives an event of the engine's to the reply, and sends what it makes of it. wrong is
// the reply's error, lost that of a client that does not take its answer.
func (a *answer) pass(c *chunk) (sent bool, wrong, lost error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out, err := a.says.event(c)
	if err != nil || len(out) == 0 {
		return false, err, nil
	}
	a.begin(true)
	return true, nil, a.put(out)
}

// finish sends what the reply ends with. The errors are as those of pass.
func (a *answer) finish(u usage) (wrong, lost error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out, err := a.says.end(u)
	switch {
	case err != nil:
		return err, nil
	case a.call.stream:
		a.begin(true)
		return nil, a.put(out)
	}
	return nil, a.json(out)
}

// refuse ends the answer with a refusal: as the whole answer while nothing was
// sent, else as the event that ends the stream.
func (a *answer) refuse(d *Door, no *refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if !a.committed {
		if a.write > 0 {
			a.rc.SetWriteDeadline(time.Now().Add(a.write))
		}
		a.committed = true
		d.refuse(a.w, a.call, no)
		return
	}
	a.call.refused(no)
	if a.says != nil {
		a.put(a.says.failed(no))
	}
}

// whole sends an answer that is not streamed: JSON.
func (a *answer) whole(body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.json(body)
}

// json is whole; the lock is held.
func (a *answer) json(body []byte) error {
	h := a.w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	a.call.mark(h)
	if a.call.continued > 0 {
		h.Set(headerContinued, strconv.Itoa(a.call.continued))
	}
	a.w.WriteHeader(http.StatusOK)
	a.committed = true
	return a.put(body)
}
