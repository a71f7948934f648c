package api

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// answer is what a client is sent for one completion. While a streamed one
// waits, a timer sends comments; the lock keeps them between events.
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

// end stops the comments, waits for one under way, and takes the deadlines off
// the connection, which may serve more requests.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.silence != nil {
		a.silence.Stop()
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
	a.begin(nil)
	if a.put([]byte(": waiting\n\n")) != nil {
		a.over = true
		a.lost()
	}
}

// begin sends the headers of a stream, once. served is nil when nobody serves
// it yet.
func (a *answer) begin(served *attempt) {
	if a.committed {
		return
	}
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // keeps proxies from collecting events
	if served != nil {
		served.mark(h)
	}
	a.w.WriteHeader(http.StatusOK)
	a.committed = true
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

// event passes one event on.
func (a *answer) event(b []byte, served *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(served)
	return a.put(b)
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
	a.put(no.event())
}

// whole sends an unstreamed answer.
func (a *answer) whole(status int, contentType string, body []byte, served *attempt) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open(status, contentType, int64(len(body)), served)
	return a.put(body)
}

// open sends the headers of an unstreamed answer; length -1 means unknown.
func (a *answer) open(status int, contentType string, length int64, served *attempt) {
	h := a.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	if length >= 0 {
		h.Set("Content-Length", fmt.Sprint(length))
	}
	served.mark(h)
	a.w.WriteHeader(status)
	a.committed = true
}

// part sends a piece of an unstreamed answer that is too large to be held.
func (a *answer) part(b []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.put(b)
}
