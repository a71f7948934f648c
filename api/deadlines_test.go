package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
)

// silent listens and says nothing to whoever comes.
func silent(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// TestDeadlines is each of them by itself: the request is refused by it, in words that
// name it, soon after its time; with the other ones far away.
func TestDeadlines(t *testing.T) {
	const short, far = 80 * time.Millisecond, 20 * time.Second
	stalls := func(after int) sim.Options {
		return sim.Options{Faults: []sim.Fault{{Kind: sim.FaultStall, After: after}}}
	}
	slow := sim.Options{DecodeRate: 25} // 12 tokens in half a second
	type when struct {
		name   string
		engine sim.Options
		set    func(*Deadlines)
		way    func(*testPeer, *testPeer) http.RoundTripper // to the peer that serves; nil is its hop
		says   string
		begun  bool // data went out before
	}
	for _, c := range []when{
		{"dial", sim.Options{}, func(d *Deadlines) { d.Dial = short }, func(*testPeer, *testPeer) http.RoundTripper {
			return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
		}, "a connection was made not within 80ms", false},
		{"headers", sim.Options{}, func(d *Deadlines) { d.Headers = short }, func(*testPeer, *testPeer) http.RoundTripper {
			return engineTransport(silent(t))
		}, "a sign of the peer came not within 80ms", false},
		{"first token", stalls(0), func(d *Deadlines) { d.FirstToken = short }, nil, "the first token came not within 80ms", false},
		{"between tokens", stalls(3), func(d *Deadlines) { d.BetweenTokens = short }, nil, "the next token came not within 80ms", true},
		{"total", slow, func(d *Deadlines) { d.Total = short }, nil, "the whole answer came not within 80ms", true},
	} {
		for _, where := range []string{"here", "elsewhere"} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/stream=%v", c.name, where, stream), func(t *testing.T) {
					if where == "here" && c.name == "headers" {
						t.Skip("an engine of this peer's own says nothing before its first token")
					}
					change := func(o *DoorOptions) {
						o.Attempts = 1
						o.Deadlines.Dial, o.Deadlines.Headers, o.Deadlines.FirstToken, o.Deadlines.BetweenTokens, o.Deadlines.Total = far, far, far, far, far
						c.set(&o.Deadlines)
					}
					entrance := newPeer(t, "one", c.engine, change)
					serving := entrance
					if where == "elsewhere" {
						var all []*testPeer
						entrance, all = newMesh(t, []sim.Options{c.engine}, change)
						serving = all[0]
						if c.way != nil {
							entrance.sched.hops = map[string]http.RoundTripper{serving.id: c.way(entrance, serving)}
						}
					} else if c.way != nil {
						entrance.client = c.way(entrance, serving)
					}
					began := time.Now()
					got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, stream))
					took := time.Since(began)
					a := readAnswer(t, got.body)
					want, status := scheduler.Timeout, 504
					if stream && c.begun {
						want, status = scheduler.CannotContinue, 200
					}
					if got.status != status || a.err == nil || a.err.Code != string(want) || !strings.Contains(a.err.Message, c.says) {
						t.Errorf("%v", got)
					}
					if took < short || took > far/4 {
						t.Errorf("took %v", took)
					}
					if serving.engine.State().Requests > 0 {
						await(t, serving.engine, func(st sim.State) bool { return st.Active == 0 })
					}
				})
			}
		}
	}
}

// A peer that has said that it works on a request has the engine's time, however short
// that for the sign is.
func TestWorkingPeersAreWaitedFor(t *testing.T) {
	entrance, _ := newMesh(t, []sim.Options{{PrefillRate: 50}}, func(o *DoorOptions) { o.Deadlines.Headers = 60 * time.Millisecond })
	body := `{"model":"tiny","messages":[{"role":"user","content":"` + strings.Repeat("word ", 30) + `"}],"max_tokens":2,"ignore_eos":true}`
	got := send(t, "POST", entrance.url+"/v1/chat/completions", body)
	if a := readAnswer(t, got.body); got.status != 200 || a.err != nil {
		t.Errorf("%v", got)
	}
}

// The engine's own account of a long prompt is no first token: while it comes another
// replica may still be tried.
func TestProgressIsNoToken(t *testing.T) {
	entrance, serving := newMesh(t, []sim.Options{{}, {}}, func(o *DoorOptions) { o.Deadlines.FirstToken = 100 * time.Millisecond })
	progress := `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}],"model":"x","prompt_progress":{"total":900,"cache":100,"processed":300,"time_ms":1}}` + "\n\n"
	serving[0].client = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		reader, writer := io.Pipe()
		go func() {
			for r.Context().Err() == nil {
				if _, err := writer.Write([]byte(progress)); err != nil {
					return
				}
			}
		}()
		context.AfterFunc(r.Context(), func() { writer.CloseWithError(r.Context().Err()) })
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: reader, ContentLength: -1}, nil
	})
	got := send(t, "POST", entrance.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || got.header.Get(headerPeer) != "peer1" || strings.Contains(got.body, "prompt_progress") {
		t.Errorf("%v", got)
	}
}
