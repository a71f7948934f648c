package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/p2p/keys"
	"relay/scheduler"
)

const (
	testKey   = "rk-testkey0-aaaabbbbccccddddeeeeffffgggghhhh"
	testModel = "tiny"
	testUID   = "01uidoftiny"
)

// testKeys opens the door to one secret; empty means that there is no key.
type testKeys string

func (k testKeys) Check(secret string) (keys.Grant, error) {
	if k == "" || secret != string(k) {
		return keys.Grant{}, scheduler.Errorf(scheduler.InvalidKey, "the key is unknown, was taken back or has expired; an admin can list keys and make one")
	}
	return keys.Grant{ID: "testkey0", Name: "test"}, nil
}
func (k testKeys) Any() bool { return k != "" }

// testPeer is a peer with an engine and doors, over real sockets.
type testPeer struct {
	id     string
	engine *sim.Server
	// stopEngine ends the engine as a kill would, and waits.
	stopEngine func()
	// client reaches the engine.
	client http.RoundTripper
	door   *Door
	sched  *testScheduler
	// hopAddr is where the hop handler listens.
	hopAddr string
	stopHop func()
	// stopDoor stops the entrance, after which nothing is under way in it.
	stopDoor func()
	url      string
}

// testScheduler is what one peer's door asks. Its routes are tried in order.
type testScheduler struct {
	t     testing.TB
	self  *testPeer
	mu    sync.Mutex
	peers []*testPeer // who serve the model
	// hops are ways to peers other than over TCP.
	hops map[string]http.RoundTripper
	// away are when routes to peers had better be left.
	away  map[string]context.Context
	added chan struct{}
	// ends are the errors that routes and leases were done with.
	ends []error
	open int
	// over is closed and made anew whenever a route or lease is done.
	over chan struct{}
	// routeErr answers every Route, serveErr every Serve, where they are set.
	routeErr, serveErr error
	// failing answers the Route of models, by uid.
	failing  map[string]error
	asked    [][]string
	models   []scheduler.ServedModel
	patience []time.Duration
}

func (s *testScheduler) Models() []scheduler.ServedModel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.models
}

func (s *testScheduler) Resolve(name string) (scheduler.ServedModel, bool) {
	return resolveOf(s.Models(), name)
}

// resolveOf finds a model by its name, uid or alias, in this order.
func resolveOf(models []scheduler.ServedModel, name string) (scheduler.ServedModel, bool) {
	for _, means := range []func(scheduler.ServedModel) bool{
		func(m scheduler.ServedModel) bool { return m.Name == name },
		func(m scheduler.ServedModel) bool { return m.UID == name },
		func(m scheduler.ServedModel) bool { return slices.Contains(m.Aliases, name) },
	} {
		if i := slices.IndexFunc(models, means); i >= 0 {
			return models[i], true
		}
	}
	return scheduler.ServedModel{}, false
}

func (s *testScheduler) Route(ctx context.Context, want scheduler.Want) (scheduler.Route, error) {
	model, tried := want.UID, want.Tried
	var m scheduler.ServedModel
	for _, have := range s.Models() {
		if have.Name == model || have.UID == model {
			m = have
		}
	}
	s.mu.Lock()
	s.asked = append(s.asked, tried)
	if deadline, ok := ctx.Deadline(); ok {
		s.patience = append(s.patience, time.Until(deadline))
	} else {
		s.patience = append(s.patience, 0)
	}
	err := s.routeErr
	if err == nil {
		err = s.failing[model]
	}
	s.mu.Unlock()
	if err != nil {
		return scheduler.Route{}, err
	}
	if m.UID == "" {
		return scheduler.Route{}, scheduler.Errorf(scheduler.ModelNotFound, "no such model")
	}
	for {
		s.mu.Lock()
		added := s.added
		for _, p := range s.peers {
			if slices.Contains(tried, p.id) {
				continue
			}
			rt := scheduler.Route{Model: m, Peer: p.id, PeerName: "name-of-" + p.id, Local: p == s.self, Client: p.client, Away: s.away[p.id], Done: s.done()}
			switch {
			case p == s.self:
			case s.hops[p.id] != nil:
				rt.Client = s.hops[p.id]
			default:
				rt.Client = hopTransport(s.self.id, p.hopAddr)
			}
			s.mu.Unlock()
			return rt, nil
		}
		s.mu.Unlock()
		select {
		case <-added:
		case <-ctx.Done():
			return scheduler.Route{}, ctx.Err()
		}
	}
}

func (s *testScheduler) Serve(ctx context.Context, want scheduler.Want) (scheduler.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serveErr != nil {
		return scheduler.Lease{}, s.serveErr
	}
	return scheduler.Lease{Model: s.models[0], Client: s.self.client, Done: s.done()}, nil
}

// done counts what is open, and fails the test when it is called twice. The
// lock is held.
func (s *testScheduler) done() func(error) {
	s.open++
	var called bool
	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if called {
			s.t.Error("Done was called twice")
		}
		called = true
		s.open--
		s.ends = append(s.ends, err)
		close(s.over)
		s.over = make(chan struct{})
	}
}

func (s *testScheduler) add(p *testPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = append(s.peers, p)
	close(s.added)
	s.added = make(chan struct{})
}

// settled waits until every route and lease is done, and gives the errors that
// they ended with, in order.
func (s *testScheduler) settled() []error {
	s.t.Helper()
	late := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		open, over, ends := s.open, s.over, slices.Clone(s.ends)
		s.mu.Unlock()
		if open == 0 {
			return ends
		}
		select {
		case <-over:
		case <-late:
			s.t.Fatalf("%d routes or leases are never done", open)
		}
	}
}

// lastEnd is the error that the latest route or lease ended with.
func (s *testScheduler) lastEnd() error {
	s.t.Helper()
	ends := s.settled()
	if len(ends) == 0 {
		return errors.New("nothing was routed")
	}
	return ends[len(ends)-1]
}

// set changes the scheduler between requests.
func (s *testScheduler) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

type fromKey struct{}

// hopConn stands in for a libp2p stream, of which the remote peer is known.
type hopConn struct {
	net.Conn
	from string
}

func hopTransport(self, addr string) http.RoundTripper {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			// The first line says who dials.
			_, err = fmt.Fprintf(c, "%-32s", self)
			return c, err
		},
	}
}

type hopListener struct{ net.Listener }

func (l hopListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	who := make([]byte, 32)
	if _, err := io.ReadFull(c, who); err != nil {
		c.Close()
		return hopConn{Conn: c}, nil
	}
	return hopConn{Conn: c, from: strings.TrimSpace(string(who))}, nil
}

func engineTransport(addr string) http.RoundTripper {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}}
}

// newPeer starts a peer: engine, entrance and hop, each on its own socket.
func newPeer(t testing.TB, id string, engine sim.Options, change func(*DoorOptions)) *testPeer {
	t.Helper()
	p := &testPeer{id: id}
	p.startEngine(t, engine)
	p.sched = &testScheduler{t: t, self: p, added: make(chan struct{}), over: make(chan struct{}), models: []scheduler.ServedModel{
		{UID: testUID, Name: testModel, Context: 4096, Created: 1700000000},
	}}
	p.sched.peers = []*testPeer{p}
	opt := DoorOptions{
		Scheduler: p.sched, Keys: testKeys(testKey), Log: slog.New(slog.DiscardHandler),
		HopPeer: func(ctx context.Context) string { from, _ := ctx.Value(fromKey{}).(string); return from },
	}
	if change != nil {
		change(&opt)
	}
	door, err := NewDoor(opt)
	if err != nil {
		t.Fatal(err)
	}
	p.door = door

	// Runs when the doors have stopped; a hop over libp2p may have its last word yet.
	t.Cleanup(func() {
		if !t.Failed() {
			p.sched.settled()
		}
	})

	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	client, hop := listen(), listen()
	p.url, p.hopAddr = "http://"+client.Addr().String(), hop.Addr().String()
	p.stopDoor = run(t, func(ctx context.Context) error {
		return Serve(ctx, client, door.Handler(), ServeOptions{Deadlines: door.opt.Deadlines})
	})
	p.stopHop = run(t, func(ctx context.Context) error {
		return Serve(ctx, hopListener{hop}, door.HopHandler(), ServeOptions{Deadlines: door.opt.Deadlines, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, fromKey{}, c.(hopConn).from)
		}})
	})
	return p
}

// run drives something with a Run until the test ends or stop is called, which
// waits for it.
func run(t testing.TB, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (p *testPeer) startEngine(t testing.TB, opt sim.Options) {
	t.Helper()
	opt.Model = "what --alias says"
	s, err := sim.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	p.engine = s
	p.stopEngine = run(t, s.Run)
	<-s.Ready()
	p.client = engineTransport(s.Addr().String())
}

// newMesh starts peers a, b, …; a is the entrance, and the others serve, in
// order.
func newMesh(t testing.TB, engines []sim.Options, change func(*DoorOptions)) (entrance *testPeer, serving []*testPeer) {
	t.Helper()
	entrance = newPeer(t, "entrance", sim.Options{}, change)
	entrance.sched.peers = nil
	for i, e := range engines {
		p := newPeer(t, fmt.Sprintf("peer%d", i), e, change)
		entrance.sched.peers = append(entrance.sched.peers, p)
		serving = append(serving, p)
	}
	return entrance, serving
}

type received struct {
	status int
	header http.Header
	body   string
	err    error
	// trailer is what came behind the body.
	trailer http.Header
}

func (r received) String() string {
	return fmt.Sprintf("%d %v %q %v", r.status, r.header, r.body, r.err)
}

// send asks a door; the key is sent along.
func send(t *testing.T, method, url, body string, header ...string) received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return sendCtx(ctx, t, method, url, body, header...)
}

func sendCtx(ctx context.Context, t *testing.T, method, url, body string, header ...string) received {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testKey)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return received{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return received{resp.StatusCode, resp.Header, string(b), err, resp.Trailer}
}

const chatRest = `,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true`

func chatBody(model string, stream bool) string {
	if stream {
		return `{"model":"` + model + `","stream":true` + chatRest + `}`
	}
	return `{"model":"` + model + `"` + chatRest + `}`
}

// wantText is what any of the engines says to chatBody.
func wantText() string {
	ids, _ := sim.Answer(sim.Tokenize("<|user|>hello<|assistant|>", true, true), 0, 12, true)
	return sim.Detokenize(ids)
}

// read is what a chat client makes of an answer, streamed or not.
type read struct {
	text   string
	models []string
	done   bool
	err    *apiError
	events int
}

type apiError struct {
	Message, Type, Code string
	Param               *string
}

func readAnswer(t *testing.T, body string) (r read) {
	t.Helper()
	type shape struct {
		Model   string
		Error   *apiError
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Delta   struct{ Content string }
		}
	}
	one := func(s string) {
		var a shape
		if err := json.Unmarshal([]byte(s), &a); err != nil {
			t.Fatalf("%v in %q", err, s)
		}
		if a.Error != nil {
			r.err = a.Error
			return
		}
		if !slices.Contains(r.models, a.Model) {
			r.models = append(r.models, a.Model)
		}
		for _, c := range a.Choices {
			r.text += c.Text + c.Message.Content + c.Delta.Content
		}
		r.events++
	}
	if !strings.Contains(body, "data: ") {
		one(body)
		return r
	}
	for e := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		payload, ok := strings.CutPrefix(e, "data: ")
		switch {
		case strings.HasPrefix(e, ":"):
		case !ok:
			t.Fatalf("not an event: %q", e)
		case r.done || r.err != nil:
			t.Fatalf("an event after the last: %q", e)
		case payload == "[DONE]":
			r.done = true
		default:
			one(payload)
		}
	}
	return r
}

// logged collects a door's log.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// param is the field that the error names.
func (e *apiError) param() string {
	if e == nil || e.Param == nil {
		return ""
	}
	return *e.Param
}
