package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/api/continuation"
	"relay/llama/sim"
	"relay/scheduler"
)

// leaves has the routes to a peer be left when the function is called.
func leaves(p, from *testPeer) (leave func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	p.sched.set(func() {
		if p.sched.away == nil {
			p.sched.away = map[string]context.Context{}
		}
		p.sched.away[from.id] = ctx
	})
	return func() {
		cancel(&scheduler.Error{Why: scheduler.Draining, Retry: scheduler.RetryElsewhere, Message: "the peer is drained"})
	}
}

// eventsFrom closes reached once so many events of an answer of a peer's have come.
func eventsFrom(p, from *testPeer, events int) (reached chan struct{}) {
	reached = make(chan struct{})
	once := sync.OnceFunc(func() { close(reached) })
	inner := hopTransport(p.id, from.hopAddr)
	p.sched.set(func() {
		p.sched.hops = map[string]http.RoundTripper{from.id: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(r)
			if err == nil {
				resp.Body = &countedEvents{ReadCloser: resp.Body, left: events, reached: once}
			}
			return resp, err
		})}
	})
	return reached
}

type countedEvents struct {
	io.ReadCloser
	left    int
	reached func()
}

func (c *countedEvents) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if c.left -= bytes.Count(b[:n], []byte("data: ")); c.left <= 0 {
		c.reached()
	}
	return n, err
}

// A replica that had better be left is, where the answer can go on; the client sees nothing
// of it but the comment.
func TestAway(t *testing.T) {
	for _, c := range []struct {
		name, body string
		after      int // tokens
		said       bool
	}{
		{"before the first token", chatBody(testModel, true), 0, false},
		{"in the middle", chatBody(testModel, true), 4, true},
		{"unstreamed", chatBody(testModel, false), 4, false},
		{"several answers, before the first token", strings.Replace(chatBody(testModel, true), `"stream"`, `"n":2,"stream"`, 1), 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, serving := newMesh(t, []sim.Options{{Slots: 2, Faults: []sim.Fault{{Kind: sim.FaultStall, After: c.after}}}, {Slots: 2}}, nil)
			leave := leaves(p, serving[0])
			var got received
			if c.said {
				got = streamOf(t, p.url, c.body, c.after+1, leave) // the role, too
			} else {
				reached, came := eventsFrom(p, serving[0], c.after+1), make(chan received, 1)
				go func() { came <- send(t, "POST", p.url+"/v1/chat/completions", c.body) }()
				<-reached
				leave()
				got = <-came
			}
			if a := readAnswer(t, got.body); a.err != nil || got.status != 200 || !strings.Contains(c.body, `"n":2`) && a.text != wantText() {
				t.Errorf("%+v: %v", a, got)
			}
			if comment.MatchString(got.body) != c.said {
				t.Errorf("%v", got)
			}
			ends := p.sched.settled()
			if len(ends) != 2 || !errors.Is(ends[0], context.Canceled) || ends[1] != nil {
				t.Errorf("the routes ended with %v", ends)
			}
			await(t, serving[0].engine, func(st sim.State) bool { return st.Active == 0 })
		})
	}
}

// What cannot go on elsewhere may finish where it is.
func TestAwayIsNoEnd(t *testing.T) {
	for _, stream := range []bool{true, false} {
		p, serving := newMesh(t, []sim.Options{{Slots: 2, DecodeRate: 50}, {}}, nil)
		leave, reached := leaves(p, serving[0]), eventsFrom(p, serving[0], 14) // of 24 tokens and some more, one by one
		body := strings.Replace(chatBody(testModel, stream), `"messages"`, `"n":2,"messages"`, 1)
		came := make(chan received, 1)
		go func() { came <- send(t, "POST", p.url+"/v1/chat/completions", body) }()
		<-reached
		leave()
		got := <-came
		if a := readAnswer(t, got.body); a.err != nil || got.status != 200 || len(p.sched.settled()) != 1 {
			t.Errorf("%+v: %v", a, got)
		}
	}
}

// A request is not led about for ever by replicas that had better be left.
func TestAwayAgainAndAgain(t *testing.T) {
	slow := sim.Options{PrefillRate: 30, DecodeRate: 100}
	p, serving := newMesh(t, []sim.Options{slow, slow, slow, slow}, nil)
	for _, s := range serving {
		leaves(p, s)()
	}
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); a.text != wantText() || a.err != nil || got.header.Get(headerAttempts) != "3" {
		t.Errorf("%+v: %v", a, got)
	}
}

// A replica that could not be left when it had better been is left later, where another one
// is still there.
func TestAwayLater(t *testing.T) {
	body := strings.Replace(chatBody(testModel, true), `"max_tokens":12`, `"max_tokens":50`, 1)
	for _, there := range []bool{true, false} {
		p, serving := newMesh(t, []sim.Options{{DecodeRate: 20}, {}}, func(o *DoorOptions) { o.Attempts = 1 })
		leaves(p, serving[0])() // Before it began it may not be led about.
		if !there {
			p.sched.set(func() { p.sched.peers = serving[:1] })
		}
		got := send(t, "POST", p.url+"/v1/chat/completions", body)
		if a := readAnswer(t, got.body); !a.done || a.err != nil || got.status != 200 || comment.MatchString(got.body) != there {
			t.Errorf("another one is there: %v; %v", there, got)
		}
	}
}

// While nobody goes on with an answer, replicas without room are no end of it, and other
// failures are.
func TestBusyInTheGap(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	for _, c := range []struct {
		why   scheduler.Reason
		retry scheduler.Retry
		ends  bool
	}{{scheduler.Busy, scheduler.RetryElsewhere, false}, {scheduler.Busy, scheduler.RetryLater, false}, {scheduler.Busy, scheduler.RetryNever, true}, {scheduler.Timeout, scheduler.RetryLater, true}} {
		q, no := chatDialect(nil, []byte(chatBody(testModel, true)))
		if no != nil {
			t.Fatal(no)
		}
		h := p.door.newHeadway(&call{}, q, nil, 0)
		h.track, h.seen, h.gap = continuation.New(q.completion, nil), true, &gap{why: refuse(scheduler.PeerGone, "gone")}
		no = refuse(c.why, "no")
		no.retry = c.retry
		for range 5 {
			if end := h.failed(t.Context(), &attempt{headway: h}, no); (end != nil) != c.ends {
				t.Errorf("%s, %s: %v", c.why, c.retry, end)
			}
		}
		h.drop()
	}
}

// A client may leave at any moment, also while nobody goes on with its answer, and while the
// next replica is prepared: everything ends at once, and nothing is left.
func TestLeavingInTheGap(t *testing.T) {
	const body = `{"model":"tiny","stream":true,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true}`
	for _, c := range []struct {
		name, path string
		after      int
	}{{"nobody is there", "", 5}, {"the template", pathTemplate, 5}, {"the tokens", pathTokenize, 8}, {"the answer", pathText, 5}} {
		t.Run(c.name, func(t *testing.T) {
			engines := []sim.Options{{Bytewise: true, Faults: []sim.Fault{{Kind: sim.FaultDie, After: c.after}}}, {Bytewise: true}}
			p, serving := newMesh(t, engines, nil)
			asked := make(chan struct{}, 1)
			inner := serving[1].client
			serving[1].client = roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path != c.path {
					return inner.RoundTrip(r)
				}
				asked <- struct{}{}
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			if c.path == "" {
				p.sched.set(func() { p.sched.peers = serving[:1] })
			}
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan struct{})
			go func() {
				defer close(left)
				sendCtx(ctx, t, "POST", p.url+"/v1/chat/completions", body)
			}()
			if c.path == "" {
				p.sched.awaitAsked(2)
			} else {
				select {
				case <-asked:
				case <-time.After(10 * time.Second):
					t.Fatalf("%s is never asked", c.path)
				}
			}
			began := time.Now()
			cancel()
			<-left
			ends := p.sched.settled()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if c.path != "" && fmt.Sprint(ends[len(ends)-1]) != fmt.Sprint(context.Canceled) {
				t.Errorf("the routes ended with %v", ends)
			}
			serving[1].sched.settled()
			p.stopDoor()
			if held := p.door.held.used.Load(); held != 0 {
				t.Errorf("%d bytes are held for ever", held)
			}
		})
	}
}

// awaitAsked waits until the scheduler was asked so many times.
func (s *testScheduler) awaitAsked(n int) {
	s.t.Helper()
	late := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		asked, over := len(s.asked), s.over
		s.mu.Unlock()
		if asked >= n {
			return
		}
		select {
		case <-over: // The route before it is done then.
		case <-time.After(time.Millisecond):
		case <-late:
			s.t.Fatalf("the scheduler was asked %d times", asked)
		}
	}
}
