package api

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"relay/api/metrics"
	"relay/store/audit"
)

// meter is what is noted of a request while it is under way, for its account.
type meter struct {
	// counted is the model under which it is in flight; nil before that is known.
	counted *metrics.Model
	waits   waits
	several bool // It has more than one answer, which come side by side.
}

// waits are the times in which a request waits for others: the engine, on whichever
// peer, or the client. They may overlap: a comment may go out while the engine is
// waited for.
type waits struct {
	mu    sync.Mutex
	now   int // How many there are.
	began time.Time
	sum   time.Duration
}

func (w *waits) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now++; w.now == 1 {
		w.began = time.Now()
	}
}

func (w *waits) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now--; w.now == 0 {
		w.sum += time.Since(w.began)
	}
}

// total is how long there was any wait.
func (w *waits) total() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now > 0 {
		return w.sum + time.Since(w.began)
	}
	return w.sum
}

// inFlight counts a request as in flight, by the name of the registered model that it
// is for; account ends that.
func (d *Door) inFlight(c *call, model string) {
	if c.meter.counted == nil {
		c.meter.counted = d.opt.Metrics.Model(model)
		c.meter.counted.Begin()
	}
}

// waits notes that an engine is waited for until the function is called that it
// returns.
func (c *call) waits() (over func()) {
	c.meter.waits.begin()
	return c.meter.waits.end
}

// waited is the body of an engine's answer or of a client's request, whose reads are
// waits.
func (c *call) waited(body io.ReadCloser) io.ReadCloser { return waitedBody{body, c} }

type waitedBody struct {
	io.ReadCloser
	call *call
}

func (b waitedBody) Read(p []byte) (int, error) {
	b.call.meter.waits.begin()
	defer b.call.meter.waits.end()
	return b.ReadCloser.Read(p)
}

// account puts down a request of the entrance that is over: in the metrics, and as a
// row of the audit.
func (d *Door) account(c *call) {
	total := time.Since(c.began)
	d.opt.Metrics.Observe(c.figures(d.opt.Metrics, total))
	if c.meter.counted != nil {
		c.meter.counted.End()
	}
	if d.opt.Audit != nil && (audited(c.route) || c.status == http.StatusUnauthorized) {
		d.opt.Audit(c.row(d.opt.Self, total))
	}
}

// audited says whether requests of a route are worth rows: those by which machines
// look after a peer, again and again, are not, but for those with a wrong key.
func audited(route string) bool {
	return route != "/healthz" && route != "/readyz" && !strings.HasPrefix(route, "/metrics")
}

func (c *call) figures(m *metrics.Metrics, total time.Duration) metrics.Request {
	r := metrics.Request{
		Route: c.route, Status: c.status, Overhead: total - c.routed - c.meter.waits.total(), Queue: c.routed + c.queue, First: c.token,
		Prompt: c.prompt, Completion: c.answer, Retries: c.tries - 1,
	}
	switch {
	case c.served != "":
		r.Model = m.Model(c.served)
	case c.meter.counted != nil:
		r.Model = c.meter.counted
	case c.model != "":
		r.Model = m.Unknown()
	}
	if c.stream && !c.meter.several && c.answer > 1 && c.token > 0 && c.reason == "" {
		r.PerToken = (total - c.token) / time.Duration(c.answer-1)
	}
	return r
}

func (c *call) row(self string, total time.Duration) audit.Row {
	return audit.Row{
		ID: c.id, Time: c.began, Entrance: self, Method: c.method, Route: c.route, Key: c.keyID, Model: c.model, Served: c.served,
		Peer: c.peer, Path: c.path, Attempts: c.tries, Continued: c.continued, Stream: c.stream, Status: c.status, Reason: c.reason,
		Prompt: c.prompt, Completion: c.answer, Cached: c.cached,
		QueueMS: ms(c.routed + c.queue), FirstMS: ms(c.token), TotalMS: ms(total),
	}
}
