package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
)

// oneOnly is a scheduler that knows no other replica of a model than the first.
type oneOnly struct{ Scheduler }

func (s oneOnly) Route(ctx context.Context, want scheduler.Want) (scheduler.Route, error) {
	if len(want.Tried) > 0 {
		return scheduler.Route{}, scheduler.Errorf(scheduler.NoCapacity, "nobody else")
	}
	return s.Scheduler.Route(ctx, want)
}

// A fallback begins the answer anew: what another model said is not its own.
func TestFallbackDoesNotGoOn(t *testing.T) {
	p, serving := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultDie, After: 5, Times: 1}}}}, func(o *DoorOptions) { o.Scheduler = oneOnly{o.Scheduler} })
	p.sched.models[0].Fallback = "spare"
	p.sched.models = append(p.sched.models, scheduler.ServedModel{UID: "u2", Name: "spare"})
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, false))
	a := readAnswer(t, got.body)
	if got.header.Get(headerContinued) != "" || got.header.Get(headerServed) != "spare" || !slices.Contains(a.models, "spare") || a.text != wantText() {
		t.Errorf("%+v: %v", a, got)
	}
	if n := serving[0].engine.State().Requests; n != 2 {
		t.Errorf("the engine was asked %d times", n)
	}
}

// However far an answer comes by each of them, few engines end over it, and the client is
// told not to send it again.
func TestFewEnginesEnd(t *testing.T) {
	for tokens, most := range map[int]int{0: maxDeaths + 1, 1: maxDeaths + 1, aliveTokens: maxDeathsInAll} {
		t.Run(fmt.Sprintf("after %d tokens", tokens), func(t *testing.T) {
			var engines []sim.Options
			for range 2 * maxDeathsInAll {
				engines = append(engines, sim.Options{Faults: []sim.Fault{{Kind: sim.FaultDie, After: tokens}}})
			}
			p, serving := newMesh(t, engines, nil)
			body := strings.Replace(chatBody(testModel, true), `"max_tokens":12`, `"max_tokens":400,"return_progress":true`, 1)
			a := readAnswer(t, send(t, "POST", p.url+"/v1/chat/completions", body).body)
			n := 0
			for _, s := range serving {
				n += s.engine.State().Struck
			}
			if a.err == nil || !strings.Contains(a.err.Message, "do not send it again as it is") || strings.Contains(a.err.Message, "ask again") || n != most {
				t.Errorf("engines ended %d times: %+v", n, a.err)
			}
		})
	}
}

// says is a replica with one answer.
type says struct {
	n    *int
	body string
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	*s.n++
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

// Events are no headway where no token comes.
func TestNoHeadway(t *testing.T) {
	engines := make([]sim.Options, 10)
	engines[0].Faults = []sim.Fault{{Kind: sim.FaultDie, After: 4}}
	p, _ := newMesh(t, engines, func(o *DoorOptions) { o.Deadlines.BetweenTokens = 5 * time.Second })
	n := 0
	p.sched.hops = map[string]http.RoundTripper{}
	for i := 1; i < len(engines); i++ {
		p.sched.hops[fmt.Sprint("peer", i)] = says{&n, "data: {\"choices\":[{\"text\":\"\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}],\"id\":\"x\"}\n\n"}
	}
	got := send(t, "POST", p.url+"/v1/completions", `{"model":"tiny","stream":true,"prompt":"hello","max_tokens":12,"temperature":0,"ignore_eos":true}`)
	if a := readAnswer(t, got.body); a.err == nil || a.err.Code != string(scheduler.CannotContinue) || n > 3 {
		t.Errorf("%d attempts without a token: %v", n, got)
	}
}
