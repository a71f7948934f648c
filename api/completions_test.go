package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
)

func await(t *testing.T, s *sim.Server, ok func(sim.State) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Wait(ctx, ok); err != nil {
		t.Fatal(err)
	}
}

func TestAnswers(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		p := newPeer(t, "one", sim.Options{Slots: 4}, nil)
		serves := "one"
		if where == "elsewhere" {
			var serving []*testPeer
			p, serving = newMesh(t, []sim.Options{{Slots: 4}}, nil)
			serves = serving[0].id
		}
		for _, stream := range []bool{true, false} {
			for _, model := range []string{testModel, testUID} {
				t.Run(fmt.Sprintf("%s/stream=%v/%s", where, stream, model), func(t *testing.T) {
					got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(model, stream), headerRequestID, "my-id.1")
					if got.status != 200 || got.err != nil {
						t.Fatal(got)
					}
					a := readAnswer(t, got.body)
					if a.text != wantText() || a.done != stream || a.err != nil {
						t.Errorf("%+v, want %q", a, wantText())
					}
					if len(a.models) != 1 || a.models[0] != model {
						t.Errorf("the model is called %q, asked for as %q", a.models, model)
					}
					for k, want := range map[string]string{
						headerRequestID: "my-id.1", headerPeer: serves, headerAttempts: "1",
						"Server": "", "Access-Control-Allow-Origin": "",
					} {
						if v := got.header.Get(k); v != want {
							t.Errorf("%s: %q, want %q", k, v, want)
						}
					}
					if _, there := got.header["Access-Control-Allow-Origin"]; there {
						t.Error("the engine's CORS header went out")
					}
					if err := p.sched.lastEnd(); err != nil {
						t.Errorf("the route ended with %v", err)
					}
				})
			}
		}
		got := send(t, "POST", p.url+"/v1/completions", `{"model":"tiny","prompt":"a","max_tokens":4,"stream":true}`)
		if a := readAnswer(t, got.body); !a.done || a.text == "" {
			t.Error(got)
		}
	}
}

// recorder is an engine that keeps what it is sent.
type recorder struct {
	mu     sync.Mutex
	header http.Header
	body   string
	path   string
	answer string
}

func (e *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != r.ContentLength {
		return nil, fmt.Errorf("%d bytes, %d said", len(b), r.ContentLength)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.header, e.body, e.path = r.Header.Clone(), string(b), r.URL.Path
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}, "X-Secret-Of-Engine": {"1"}},
		Body: io.NopCloser(strings.NewReader("data: " + e.answer + "\n\ndata: [DONE]\n\n")), ContentLength: -1,
	}, nil
}

// Values go on byte for byte, but for the model's name and what relay wants to know
// beside the answer; of the headers nothing does.
func TestValuesAreUntouched(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		e := &recorder{answer: `{"choices":[{"text":"a","index":0,"big":1e400,"finish_reason":null}], "model" : "x" ,"later":[1.50],"timings":{"prompt_n":1}}`}
		p := newPeer(t, "one", sim.Options{}, nil)
		serving := p
		if where == "elsewhere" {
			var all []*testPeer
			p, all = newMesh(t, []sim.Options{{}}, nil)
			serving = all[0]
		}
		serving.client = e
		got := send(t, "POST", p.url+"/v1/completions?x=1",
			"{ \"prompt\":[1,\t2, 3], \"model\" :\t\"ti\\u006ey\" ,\"temperature\":1.50e0,\"stream\": true,\"stop\":[\"\\u00e9\\/\"],\"user\":\"me\",\"seed\":null,\"logit_bias\":{\"5\":1e1}}\r\n",
			"X-Conversation-Id", "42", "X-Relay-Model", "other", "X-Relay-Key", "other", "Cookie", "a=b", "Origin", "", "X-Api-Key", "s")
		want := `{"model":"` + testUID + `","prompt":[1,` + "\t" + `2, 3],"temperature":1.50e0,"stop":["\u00e9\/"],"logit_bias":{"5":1e1}` +
			`,"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true,"n_probs":1,"post_sampling_probs":true}`
		if e.body != want {
			t.Errorf("%s: the engine got\n%q, want\n%q", where, e.body, want)
		}
		const answer = `data: {"choices":[{"text":"a","index":0,"big":1e400,"finish_reason":null}],"model" : "tiny","later":[1.50]}` + "\n\ndata: [DONE]\n\n"
		if got.status != 200 || got.body != answer {
			t.Fatalf("%s: %v", where, got)
		}
		if e.path != "/v1/completions" {
			t.Errorf("path %q", e.path)
		}
		for k := range e.header {
			switch k {
			case "Content-Type", "User-Agent", "Accept-Encoding", headerHop, headerRequestID:
			default:
				t.Errorf("%s: the engine got %s: %q", where, k, e.header[k])
			}
		}
		if got.header.Get("X-Secret-Of-Engine") != "" {
			t.Error("an engine's header went out")
		}
		if strings.Contains(fmt.Sprint(e.header), testKey) {
			t.Error("the key went on")
		}
	}
}

func TestHopCarriesWhoAsks(t *testing.T) {
	seen := make(chan http.Header, 30)
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
		o.Scheduler = routeTo(scheduler.Route{
			Model: scheduler.ServedModel{UID: testUID, Name: testModel}, Peer: "other", Done: func(error) {},
			Client: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				seen <- r.Header.Clone()
				return nil, errors.New("enough")
			}),
		})
	})
	got := send(t, "POST", p.url+"/v1/completions", `{"model":"tiny","prompt":"x"}`, headerRequestID, "abc", "X-Relay-Attempts", "9")
	if got.status != 503 || got.header.Get(headerAttempts) != "21" { // none of them reached an engine
		t.Fatal(got)
	}
	h := <-seen
	for k, want := range map[string]string{headerHop: "1", headerRequestID: "abc", headerKey: "testkey0", headerModel: testUID, "Authorization": ""} {
		if h.Get(k) != want {
			t.Errorf("%s: %q, want %q", k, h.Get(k), want)
		}
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// routeTo is a scheduler with one answer.
type routeTo scheduler.Route

func (r routeTo) Models() []scheduler.ServedModel { return []scheduler.ServedModel{r.Model} }
func (r routeTo) Resolve(name string) (scheduler.ServedModel, bool) {
	return resolveOf(r.Models(), name)
}
func (r routeTo) Route(context.Context, scheduler.Want) (scheduler.Route, error) {
	return scheduler.Route(r), nil
}
func (r routeTo) Serve(context.Context, scheduler.Want) (scheduler.Lease, error) {
	return scheduler.Lease{}, errors.New("not here")
}

// A replica that fails before the first event is never seen by the client.
func TestTriedElsewhereUnseen(t *testing.T) {
	for _, fault := range []string{"refuse", "drop", "error", "stall", "die", "end", "wrong"} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream=%v", fault, stream), func(t *testing.T) {
				f, err := sim.ParseFault(fault)
				if err != nil {
					t.Fatal(err)
				}
				engines := []sim.Options{{Faults: []sim.Fault{f}}, {Faults: []sim.Fault{f}}, {}}
				if fault == "drop" || fault == "die" { // An engine's death is not risked a third time.
					engines = engines[1:]
				}
				entrance, serving := newMesh(t, engines, func(o *DoorOptions) {
					o.Deadlines.FirstToken = 250 * time.Millisecond
				})
				got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
				a := readAnswer(t, got.body)
				if got.status != 200 || a.text != wantText() || a.done != stream || a.err != nil {
					t.Fatalf("%+v: %v", a, got)
				}
				last := len(serving) - 1
				if got.header.Get(headerPeer) != serving[last].id || got.header.Get(headerAttempts) != fmt.Sprint(len(serving)) {
					t.Errorf("%v", got.header)
				}
				ends := entrance.sched.settled()
				asked := entrance.sched.asked
				if len(asked) != len(serving) || len(asked[0]) != 0 || fmt.Sprint(asked[last]) != fmt.Sprint([]string{"peer0", "peer1"}[:last]) {
					t.Errorf("the scheduler was told %v", asked)
				}
				for i, end := range ends[:last] {
					if end == nil || scheduler.ReasonOf(end) == scheduler.Internal {
						t.Errorf("attempt %d ended with %v", i+1, end)
					}
				}
			})
		}
	}
}

func TestGivesUpAfterThree(t *testing.T) {
	fails := sim.Options{Faults: []sim.Fault{{Kind: sim.FaultError}}}
	entrance, _ := newMesh(t, []sim.Options{fails, fails, fails, {}}, nil)
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	a := readAnswer(t, got.body)
	if got.status != 502 || a.err == nil || a.err.Code != "engine_failed" || got.header.Get(headerAttempts) != "3" {
		t.Errorf("%v", got)
	}
	if entrance.sched.peers[3].engine.State().Requests != 0 {
		t.Error("a fourth attempt")
	}
}

// Nobody listens any more at a peer that is gone.
func TestPeerGoneBeforeTheFirstEvent(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{}, {}}, nil)
	serving[0].stopHop()
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || got.header.Get(headerPeer) != "peer1" {
		t.Error(got)
	}
	if why := scheduler.ReasonOf(entrance.sched.settled()[0]); why != scheduler.PeerGone {
		t.Errorf("the first attempt ended with %s", why)
	}
}

// Requests that wait for their first token when the replica is lost get their
// answer from the next one, also when that comes up only later.
// cutAfter ends answers after some reads, with what the scheduler ends those with
// that a peer may not give any more.
type cutAfter struct {
	http.RoundTripper
	reads int
}

func (c cutAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &cutReads{resp.Body, c.reads}
	}
	return resp, err
}

type cutReads struct {
	io.ReadCloser
	left int
}

func (c *cutReads) Read(b []byte) (int, error) {
	if c.left--; c.left < 0 {
		return 0, &scheduler.Error{Why: scheduler.PeerGone, Retry: scheduler.RetryElsewhere, Message: "the peer that served may not serve any more"}
	}
	return c.ReadCloser.Read(b[:min(len(b), 300)])
}

// A request that is cut, since its peer may not serve any more, is tried elsewhere
// unseen before its first event; after it, another one goes on.
func TestCutRequests(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{}, {}}, nil)
	entrance.sched.hops = map[string]http.RoundTripper{}
	cut := func(reads int) {
		entrance.sched.set(func() {
			entrance.sched.hops[serving[0].id] = cutAfter{hopTransport(entrance.id, serving[0].hopAddr), reads}
		})
	}
	cut(0)
	for _, stream := range []bool{true, false} {
		got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
		if a := readAnswer(t, got.body); a.text != wantText() || a.err != nil || got.header.Get(headerAttempts) != "2" {
			t.Errorf("stream %v: %v", stream, got)
		}
	}
	cut(8)
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	a := readAnswer(t, got.body)
	if a.text != wantText() || !a.done || a.err != nil || got.header.Get(headerAttempts) != "1" || !comment.MatchString(got.body) {
		t.Errorf("%v", got)
	}
	if ends := entrance.sched.settled(); scheduler.ReasonOf(ends[len(ends)-2]) != scheduler.PeerGone {
		t.Errorf("the cut route ended with %v", ends)
	}
	serving[0].sched.set(func() {
		serving[0].sched.serveErr = &scheduler.Error{Why: scheduler.NotAllowed, Retry: scheduler.RetryElsewhere, Message: "no"}
	})
	entrance.sched.set(func() { entrance.sched.hops = nil })
	got = send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); a.text != wantText() || got.header.Get(headerAttempts) != "2" {
		t.Errorf("refused by the peer itself: %v", got)
	}
}

func TestWaitingRequestsOutliveAReplica(t *testing.T) {
	const waiting = 20
	entrance, serving := newMesh(t, []sim.Options{{Slots: 2, Faults: []sim.Fault{{Kind: sim.FaultStall}}}}, nil)
	replies := make(chan received, waiting)
	for i := range waiting {
		go func() {
			replies <- send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, i%2 == 0))
		}()
	}
	await(t, serving[0].engine, func(st sim.State) bool { return st.Active == 2 && st.Waiting == waiting-2 })
	serving[0].stopEngine()
	next := newPeer(t, "next", sim.Options{Slots: 4}, nil)
	entrance.sched.add(next)
	for range waiting {
		got := <-replies
		if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || got.header.Get(headerPeer) != "next" {
			t.Error(got)
		}
	}
}

// After the first event a broken answer that nobody can go on with ends with an error event
// that says why.
func TestBrokenMidStream(t *testing.T) {
	stop := func(p *testPeer) { p.stopEngine() }
	for _, c := range []struct {
		name  string
		fault sim.Fault
		here  bool
		kill  func(*testPeer)
		end   scheduler.Reason // of the route
		says  string
	}{
		{"engine dies elsewhere", sim.Fault{Kind: sim.FaultDie, After: 4}, false, nil, scheduler.EngineFailed, "ended in the middle of its work"},
		{"engine dies here", sim.Fault{Kind: sim.FaultDie, After: 4}, true, nil, scheduler.EngineFailed, "ended in the middle of its work"},
		{"engine ends early", sim.Fault{Kind: sim.FaultEnd, After: 4}, false, nil, scheduler.EngineFailed, "ended an answer before its end"},
		{"engine ends early here", sim.Fault{Kind: sim.FaultEnd, After: 4}, true, nil, scheduler.EngineFailed, "ended in the middle of its work"},
		{"wrong bytes", sim.Fault{Kind: sim.FaultWrong, After: 4}, false, nil, scheduler.EngineFailed, "sent bytes that are no event"},
		{"stalls", sim.Fault{Kind: sim.FaultStall, After: 4}, false, nil, scheduler.Timeout, "the next token came not within"},
		{"engine is killed", sim.Fault{Kind: sim.FaultStall, After: 4}, false, stop, scheduler.EngineFailed, "ended an answer before its end"},
		{"peer is killed", sim.Fault{Kind: sim.FaultStall, After: 4}, false, func(p *testPeer) { p.stopHop() }, scheduler.PeerGone, "went away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := func(o *DoorOptions) {
				o.Deadlines.Drain, o.Deadlines.BetweenTokens = time.Millisecond, 400*time.Millisecond
			}
			engine := sim.Options{Faults: []sim.Fault{c.fault}}
			var entrance, serving *testPeer
			if c.here {
				entrance = newPeer(t, "one", engine, change)
				serving = entrance
			} else {
				var all []*testPeer
				entrance, all = newMesh(t, []sim.Options{engine}, change)
				serving = all[0]
			}
			got := stream(t, entrance.url, 5, func() { // the role and four tokens
				if c.kill != nil {
					c.kill(serving)
				}
			})
			a := readAnswer(t, got.body)
			if got.status != 200 || got.err != nil || a.done || a.err == nil {
				t.Fatalf("%+v: %v", a, got)
			}
			if a.err.Code != "cannot_continue" || a.err.Type != "server_error" || !strings.Contains(a.err.Message, c.says) || !strings.Contains(a.err.Message, "it cannot be continued: ") {
				t.Errorf("%+v", *a.err)
			}
			if a.text == "" || !strings.HasPrefix(wantText(), a.text) || a.events != 5 { // role and four tokens
				t.Errorf("%d events: %q", a.events, a.text)
			}
			if got.header.Get(headerAttempts) != "1" {
				t.Errorf("%v", got.header)
			}
			if end := entrance.sched.settled()[0]; scheduler.ReasonOf(end) != c.end {
				t.Errorf("the route ended with %v", end)
			}
		})
	}
}

// stream asks for a streamed chat, calls between after so many events, and reads
// the rest.
func stream(t *testing.T, url string, events int, between func()) received {
	t.Helper()
	return streamOf(t, url, chatBody(testModel, true), events, between)
}

// streamOf is stream for a request of one's own.
func streamOf(t *testing.T, url, body string, events int, between func()) received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testKey)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	reader := newEventReader(resp.Body, maxEvent)
	for n := 0; ; n++ {
		if n == events {
			between()
		}
		ev, err := reader.next()
		if err == io.EOF {
			return received{resp.StatusCode, resp.Header, got.String(), nil, resp.Trailer}
		}
		if err != nil {
			return received{resp.StatusCode, resp.Header, got.String(), err, nil}
		}
		got.Write(ev.raw)
	}
}

// The engine's work ends within 100 ms of the client's leaving, at every stage.
func TestClientLeaves(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		for _, c := range []struct {
			name   string
			fault  *sim.Fault
			stream bool
			read   int // events before it leaves
		}{
			{"before the first token", &sim.Fault{Kind: sim.FaultStall}, true, 0},
			{"in the middle", &sim.Fault{Kind: sim.FaultStall, After: 3}, true, 3},
			{"unstreamed", &sim.Fault{Kind: sim.FaultStall, After: 3}, false, 0},
		} {
			t.Run(where+"/"+c.name, func(t *testing.T) {
				engine := sim.Options{Faults: []sim.Fault{*c.fault}}
				entrance := newPeer(t, "one", engine, nil)
				serving := entrance
				if where == "elsewhere" {
					var all []*testPeer
					entrance, all = newMesh(t, []sim.Options{engine}, nil)
					serving = all[0]
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, "POST", entrance.url+"/v1/chat/completions", strings.NewReader(chatBody(testModel, c.stream)))
				r.Header.Set("Authorization", "Bearer "+testKey)
				left := make(chan struct{})
				go func() {
					defer close(left)
					resp, err := http.DefaultTransport.RoundTrip(r)
					if err != nil {
						return
					}
					defer resp.Body.Close()
					events := newEventReader(resp.Body, maxEvent)
					for range c.read {
						if _, err := events.next(); err != nil {
							t.Error(err)
						}
					}
					cancel()
				}()
				if c.read == 0 { // Else the client leaves by itself, as soon as it has read.
					await(t, serving.engine, func(st sim.State) bool { return st.Active == 1 })
					cancel()
				}
				<-left
				began := time.Now()
				await(t, serving.engine, func(st sim.State) bool { return st.Active == 0 && st.Cancelled == 1 })
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("the engine's request was closed after %v", took)
				}
				entrance.stopDoor()
				if err := entrance.sched.lastEnd(); !errors.Is(err, context.Canceled) {
					t.Errorf("the route ended with %v", err)
				}
			})
		}
	}
}

// Events arrive one by one, as the engine makes them.
func TestFlushedEventByEvent(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		engine := sim.Options{DecodeRate: 50}
		p := newPeer(t, "one", engine, nil)
		if where == "elsewhere" {
			p, _ = newMesh(t, []sim.Options{engine}, nil)
		}
		r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url+"/v1/chat/completions", strings.NewReader(chatBody(testModel, true)))
		r.Header.Set("Authorization", "Bearer "+testKey)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var times []time.Time
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"delta":{"content":`) {
				times = append(times, time.Now())
			}
		}
		resp.Body.Close()
		if len(times) != 12 {
			t.Fatalf("%d tokens", len(times))
		}
		// 11 gaps of 20 ms; if they came in one piece there would be none.
		if spread := times[11].Sub(times[0]); spread < 150*time.Millisecond {
			t.Errorf("%s: all tokens came within %v", where, spread)
		}
	}
}

func TestHopRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
		tries  string
		after  string
	}{
		{"elsewhere, and there it is", &scheduler.Error{Why: scheduler.Busy, Message: "full", Retry: scheduler.RetryElsewhere}, 200, "", "2", ""},
		{"elsewhere by the table", scheduler.Errorf(scheduler.Draining, "going"), 200, "", "2", ""},
		{"later", &scheduler.Error{Why: scheduler.Busy, Message: "full for now", Retry: scheduler.RetryLater, RetryAfter: 1500 * time.Millisecond}, 503, "busy", "1", "2"},
		{"never", &scheduler.Error{Why: scheduler.NotAllowed, Message: "not for you", Retry: scheduler.RetryNever}, 403, "not_allowed", "1", ""},
		{"a fault of its own", errors.New("secret detail"), 500, "internal", "1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			entrance, serving := newMesh(t, []sim.Options{{}, {}}, nil)
			serving[0].sched.serveErr = c.err
			got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
			a := readAnswer(t, got.body)
			if got.status != c.status || got.header.Get(headerAttempts) != c.tries || got.header.Get("Retry-After") != c.after {
				t.Fatal(got)
			}
			if c.code != "" && (a.err == nil || a.err.Code != c.code) {
				t.Errorf("%v", got)
			}
			if c.code == "" && a.text != wantText() {
				t.Errorf("%v", got)
			}
			if strings.Contains(got.body, "secret detail") {
				t.Error("the log's text went out")
			}
			if got.header.Get(headerRefusal) != "" {
				t.Error("a header between doors went out")
			}
		})
	}
}

// What the hop does not take, and in which words.
func TestHopGate(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	ask := func(from, method, path string, header http.Header) (int, hopRefusal, string) {
		r, _ := http.NewRequestWithContext(t.Context(), method, "http://relay"+path, strings.NewReader(chatBody(testUID, false)))
		r.Header = header
		resp, err := hopTransport(from, p.hopAddr).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var no hopRefusal
		b, _ := io.ReadAll(resp.Body)
		json.Unmarshal(b, &no)
		return resp.StatusCode, no, resp.Header.Get(headerRefusal)
	}
	good := func() http.Header { return http.Header{headerHop: {"1"}, headerModel: {testUID}} }
	for _, c := range []struct {
		name, from, method, path string
		change                   func(http.Header)
		status                   int
		reason                   string
	}{
		{"fine", "other", "POST", "/v1/chat/completions", nil, 200, ""},
		{"stranger", "", "POST", "/v1/chat/completions", nil, 403, "not_member"},
		{"no mark", "other", "POST", "/v1/chat/completions", func(h http.Header) { h.Del(headerHop) }, 508, "hop_refused"},
		{"second hop", "other", "POST", "/v1/chat/completions", func(h http.Header) { h.Set(headerHop, "2") }, 508, "hop_refused"},
		{"two marks", "other", "POST", "/v1/chat/completions", func(h http.Header) { h.Add(headerHop, "1") }, 508, "hop_refused"},
		{"no model", "other", "POST", "/v1/chat/completions", func(h http.Header) { h.Del(headerModel) }, 400, "invalid_request"},
		{"list", "other", "GET", "/v1/models", nil, 404, "route_not_found"},
		{"engine's own", "other", "POST", "/completion", nil, 404, "route_not_found"},
		{"get", "other", "GET", "/v1/completions", nil, 405, "method_not_allowed"},
	} {
		h := good()
		if c.change != nil {
			c.change(h)
		}
		status, no, header := ask(c.from, c.method, c.path, h)
		if status != c.status || no.Reason != c.reason || header != c.reason {
			t.Errorf("%s: %d %+v %q", c.name, status, no, header)
		}
	}
	// A forwarded request that comes back to an entrance goes no further.
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, false), headerHop, "1")
	if a := readAnswer(t, got.body); got.status != 508 || a.err == nil || a.err.Code != "hop_refused" {
		t.Error(got)
	}
	// An engine that is itself a relay door makes no loop either.
	e := newPeer(t, "two", sim.Options{}, func(o *DoorOptions) { o.Deadlines.Retry = 10 * time.Millisecond })
	toItself := engineTransport(strings.TrimPrefix(e.url, "http://"))
	e.client = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Host = "localhost"
		return toItself.RoundTrip(r)
	})
	got = send(t, "POST", e.url+"/v1/chat/completions", chatBody(testModel, false))
	if a := readAnswer(t, got.body); got.status != 502 || a.err == nil || !strings.Contains(a.err.Message, "already forwarded") {
		t.Error(got)
	}
}

func TestSchedulerRefusals(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	for _, c := range []struct {
		err    error
		status int
		code   string
		after  string
	}{
		{scheduler.Errorf(scheduler.NoCapacity, "need 18 GB"), 503, "no_capacity", "30"},
		{&scheduler.Error{Why: scheduler.ModelLoading, Message: "loading: 40 %", RetryAfter: 7 * time.Second}, 503, "model_loading", "7"},
		{&scheduler.Error{Why: scheduler.ModelLoading, Message: "is being fetched (41 %)", RetryAfter: 3 * time.Second, Err: context.DeadlineExceeded}, 503, "model_loading", "3"},
		{scheduler.Errorf(scheduler.Parked, "its engine failed five times on attic"), 503, "parked", "60"},
		{scheduler.Errorf(scheduler.NotYet, "shard groups are not there yet"), 501, "not_yet", ""},
		{scheduler.Errorf(scheduler.NoHolder, "nobody has it"), 503, "no_holder", "15"},
		{fmt.Errorf("wrapped: %w", scheduler.Errorf(scheduler.NoEngine, "no llama-server")), 503, "no_engine", "30"},
		{errors.New("what only the log may say"), 500, "internal", ""},
		{scheduler.Errorf("no such reason", "what only the log may say"), 500, "internal", ""},
		{context.DeadlineExceeded, 503, "model_loading", "5"},
	} {
		p.sched.set(func() { p.sched.routeErr = c.err })
		for _, stream := range []bool{true, false} {
			got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, stream))
			a := readAnswer(t, got.body)
			if got.status != c.status || a.err == nil || a.err.Code != c.code || got.header.Get("Retry-After") != c.after {
				t.Errorf("%v: %v", c.err, got)
			}
			if known := (*scheduler.Error)(nil); errors.As(c.err, &known) && c.status != 500 && a.err != nil && a.err.Message != known.Message {
				t.Errorf("%v: it is told as %q", c.err, a.err.Message)
			}
			if strings.Contains(got.body, "only the log") || c.status == 500 && !strings.Contains(got.body, got.header.Get(headerRequestID)) {
				t.Errorf("%v: %v", c.err, got)
			}
		}
	}
}

// What the engine says of a request that is at fault reaches the client in
// OpenAI's shape, at once, and does not count against the replica.
func TestEngineTurnsDown(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{Context: 32}, {}}, nil)
	long := strings.Repeat("x", 500)
	for _, c := range []struct {
		body, code, says string
	}{
		{`{"model":"tiny","messages":[{"role":"user","content":"` + long + `"}]}`, "context_length_exceeded", "maximum context length is 32 tokens. However, your messages resulted in "},
		{`{"model":"tiny","stream":true,"messages":[{"role":"user","content":"` + long + `"}]}`, "context_length_exceeded", "maximum context length is 32 tokens"},
		{`{"model":"tiny","messages":[{"role":"user"}]}`, "invalid_request", "must contain 'content'"},
		{`{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`, "invalid_request", "image input is not supported"},
		{`{"model":"tiny","messages":[{"role":"user","content":"a"}],"ignore_eos":"x"}`, "invalid_request", "Field 'ignore_eos': type must be boolean"},
	} {
		got := send(t, "POST", entrance.url+"/v1/chat/completions", c.body)
		a := readAnswer(t, got.body)
		if got.status != 400 || a.err == nil || a.err.Code != c.code || a.err.Type != "invalid_request_error" || !strings.Contains(a.err.Message, c.says) {
			t.Errorf("%s: %v", c.says, got)
		}
		if got.header.Get(headerAttempts) != "1" {
			t.Errorf("%s: %v", c.says, got.header)
		}
		if err := entrance.sched.lastEnd(); err != nil {
			t.Errorf("the route ended with %v", err)
		}
	}
	if serving[1].engine.State().Requests != 0 {
		t.Error("a request that is at fault was tried elsewhere")
	}
}

// What becomes of the engine's own errors, as a status or as an event.
func TestEngineErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   int
		reason scheduler.Reason
		retry  scheduler.Retry
	}{
		{400, `{"error":{"code":400,"message":"m","type":"invalid_request_error"}}`, 400, scheduler.InvalidRequest, scheduler.RetryNever},
		{422, `{"error":"in a string"}`, 422, scheduler.InvalidRequest, scheduler.RetryNever},
		{400, `{"error":{"code":400,"message":"m","type":"exceed_context_size_error","n_ctx":5}}`, 400, scheduler.ContextLength, scheduler.RetryNever},
		{500, `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`, 400, scheduler.ContextLength, scheduler.RetryNever},
		{500, `{"error":{"code":500,"message":"input (21 tokens) is too large to process. increase the physical batch size (current batch size: 20)","type":"server_error"}}`, 400, scheduler.ContextLength, scheduler.RetryNever},
		{500, `{"error":{"code":500,"message":"[json.exception.parse_error.101] x","type":"server_error"}}`, 400, scheduler.InvalidRequest, scheduler.RetryNever},
		{500, `{"error":{"code":500,"message":"Failed to parse tools: x","type":"server_error"}}`, 400, scheduler.InvalidRequest, scheduler.RetryNever},
		{501, `{"error":{"code":501,"message":"m","type":"not_supported_error"}}`, 400, scheduler.InvalidRequest, scheduler.RetryNever},
		{503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, 503, scheduler.ModelLoading, scheduler.RetryElsewhere},
		{429, `{"error":{"message":"m"}}`, 503, scheduler.Busy, scheduler.RetryElsewhere},
		{500, `{"error":{"code":500,"message":"Compute error.","type":"server_error"}}`, 502, scheduler.EngineFailed, scheduler.RetryElsewhere},
		{502, `<html>Bad Gateway</html>`, 502, scheduler.EngineFailed, scheduler.RetryElsewhere},
		{500, ``, 502, scheduler.EngineFailed, scheduler.RetryElsewhere},
		{404, `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`, 502, scheduler.EngineFailed, scheduler.RetryElsewhere},
		{401, `{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}`, 502, scheduler.EngineFailed, scheduler.RetryElsewhere},
		{302, ``, 502, scheduler.EngineFailed, scheduler.RetryElsewhere},
		{400, `null`, 400, scheduler.InvalidRequest, scheduler.RetryNever},
		{400, `[]`, 400, scheduler.InvalidRequest, scheduler.RetryNever},
	} {
		a := &attempt{route: scheduler.Route{Local: true}, call: &call{}, request: &request{}}
		no := a.engineError(&http.Response{StatusCode: c.status, Body: io.NopCloser(strings.NewReader(c.body))})
		if v := no.verdict(); no.reason != c.reason || v.status != c.want || v.retry != c.retry || no.message == "" {
			t.Errorf("%d %s: %s %d %s %q", c.status, c.body, no.reason, v.status, v.retry, no.message)
		}
		if a.turnedDown != (c.retry == scheduler.RetryNever) {
			t.Errorf("%d %s: turned down %v", c.status, c.body, a.turnedDown)
		}
	}
	// As the first event of a stream whose headers were already out.
	for message, want := range map[string]int{"Compute error.": 502, "Context size has been exceeded.": 400} {
		p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.Deadlines.Retry = 10 * time.Millisecond })
		p.client = roundTripFunc(func(*http.Request) (*http.Response, error) {
			body := ":\n\ndata: {\"error\":{\"code\":500,\"message\":\"" + message + "\",\"type\":\"server_error\"}}\n\n"
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
		})
		got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
		if a := readAnswer(t, got.body); got.status != want || a.err == nil || !strings.Contains(a.err.Message, map[int]string{502: message, 400: "maximum context length"}[want]) {
			t.Errorf("%s: %v", message, got)
		}
	}
}

// TestParamsOfEngineErrors: what the engine itself finds wrong with a request, in words that
// it uses, is told with the client's own name for the field, and without the names of its
// libraries.
func TestParamsOfEngineErrors(t *testing.T) {
	const (
		chatRest = `"messages":[{"role":"user","content":"a"}]`
		parser   = "Unable to generate parser for this template. Automatic parser generation failed: "
		schema   = "JSON schema conversion failed:\nUnrecognized schema: {}"
		jinja    = "\n------------\nWhile executing CallExpression at line 1\nError: Jinja Exception: roles must alternate"
		grammar  = "Failed to initialize samplers: failed to parse grammar"
	)
	for _, c := range []struct {
		speak              dialect
		rest, message      string
		param, says, avoid string
	}{
		{chatDialect, chatRest, "Expected 'content' to be a string or an array", "messages", "string or an array", ""},
		{chatDialect, chatRest, "Assistant message must contain either 'content' or 'tool_calls'!", "messages", "tool_calls", ""},
		{chatDialect, chatRest, parser + jinja, "messages", "the model's chat template refuses this: roles must alternate", "parser"},
		{chatDialect, chatRest + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nosuch"}}}`, parser + schema, "response_format", "JSON schema conversion", "parser"},
		{chatDialect, chatRest + `,"json_schema":{"type":"nosuch"}`, parser + schema, "json_schema", "JSON schema conversion", "parser"},
		{chatDialect, chatRest + `,"grammar":"root ::= ("`, grammar, "grammar", "grammar", ""},
		{chatDialect, chatRest + `,"grammar":"x","json_schema":{}`, "Cannot use both json_schema and grammar", "grammar", "both", ""},
		{chatDialect, chatRest + `,"tools":[{"type":"function","function":{"name":"f"}}]`, "Failed to parse tools: x", "tools", "tools", ""},
		{chatDialect, chatRest + `,"chat_template_kwargs":{}`, `invalid type for "enable_thinking" (expected boolean, got string)`, "chat_template_kwargs", "boolean", ""},
		{chatDialect, chatRest, "Field 'top_k': type must be number", "top_k", "number", ""},
		{chatDialect, chatRest, "something else", "", "something else", ""},
		{textDialect, `"prompt":[5]`, "Prompt contains invalid tokens", "prompt", "tokens", ""},
		{textDialect, `"prompt":"a","json_schema":{"type":"nosuch"}`, "Field 'json_schema': \"json_schema\": " + schema, "json_schema", "conversion", ""},
		{embeddingsDialect, `"input":[5]`, "Prompt contains invalid tokens", "input", "tokens", ""},
		{responsesDialect, `"input":"a"`, parser + jinja, "input", "alternate", "parser"},
		{responsesDialect, `"input":"a","text":{"format":{"type":"json_schema","name":"x","schema":{"type":"nosuch"}}}`, parser + schema, "text", "conversion", ""},
	} {
		q, no := c.speak(nil, []byte(`{"model":"m",`+c.rest+`}`))
		if no != nil {
			t.Errorf("%s: %s", c.rest, no.message)
			continue
		}
		a := &attempt{call: &call{}, request: q}
		no = a.engineRefusal(http.StatusBadRequest, encodeJSON(map[string]string{"message": c.message}))
		if no.param != c.param || !strings.Contains(no.message, c.says) || c.avoid != "" && strings.Contains(no.message, c.avoid) || !a.turnedDown {
			t.Errorf("%s: %q, %q; want %q, %q", c.message, no.param, no.message, c.param, c.says)
		}
	}
}

// TestPromptsAreBounded: what one request may have computed is, as prompts and as answers
// to each.
func TestPromptsAreBounded(t *testing.T) {
	for _, c := range []struct {
		prompts, n int
		taken      bool
	}{{256, 1, true}, {257, 1, false}, {64, 4, true}, {64, 5, false}, {2, 128, true}, {3, 128, false}, {90000, 1, false}} {
		_, no := textDialect(nil, fmt.Appendf(nil, `{"model":"m","n":%d,"prompt":["a"%s]}`, c.n, strings.Repeat(`,"a"`, c.prompts-1)))
		if (no == nil) != c.taken || no != nil && (no.param != "prompt" || no.verdict().status != 400) {
			t.Errorf("%d prompts, n %d: %v", c.prompts, c.n, no)
		}
	}
}

// When a living engine fails at a request and there is no other to ask, its
// words are the answer, soon.
func TestEngineFailsAndThereIsNoOther(t *testing.T) {
	entrance, _ := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultError}}}}, func(o *DoorOptions) {
		o.Deadlines.Retry = 50 * time.Millisecond
	})
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	a := readAnswer(t, got.body)
	if got.status != 502 || a.err == nil || a.err.Code != "engine_failed" || !strings.Contains(a.err.Message, "Compute error.") {
		t.Error(got)
	}
	entrance.sched.settled()
	if n := len(entrance.sched.asked); n != 2 {
		t.Errorf("%d questions to the scheduler", n)
	}
}

// The same where the one replica there is has no slot left.
func TestBusyAndThereIsNoOther(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{}}, func(o *DoorOptions) { o.Deadlines.Retry = 50 * time.Millisecond })
	serving[0].sched.serveErr = scheduler.Errorf(scheduler.Busy, "all 4 slots are taken and 16 requests wait")
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	a := readAnswer(t, got.body)
	if got.status != 503 || got.header.Get("Retry-After") == "" || a.err == nil || a.err.Code != "busy" || !strings.Contains(a.err.Message, "16 requests wait") {
		t.Error(got)
	}
}

func TestKeepAliveComments(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{}}, func(o *DoorOptions) { o.Deadlines.KeepAlive = 20 * time.Millisecond })
	entrance.sched.set(func() { entrance.sched.peers = nil })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	open := func() (*http.Response, *bufio.Reader) {
		r, _ := http.NewRequestWithContext(ctx, "POST", entrance.url+"/v1/chat/completions", strings.NewReader(chatBody(testModel, true)))
		r.Header.Set("Authorization", "Bearer "+testKey)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		for range 3 {
			for _, want := range []string{": waiting\n", "\n"} {
				if line, err := lines.ReadString('\n'); line != want || err != nil {
					t.Fatalf("%q %v", line, err)
				}
			}
		}
		return resp, lines
	}
	resp, lines := open()
	if resp.StatusCode != 200 || resp.Header.Get(headerPeer) != "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	entrance.sched.add(serving[0])
	rest, err := io.ReadAll(lines)
	resp.Body.Close()
	if a := readAnswer(t, string(rest)); a.text != wantText() || !a.done || err != nil {
		t.Errorf("%+v %v", a, err)
	}

	// A failure after the first comment is an error event.
	entrance.sched.set(func() { entrance.sched.peers = nil })
	resp, lines = open()
	defer resp.Body.Close()
	serving[0].sched.set(func() { serving[0].sched.serveErr = scheduler.Errorf(scheduler.NotAllowed, "no") })
	entrance.sched.add(serving[0])
	rest, err = io.ReadAll(lines)
	if a := readAnswer(t, string(rest)); a.err == nil || a.err.Code != "not_allowed" || a.done || err != nil {
		t.Errorf("%+v %v", a, err)
	}
}

func TestPreferWait(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.Deadlines.Route = time.Hour })
	p.sched.peers = nil
	began := time.Now()
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true), "Prefer", "respond-async, wait=0")
	if a := readAnswer(t, got.body); got.status != 503 || a.err == nil || a.err.Code != "model_loading" || got.header.Get("Retry-After") == "" {
		t.Error(got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	for prefer, want := range map[string]time.Duration{"wait=5": 5 * time.Second, "wait=-1": time.Hour, "wait=x": time.Hour, "wait=99999": time.Hour, "": time.Hour} {
		r, _ := http.NewRequest("POST", "/", nil)
		r.Header.Set("Prefer", prefer)
		if got := p.door.patience(r); got != want {
			t.Errorf("%q: %v, want %v", prefer, got, want)
		}
	}
}

// An answer that is too large to be held is refused, and a cut one is no answer.
func TestLargeAnswers(t *testing.T) {
	event := `data: {"choices":[{"text":"` + strings.Repeat("y", 20<<10) + `","index":0,"finish_reason":null}]}` + "\n\n"
	for _, cut := range []bool{false, true} {
		p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
			o.MaxHeld, o.Attempts, o.Deadlines.BetweenTokens = 64<<10, 1, 50*time.Millisecond
		})
		p.client = roundTripFunc(func(r *http.Request) (*http.Response, error) {
			var body io.Reader = strings.NewReader(strings.Repeat(event, 10) + "data: [DONE]\n\n")
			if cut {
				body = io.MultiReader(io.LimitReader(body, 30<<10), brokenReader{})
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), ContentLength: -1}, nil
		})
		got := send(t, "POST", p.url+"/v1/completions", `{"model":"tiny","prompt":"x"}`)
		a := readAnswer(t, got.body)
		if want := map[bool]string{false: "busy", true: "engine_failed"}[cut]; a.err == nil || a.err.Code != want {
			t.Errorf("cut %v: %v", cut, got)
		}
		p.stopDoor()
		if held := p.door.held.used.Load(); held != 0 {
			t.Errorf("%d bytes are held for ever", held)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Many clients over two peers at once; everyone gets the whole answer, and
// nothing is left over.
func TestManyAtOnce(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{Slots: 3, DecodeRate: 2000}, {Slots: 3}}, nil)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, i%3 != 0))
			if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() {
				t.Error(got)
			}
		}()
	}
	wg.Wait()
	await(t, serving[0].engine, func(st sim.State) bool { return st.Active == 0 && st.Waiting == 0 && st.Finished == 60 })
	entrance.stopDoor()
	if held := entrance.door.held.used.Load(); held != 0 {
		t.Errorf("%d bytes are held for ever", held)
	}
}

// Whatever an engine or another peer says becomes a refusal that can be shown:
// with a reason of the list, in words, in OpenAI's shape.
func FuzzRefusals(f *testing.F) {
	for _, s := range []string{
		`{"error":{"code":400,"message":"m","type":"invalid_request_error"}}`, `{"reason":"busy","message":"full","retry":"later","retry_after":3}`,
		`{"reason":"nonsense"}`, `{"error":null}`, `[]`, ``, `{"error":{"message":"\ud800\n\u0000"}}`, `{"reason":"busy","retry_after":-1}`, "{\"reason\":\"busy\",\"message\":\"\xff\"}",
	} {
		f.Add(500, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := &attempt{call: &call{}, request: &request{}}
		answered := a.engineError(&http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(string(body)))})
		for _, no := range []*refusal{answered, a.engineRefusal(0, body), parseHopRefusal(body, "a peer")} {
			v, known := verdictOf(no.reason)
			shown := no.verdict()
			if !known || shown.status < 400 || shown.status > 599 || shown.after < 0 || v.kind == "" {
				t.Fatalf("%+v, %+v", no, shown)
			}
			var e struct{ Error *apiError }
			body := shapeOpenAI{}.body(no, "id")
			if err := json.Unmarshal(body, &e); err != nil || e.Error == nil || e.Error.Code == "" {
				t.Fatalf("%q: %v", body, err)
			}
			if event := string((shapeOpenAI{}).event(no, "id")); len(body) > 64<<10 || strings.Count(event, "\n") != 2 {
				t.Fatalf("%d bytes: %.100q", len(body), event)
			}
			var other struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal((shapeAnthropic{}).body(no, "id"), &other); err != nil || other.Type != "error" || other.Error.Type == "" {
				t.Fatalf("%+v: %v", other, err)
			}
		}
	})
}

// A text that is too long for its model names the field that it came in, on every route,
// at once, and the engine did its part.
func TestTooLongNamesTheField(t *testing.T) {
	long := strings.Repeat("x", 500)
	for where, p := range places(t, sim.Options{Context: 32, MaxInput: 20, Embeddings: true, Reranking: true}, func(o *DoorOptions) {
		o.Deadlines.Retry = time.Minute // Waiting for another replica would be seen.
	}) {
		p.sched.models = kindsOfModels()
		for _, c := range []struct{ path, body, param, says string }{
			{"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"` + long + `"}]}`, "messages", "length is 32 tokens. However, your messages resulted in 5"},
			{"/v1/completions", `{"model":"tiny","prompt":"` + long + `"}`, "prompt", "your prompt resulted in 5"},
			{"/v1/responses", `{"model":"tiny","input":"` + long + `"}`, "input", "your input resulted in 5"},
			{"/v1/embeddings", `{"model":"vectors","input":["a","` + long + `"]}`, "input", "length is 20 tokens. However, a text of your input resulted in 501 tokens. Please reduce the length of the input."},
			{"/v1/rerank", `{"model":"ranks","query":"q","documents":["a","` + long + `"]}`, "documents", "length is 20 tokens. However, one of your documents, together with the query, resulted in 504 tokens."},
		} {
			got := send(t, "POST", p.url+c.path, c.body)
			a := readAnswer(t, got.body)
			if got.status != 400 || a.err == nil || a.err.Code != "context_length_exceeded" || a.err.param() != c.param || !strings.Contains(a.err.Message, c.says) ||
				got.header.Get(headerAttempts) != "1" {
				t.Errorf("%s, %s: %v", where, c.path, got)
			}
			if err := p.sched.lastEnd(); err != nil {
				t.Errorf("%s, %s: the route ended with %v", where, c.path, err)
			}
		}
		got := send(t, "POST", p.url+"/v1/messages", `{"model":"tiny","max_tokens":5,"messages":[{"role":"user","content":"`+long+`"}]}`)
		if got.status != 400 || !strings.Contains(got.body, "prompt is too long: 5") || !strings.Contains(got.body, "> 32 maximum") {
			t.Errorf("%s: %v", where, got)
		}
	}
}
