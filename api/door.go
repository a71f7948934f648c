package api

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"relay/scheduler"
)

// Door is a peer's /v1: the entrance for clients, and the way in for requests
// that another peer's door forwards. It starts nothing by itself.
type Door struct {
	opt   DoorOptions
	guard *guard
	held  *held
	// clients and hops are the requests under way.
	clients, hops crowd
}

// NewDoor checks the options.
func NewDoor(opt DoorOptions) (*Door, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	most := int64(opt.MaxRequests)
	return &Door{opt: opt, guard: newGuard(opt.Listen), held: &held{max: opt.MaxHeld}, clients: crowd{max: most}, hops: crowd{max: most}}, nil
}

// route is one path of the entrance.
type route struct {
	method string
	// open routes need no key.
	open  bool
	serve func(w http.ResponseWriter, r *http.Request, c *call)
	// all routes are for keys of all models alone.
	all bool
}

// find finds the route of a path at the entrance. There is no cleaning and no redirect
// of paths: a redirect is HTML.
func (d *Door) find(path string) (name string, rt route, ok bool) {
	switch path {
	case "/healthz":
		return path, route{method: http.MethodGet, open: true, serve: d.healthz}, true
	case "/readyz":
		return path, route{method: http.MethodGet, open: true, serve: d.readyz}, true
	case "/metrics":
		return path, ofAllModels(d.showMetrics), true
	case "/metrics/targets":
		return path, ofAllModels(d.listTargets), true
	case "/v1/models":
		return path, route{method: http.MethodGet, serve: d.listModels}, true
	case "/v1/chat/completions":
		return path, asks(d.ask(chatDialect, 0)), true
	case "/v1/completions":
		return path, asks(d.ask(textDialect, 0)), true
	case "/v1/responses":
		return path, asks(d.ask(responsesDialect, copiesOfTranslated)), true
	case "/v1/responses/input_tokens":
		return path, asks(d.ask(inputTokensDialect, copiesOfTranslated)), true
	case "/v1/messages":
		return path, asks(d.ask(messagesDialect, copiesOfTranslated)), true
	case "/v1/messages/count_tokens":
		return path, asks(d.ask(countDialect, copiesOfTranslated)), true
	case "/v1/embeddings":
		return path, asks(d.ask(embeddingsDialect, 0)), true
	case "/v1/rerank":
		return path, asks(d.ask(rerankDialect, copiesOfTranslated)), true
	case "/v1/tokenize":
		return path, asks(d.ask(tokenizeDialect, 0)), true
	case "/v1/detokenize":
		return path, asks(d.ask(detokenizeDialect, 0)), true
	}
	if id, found := strings.CutPrefix(path, "/v1/models/"); found && id != "" {
		return "/v1/models/{id}", route{method: http.MethodGet, serve: d.showModel}, true
	}
	if id, found := strings.CutPrefix(path, peerMetrics); found && id != "" {
		return peerMetrics + "{id}", ofAllModels(d.showPeerMetrics), true
	}
	return "", route{}, false
}

// asks is a route that a body is posted to.
func asks(serve func(http.ResponseWriter, *http.Request, *call)) route {
	return route{method: http.MethodPost, serve: serve}
}

// ofAllModels is a route that shows the names of all models, and so is for no key that
// is kept to some of them.
func ofAllModels(serve func(http.ResponseWriter, *http.Request, *call)) route {
	return route{method: http.MethodGet, serve: serve, all: true}
}

// lookup finds a route of the engine's that requests are forwarded to.
func (d *Door) lookup(path string) (name string, rt route, ok bool) {
	return path, route{method: http.MethodPost}, forwarded(path)
}

// shownRoutes is what a 404 says there is.
const shownRoutes = "GET /v1/models, GET /v1/models/{id}, POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/responses/input_tokens, /v1/messages, /v1/messages/count_tokens, " +
	"/v1/embeddings, /v1/rerank, /v1/tokenize, /v1/detokenize, GET /metrics, /metrics/targets"

// Handler is the entrance for clients.
func (d *Door) Handler() http.Handler {
	return d.calls(kindRequest, func(w http.ResponseWriter, r *http.Request, c *call) {
		if no := d.guard.check(r); no != nil {
			d.refuse(w, c, no)
			return
		}
		if r.Header.Get(headerHop) != "" {
			d.refuse(w, c, refuse(scheduler.HopRefused, "this request was already forwarded by a relay door, and comes back to one: requests go from the entrance to the peer that serves, no further"))
			return
		}
		name, rt, ok := d.find(r.URL.Path)
		if no := unservedRoute(r.Method, r.URL.Path); no != nil {
			c.route = name
			d.refuse(w, c, no)
			return
		}
		if !ok {
			d.refuse(w, c, refuse(scheduler.RouteNotFound, "there is no %s %s here; there is: %s", clip(r.Method, 20), clip(r.URL.Path, 100), shownRoutes))
			return
		}
		c.route = name
		if r.Method != rt.method && !(r.Method == http.MethodHead && rt.method == http.MethodGet) {
			w.Header().Set("Allow", rt.method)
			d.refuse(w, c, refuse(scheduler.MethodNotAllowed, "%s takes %s, not %s", name, rt.method, clip(r.Method, 20)))
			return
		}
		if !rt.open {
			grant, no := d.authorize(r)
			if no != nil {
				d.refuse(w, c, no)
				return
			}
			c.grant, c.keyID = grant, grant.ID
			if rt.all && grant.Models != nil {
				d.refuse(w, c, refuse(scheduler.NotAllowed, "%s names all models of the mesh, and this key is kept to some of them: ask with one that is for all", name))
				return
			}
			if !d.clients.enter() {
				d.refuse(w, c, busyCrowd())
				return
			}
			defer d.clients.leave()
		}
		rt.serve(w, r, c)
	})
}

// Kinds of calls, as the log names them.
const (
	kindRequest = "request" // of a client
	kindHop     = "hop"     // of another peer's door
)

// calls wraps what serves one request: its id, its log line, and an answer even
// when relay itself fails.
func (d *Door) calls(kind string, serve func(http.ResponseWriter, *http.Request, *call)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newCall(r)
		c.shape = shapeFor(r)
		w.Header().Set(headerRequestID, c.id)
		c.shape.header(w.Header(), c.id)
		w.Header().Set("Cache-Control", "no-store")
		if t := d.opt.Deadlines.ReadHeader; t > 0 && r.Body != http.NoBody {
			// For a body that nobody asks for: net/http reads some of it before
			// it answers. readBody gives those that are wanted their own time.
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(t))
		}
		if r.Body != http.NoBody {
			r.Body = c.waited(r.Body)
		}
		counted := &countingWriter{ResponseWriter: w, call: c}
		defer func() {
			if p := recover(); p != nil && !isAbort(p) {
				d.opt.Log.Error("panic", "request_id", c.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				no := internal(fmt.Errorf("panic: %v", p), c.id)
				if c.status == 0 {
					d.refuse(counted, c, no)
				} else {
					c.refused(no)
					c.aborted = true
				}
			}
			c.log(d.opt.Log, kind)
			if kind == kindRequest {
				d.account(c)
			}
			if c.aborted {
				panic(http.ErrAbortHandler)
			}
		}()
		serve(counted, r, c)
	})
}

func isAbort(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// refuse answers with a refusal and notes it.
func (d *Door) refuse(w http.ResponseWriter, c *call, no *refusal) {
	c.refused(no)
	c.mark(w.Header())
	no.write(w, c.shape, c.id)
}

// countingWriter notes what goes out, and how long that waits for who takes it.
type countingWriter struct {
	http.ResponseWriter
	call *call
}

func (w *countingWriter) WriteHeader(status int) {
	if w.call.status == 0 && status >= 200 {
		w.call.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.call.status == 0 {
		w.call.status = http.StatusOK
	}
	w.call.meter.waits.begin()
	n, err := w.ResponseWriter.Write(b)
	w.call.meter.waits.end()
	w.call.bytes += int64(n)
	return n, err
}

// FlushError is what http.ResponseController flushes by.
func (w *countingWriter) FlushError() error {
	w.call.meter.waits.begin()
	defer w.call.meter.waits.end()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController through.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (d *Door) healthz(w http.ResponseWriter, _ *http.Request, _ *call) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

func (d *Door) readyz(w http.ResponseWriter, _ *http.Request, _ *call) {
	if err := d.opt.Ready(); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, encodeJSON(map[string]string{"status": "not_ready", "message": err.Error()}))
		return
	}
	writeJSON(w, http.StatusOK, []byte(`{"status":"ready"}`))
}
