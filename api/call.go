package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"time"

	"relay/p2p/keys"
)

// Headers between doors. None of them is taken from a client.
const (
	headerHop     = "X-Relay-Hop"     // "1" on every request that a door sends on
	headerModel   = "X-Relay-Model"   // uid of the model asked for
	headerKey     = "X-Relay-Key"     // id of the key it came with
	headerRefusal = "X-Relay-Refusal" // reason, on answers whose body is a hopRefusal
	headerBroken  = "X-Relay-Broken"  // trailer: a hopRefusal, where a stream broke off
)

// Headers of answers to clients.
const (
	headerRequestID = "X-Request-Id"
	headerPeer      = "X-Relay-Peer"
	headerAttempts  = "X-Relay-Attempts"
	headerPath      = "X-Relay-Path"
	headerHardware  = "X-Relay-Hardware"
	headerServed    = "X-Relay-Served-Model"
	// headerContinued is how often another replica went on with the answer: a trailer of
	// streams, a header of whole answers, where that is not 0.
	headerContinued = "X-Relay-Continued"
)

// statusGone stands in the log for a client that left before its answer.
const statusGone = 499

// call is one request on its way through a door: what the access log will say.
type call struct {
	id        string
	began     time.Time
	method    string
	route     string
	from      string // hop: the peer that forwarded it
	grant     keys.Grant
	keyID     string
	model     string           // as the client named it
	served    string           // the name of the model that answers
	path      string           // to the peer that serves
	prompt    int              // tokens, as far as the engine has told
	answer    int              // tokens
	cached    int              // tokens of the prompt that were not computed anew
	queue     time.Duration    // at the peer that serves
	token     time.Duration    // until the first data event, or the whole answer
	shape     shape            // how it is refused
	grab      func(n int) bool // whether n more bytes of its answer may be held
	hold      *buffer          // counts them
	ticket    keys.Ticket
	peer      string
	hardware  string
	tries     int
	deaths    int // engines that ended over this request
	continued int // how often another replica went on with the answer
	status    int
	stream    bool
	reason    string
	cause     error
	events    int // data events passed on
	bytes     int64
	routed    time.Duration // waiting for the scheduler
	first     time.Duration // until the first byte of the answer
	aborted   bool          // the connection must be cut, for want of another way to say that the answer is not whole
	meter     meter         // for its account
}

// newCall begins one request. The client's own id is kept if it is fit to be
// written into a log and sent on.
func newCall(r *http.Request) *call {
	c := &call{began: time.Now(), method: clip(r.Method, 20), id: r.Header.Get(headerRequestID), shape: shapeOpenAI{}}
	c.grab = func(n int) bool { return c.hold.count(n) }
	if !saneID(c.id) {
		var b [12]byte
		rand.Read(b[:])
		c.id = "req-" + hex.EncodeToString(b[:])
	}
	return c
}

func saneID(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':') {
			return false
		}
	}
	return true
}

// refused notes why there is no answer.
func (c *call) refused(no *refusal) {
	c.reason, c.cause = string(no.reason), no.cause
}

// log writes the one line that a request leaves.
func (c *call) log(l *slog.Logger, kind string) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request_id", c.id), slog.String("method", c.method), slog.String("route", clip(c.route, 100)), slog.Int("status", c.status),
		slog.Float64("total_ms", ms(time.Since(c.began))),
	}
	add := func(set bool, a slog.Attr) {
		if set {
			attrs = append(attrs, a)
		}
	}
	add(c.from != "", slog.String("from", shortPeer(c.from)))
	add(c.keyID != "", slog.String("key_id", c.keyID))
	add(c.model != "", slog.String("model", clip(c.model, 100)))
	add(c.served != "", slog.String("served", clip(c.served, 100)))
	add(c.peer != "", slog.String("peer", shortPeer(c.peer)))
	add(c.path != "", slog.String("path", c.path))
	add(c.hardware != "", slog.String("hardware", c.hardware))
	add(c.tries > 0, slog.Int("attempts", c.tries))
	add(c.continued > 0, slog.Int("continued", c.continued))
	add(c.routed > 0, slog.Float64("route_ms", ms(c.routed)))
	add(c.queue > 0, slog.Float64("queue_ms", ms(c.queue)))
	add(c.token > 0, slog.Float64("token_ms", ms(c.token)))
	add(c.prompt > 0, slog.Int("prompt_tokens", c.prompt))
	add(c.answer > 0, slog.Int("completion_tokens", c.answer))
	add(c.cached > 0, slog.Int("cached_tokens", c.cached))
	add(c.first > 0, slog.Float64("first_ms", ms(c.first)))
	add(c.stream, slog.Int("events", c.events))
	add(c.bytes > 0, slog.Int64("bytes", c.bytes))
	add(c.reason != "", slog.String("reason", c.reason))
	if c.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(c.cause.Error(), 300)))
	}
	switch {
	case c.status >= 500 || c.reason != "" && c.status < 400:
		level = slog.LevelWarn
	case c.route == "/healthz" || c.route == "/readyz":
		level = slog.LevelDebug
	}
	l.LogAttrs(context.Background(), level, kind, attrs...)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shortPeer is the end of a peer id, where they differ.
func shortPeer(id string) string {
	if len(id) > 8 {
		return id[len(id)-8:]
	}
	return id
}

// clip cuts what others wrote to a length that a line can bear.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}
