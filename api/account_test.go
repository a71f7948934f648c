package api

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay/api/metrics"
	"relay/llama/sim"
	"relay/store/audit"
)

// rows takes in what a door accounts for.
type rows struct {
	mu   sync.Mutex
	list []audit.Row
	came chan struct{}
}

func newRows() *rows { return &rows{came: make(chan struct{}, 100)} }

func (r *rows) add(row audit.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, row)
	r.came <- struct{}{}
}

// next waits for one more row: it comes when its answer is over.
func (r *rows) next(t *testing.T) audit.Row {
	t.Helper()
	select {
	case <-r.came:
	case <-t.Context().Done():
		t.Fatal("no row came")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	row := r.list[0]
	r.list = r.list[1:]
	return row
}

// Every request of the entrance leaves one row, none at the hop, and no text.
func TestRows(t *testing.T) {
	kept := newRows()
	entrance, serving := newMesh(t, []sim.Options{{}}, func(o *DoorOptions) {
		if o.Self == "" {
			o.Self, o.Audit = "me", kept.add
		}
	})
	serving[0].door.opt.Audit = func(r audit.Row) { t.Errorf("a row at the hop: %+v", r) }

	if r := send(t, http.MethodPost, entrance.url+"/v1/chat/completions", chatBody(testModel, true), "X-Request-Id", "mine"); r.status != 200 {
		t.Fatal(r)
	}
	row := kept.next(t)
	if row.ID != "mine" || row.Entrance != "me" || row.Method != "POST" || row.Route != "/v1/chat/completions" || row.Key != "testkey0" || row.Model != testModel ||
		row.Peer != "peer0" || row.Attempts != 1 || !row.Stream || row.Status != 200 || row.Reason != "" || row.TotalMS <= 0 || row.Time.IsZero() {
		t.Errorf("%+v", row)
	}
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		reason, route, key string
	}{
		{"GET", "/v1/models", "", nil, 200, "", "/v1/models", "testkey0"},
		{"POST", "/v1/chat/completions", "nonsense", nil, 400, "invalid_request", "/v1/chat/completions", "testkey0"},
		{"POST", "/v1/chat/completions", chatBody(testModel, false), []string{"Authorization", "Bearer rk-wrong"}, 401, "invalid_api_key", "/v1/chat/completions", ""},
		{"GET", "/v1/nothing/like/this", "", nil, 404, "route_not_found", "", ""},
	} {
		if r := send(t, c.method, entrance.url+c.path, c.body, c.header...); r.status != c.status {
			t.Fatal(r)
		}
		row := kept.next(t)
		if row.Status != c.status || row.Reason != c.reason || row.Route != c.route || row.Key != c.key || strings.Contains(row.Model, "nonsense") {
			t.Errorf("%s %s: %+v", c.method, c.path, row)
		}
	}
	if r := send(t, http.MethodGet, entrance.url+"/metrics", "", "Authorization", "Bearer rk-wrong"); r.status != 401 {
		t.Fatal(r)
	}
	if row := kept.next(t); row.Route != "/metrics" || row.Status != 401 || row.Reason != "invalid_api_key" {
		t.Errorf("%+v", row)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} { // Of which there is a row for none.
		if r := send(t, http.MethodGet, entrance.url+path, ""); r.status != 200 {
			t.Fatal(r)
		}
	}
	send(t, http.MethodGet, entrance.url+"/v1/models", "", "X-Request-Id", "after")
	if row := kept.next(t); row.ID != "after" {
		t.Errorf("%+v", row)
	}
}

// What passes while an engine is waited for is no overhead; a model that is not
// registered is no label.
func TestFigures(t *testing.T) {
	m := metrics.New(metrics.Options{})
	c := &call{route: "/v1/completions", model: "made up", status: 404}
	if r := c.figures(m, 1000); r.Model != m.Unknown() || r.Overhead != 1000 || r.PerToken != 0 || r.Retries != -1 {
		t.Errorf("%+v", r)
	}
	c = &call{status: 200, model: "alias", served: "qwen", stream: true, routed: 100, queue: 30, token: 400, answer: 4, prompt: 3, tries: 2,
		meter: meter{waits: waits{sum: 700}, counted: m.Model("asked for")}}
	r := c.figures(m, 1000)
	if r.Model != m.Model("qwen") || r.Overhead != 200 || r.Queue != 130 || r.First != 400 || r.PerToken != 200 || r.Prompt != 3 || r.Completion != 4 || r.Retries != 1 {
		t.Errorf("%+v", r)
	}
	c.meter.several = true
	if r := c.figures(m, 1000); r.PerToken != 0 {
		t.Errorf("answers side by side: %+v", r)
	}
	if r := (&call{status: 200}).figures(m, 1); r.Model != nil {
		t.Errorf("a request about no model: %+v", r)
	}
}

// A request is in flight once, and no more when it is over.
func TestInFlight(t *testing.T) {
	d := &Door{opt: DoorOptions{Metrics: metrics.New(metrics.Options{})}}
	c := newCall(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil))
	d.inFlight(c, "qwen")
	d.inFlight(c, "fallback")
	if n := metric(t, d.opt.Metrics, `relay_in_flight{model="qwen"}`); n != "1" {
		t.Errorf("%q in flight", n)
	}
	d.account(c)
	if n := metric(t, d.opt.Metrics, `relay_in_flight{model="qwen"}`); n != "0" {
		t.Errorf("%q in flight at the end", n)
	}
}

// metric is the value of one series as text.
func metric(t *testing.T, m *metrics.Metrics, series string) string {
	t.Helper()
	text, err := textOf(m)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestALineIsBounded: whatever a stranger sends, what is written of it is short.
func TestALineIsBounded(t *testing.T) {
	var log bytes.Buffer
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	long := strings.Repeat("A", 60000)
	if r := send(t, long, p.url+"/v1/models", ""); r.status != 405 && r.status != 401 {
		t.Error(r)
	}
	send(t, http.MethodGet, p.url+"/"+long, "", "User-Agent", long, "Authorization", "Bearer "+long)
	p.stopDoor()
	if log.Len() == 0 || log.Len() > 2000 {
		t.Errorf("two requests left %d bytes", log.Len())
	}
	log.Reset()
	(&call{route: "/" + long, model: long, served: long, cause: errors.New(long)}).log(slog.New(slog.NewTextHandler(&log, nil)), kindHop)
	if log.Len() > 2000 {
		t.Errorf("a request between doors left %d bytes", log.Len())
	}
}

// TestWaitsOverlap: what waits at the same time counts once.
func TestWaitsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { <-time.After(d) }
		var w waits
		w.begin()
		pass(time.Second)
		w.begin()
		pass(time.Second)
		w.end()
		pass(time.Second)
		if got := w.total(); got != 3*time.Second {
			t.Errorf("%s while it waits", got)
		}
		w.end()
		pass(time.Minute)
		w.begin()
		w.end()
		if got := w.total(); got != 3*time.Second {
			t.Error(got)
		}
	})
}

// slowClient takes its time for all that it sends and takes.
type slowClient struct {
	http.ResponseWriter
	body  io.Reader
	takes time.Duration
}

func (s slowClient) Read(b []byte) (int, error) {
	<-time.After(s.takes)
	return s.body.Read(b)
}

func (s slowClient) Close() error { return nil }

func (s slowClient) Write(b []byte) (int, error) {
	<-time.After(s.takes)
	return s.ResponseWriter.Write(b)
}

func (s slowClient) FlushError() error {
	<-time.After(s.takes)
	return nil
}

// TestASlowClientIsNoOverhead, neither when it sends nor when it takes.
func TestASlowClientIsNoOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Options{})
		d := &Door{opt: DoorOptions{Metrics: m, Log: slog.New(slog.DiscardHandler)}}
		h := d.calls(kindRequest, func(w http.ResponseWriter, r *http.Request, c *call) {
			<-time.After(10 * time.Millisecond) // Of relay's own.
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			if _, err := w.Write([]byte("answer")); err != nil {
				t.Error(err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		})
		slow := slowClient{httptest.NewRecorder(), strings.NewReader("question"), time.Hour}
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
		r.Body = slow
		h.ServeHTTP(slow, r)
		if sum := metric(t, m, "relay_overhead_seconds_sum"); sum != "0.01" {
			t.Errorf("%s s of overhead", sum)
		}
	})
}
