package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
	"relay/store/audit"
)

// continued are requests whose answers can be gone on with at any place. by is how, "" where
// it differs from place to place.
var continuedKinds = []struct {
	name, path, body, by string
	engine               sim.Options
}{
	{"chat", "/v1/chat/completions", `,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false`, "ids", sim.Options{}},
	{"chat with logprobs", "/v1/chat/completions", `,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false,"logprobs":true,"top_logprobs":2`, "ids", sim.Options{}},
	{"chat with logprobs alone", "/v1/chat/completions", `,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false,"logprobs":true`, "ids", sim.Options{}},
	{"chat of characters in parts", "/v1/chat/completions", `,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false`, "", sim.Options{Bytewise: true}},
	{"chat with tools", "/v1/chat/completions", `,"messages":[{"role":"user","content":"say"}],"max_tokens":200,"temperature":0,"cache_prompt":false,` + someTool, "text", sim.Options{Scripts: saying}},
	{"chat that reasons", "/v1/chat/completions", `,"messages":[{"role":"user","content":"think"}],"max_tokens":200,"temperature":0,"cache_prompt":false`, "text", sim.Options{Scripts: saying}},
	{"completion", "/v1/completions", `,"prompt":"hello","max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false`, "ids", sim.Options{}},
	{"completion with logprobs", "/v1/completions", `,"prompt":"hello","max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false,"logprobs":2`, "ids", sim.Options{}},
	{"completion of ids", "/v1/completions", `,"prompt":[300,301,302],"max_tokens":12,"temperature":0,"ignore_eos":true,"cache_prompt":false`, "ids", sim.Options{}},
	{"responses", "/v1/responses", `,"input":"say","temperature":0`, "ids", sim.Options{Scripts: saying}},
	{"responses that reason", "/v1/responses", `,"input":"think","temperature":0`, "text", sim.Options{Scripts: saying}},
	{"messages", "/v1/messages", `,"max_tokens":200,"messages":[{"role":"user","content":"say"}],"temperature":0`, "ids", sim.Options{Scripts: saying}},
}

const someTool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`

var saying = []sim.Script{
	{Match: "say", Turns: []sim.Turn{{Content: "one two three four five six"}}},
	{Match: "think", Turns: []sim.Turn{{ReasoningContent: "it is two", Content: "the answer is two"}}},
	{Match: "call", Turns: []sim.Turn{{Content: "so", ToolCalls: []sim.ToolCall{{Name: "f", Arguments: json.RawMessage(`{"a":"b c d e"}`)}}}}},
}

// alike is an answer without what differs from one time to the next.
func alike(body string) string {
	body = regexp.MustCompile(`(?m)^: relay continued .*\n\n`).ReplaceAllString(body, "")
	for _, differs := range []string{
		`"(?:id|item_id|response_id)":"[^"]*"`, `"(?:created|created_at|completed_at)":\d+`, `"(?:cached_tokens|cache_read_input_tokens|input_tokens)":\d+`,
		`"timings":\{[^}]*\}`,
	} {
		body = regexp.MustCompile(differs).ReplaceAllString(body, `"":0`)
	}
	return body
}

var tokenCounts = regexp.MustCompile(`"(?:completion_tokens|total_tokens|output_tokens|reasoning_tokens)":\d+`)

var chunkID = regexp.MustCompile(`"id":"[^"]*","|"created":\d+`)

// comment is what a client is told of a continuation.
var comment = regexp.MustCompile(`(?m)^: relay continued from=(\S+) to=(\S+) tokens=(\d+) by=(ids|text)$`)

// An answer whose replica is lost, however and wherever, is the answer that it would have
// been.
func TestContinued(t *testing.T) {
	const places = 9
	faults := []sim.FaultKind{sim.FaultDie, sim.FaultError, sim.FaultEnd, sim.FaultWrong}
	for _, kind := range continuedKinds {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream=%v", kind.name, stream), func(t *testing.T) {
				bad := kind.engine
				for _, f := range faults {
					for at := range places {
						bad.Faults = append(bad.Faults, sim.Fault{Kind: f, After: at, Times: 1})
					}
				}
				rows := newRows()
				p, serving := newMesh(t, []sim.Options{bad, kind.engine}, func(o *DoorOptions) { o.Audit = rows.add })
				body := `{"model":"tiny"` + kind.body + `}`
				if stream {
					body = `{"model":"tiny","stream":true` + kind.body + `}`
					if strings.HasSuffix(kind.path, "completions") {
						body = body[:len(body)-1] + `,"stream_options":{"include_usage":true}}`
					}
				}
				p.sched.set(func() { p.sched.peers = serving[1:] })
				whole := send(t, "POST", p.url+kind.path, body)
				same := alike
				if strings.Contains(kind.name, "reason") { // The stand-in does not make its marks anew as an engine does.
					same = func(body string) string { return tokenCounts.ReplaceAllString(alike(body), `"":0`) }
				}
				want := same(whole.body)
				rows.next(t)
				if whole.status != 200 {
					t.Fatal(whole)
				}
				p.sched.set(func() { p.sched.peers = serving })
				for _, f := range faults {
					for at := range places {
						got := send(t, "POST", p.url+kind.path, body)
						row := rows.next(t)
						name := fmt.Sprintf("%s after %d", f, at)
						if got.err != nil || same(got.body) != want {
							t.Fatalf("%s: %v\n%s\nwant\n%s", name, got.err, got.body, whole.body)
						}
						said := comment.FindAllStringSubmatch(got.body, -1)
						if row.Reason != "" || row.Attempts != 2 || row.Completion < at {
							t.Errorf("%s: %+v", name, row)
						}
						if n := row.Continued; n > 1 || stream && (len(said) != n || got.trailer.Get(headerContinued) != map[int]string{0: "", 1: "1"}[n]) {
							t.Errorf("%s: continued %d times, said %q, trailer %v", name, n, said, got.trailer)
						}
						if at >= 2 && row.Continued == 0 && !strings.Contains(kind.name, "parts") {
							t.Errorf("%s: begun anew", name)
						}
						for _, s := range said {
							if s[1] != "peer0" || s[2] != "peer1" || s[3] != "0" && kind.by != "" && s[4] != kind.by {
								t.Errorf("%s: %q", name, s)
							}
						}
						if ids := chunkID.FindAllString(got.body, -1); stream && strings.HasSuffix(kind.path, "completions") {
							slices.Sort(ids)
							if n := len(slices.Compact(ids)); n != 2 {
								t.Errorf("%s: %q", name, ids)
							}
						}
					}
				}
				for _, s := range serving {
					if n := s.engine.State().Active; n != 0 {
						t.Errorf("%d answers are still made", n)
					}
				}
			})
		}
	}
}

// A replica that is frozen is given up after the time between tokens.
func TestContinuedAfterAFreeze(t *testing.T) {
	for _, stream := range []bool{true, false} {
		p, _ := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultStall, After: 4}}}, {}}, func(o *DoorOptions) {
			o.Deadlines.BetweenTokens = 500 * time.Millisecond
			o.Deadlines.KeepAlive = 50 * time.Millisecond
		})
		got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, stream))
		if a := readAnswer(t, got.body); a.text != wantText() || a.err != nil || a.done != stream {
			t.Errorf("%+v: %v", a, got)
		}
		if stream && (!strings.Contains(got.body, ": waiting") || got.trailer.Get(headerContinued) != "1") {
			t.Errorf("%v", got)
		}
		if !stream && got.header.Get(headerContinued) != "1" {
			t.Errorf("%v", got.header)
		}
		if end := p.sched.settled()[0]; scheduler.ReasonOf(end) != scheduler.Timeout {
			t.Errorf("the frozen replica's route ended with %v", end)
		}
	}
}

// Answers are lost a second and a third time, and again; each that comes a token farther is
// gone on with.
func TestContinuedAgainAndAgain(t *testing.T) {
	for _, stream := range []bool{true, false} {
		var engines []sim.Options
		for range 6 {
			engines = append(engines, sim.Options{Faults: []sim.Fault{{Kind: sim.FaultEnd, After: 2}}})
		}
		p, _ := newMesh(t, engines, nil)
		got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, stream))
		a := readAnswer(t, got.body)
		if a.text != wantText() || a.err != nil || a.done != stream {
			t.Fatalf("%+v: %v", a, got)
		}
		if n := len(comment.FindAllString(got.body, -1)); stream && (n != 5 || got.trailer.Get(headerContinued) != "5") {
			t.Errorf("%d continuations: %v", n, got.trailer)
		}
	}
}

// The last token is out when the replica is lost: nothing is asked of another one.
func TestLostAtTheEnd(t *testing.T) {
	for _, stream := range []bool{true, false} {
		p, serving := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultDie, After: 12}}}, {}}, nil)
		body := chatBody(testModel, stream)
		if stream {
			body = strings.Replace(body, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
		}
		got := send(t, "POST", p.url+"/v1/chat/completions", body)
		a := readAnswer(t, got.body)
		if a.text != wantText() || a.err != nil || a.done != stream || strings.Count(got.body, `"finish_reason":"length"`) != 1 || !strings.Contains(got.body, `"completion_tokens":12`) {
			t.Errorf("%v", got)
		}
		if n := serving[1].engine.State().Requests; n != 0 || got.trailer.Get(headerContinued) != "" {
			t.Errorf("the other engine was asked %d times", n)
		}
	}
}

// What cannot be gone on with says why, where the client has seen a part of it; else it is
// begun anew.
func TestCannotBeContinued(t *testing.T) {
	for _, c := range []struct{ name, path, body, why string }{
		{"several answers", "/v1/chat/completions", `,"messages":[{"role":"user","content":"hello"}],"max_tokens":12,"temperature":0,"ignore_eos":true,"n":2`, "several answers"},
		{"several prompts", "/v1/completions", `,"prompt":["a","b"],"max_tokens":12,"temperature":0,"ignore_eos":true`, "several answers"},
		{"mirostat", "/v1/completions", `,"prompt":"a","max_tokens":12,"temperature":0,"ignore_eos":true,"mirostat":1`, "mirostat"},
		{"a grammar", "/v1/completions", `,"prompt":"a","max_tokens":12,"temperature":0,"grammar":"root ::= [a-z ]*"`, "grammar"},
		{"a tool call", "/v1/chat/completions", `,"messages":[{"role":"user","content":"call"}],"temperature":0,` + someTool, "tool call"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream=%v", c.name, stream), func(t *testing.T) {
				engine := sim.Options{Scripts: saying, Slots: 2}
				bad := engine
				bad.Faults = []sim.Fault{{Kind: sim.FaultDie, After: 5}}
				rows := newRows()
				p, serving := newMesh(t, []sim.Options{bad, engine}, func(o *DoorOptions) { o.Audit = rows.add })
				got := send(t, "POST", p.url+c.path, fmt.Sprintf(`{"model":"tiny","stream":%v%s}`, stream, c.body))
				row := rows.next(t)
				if !stream {
					if got.status != 200 || row.Reason != "" || row.Attempts != 2 || row.Continued != 0 || serving[1].engine.State().Requests != 1 {
						t.Errorf("%+v: %v", row, got)
					}
					return
				}
				a := readAnswer(t, got.body)
				if a.err == nil || a.err.Code != "cannot_continue" || a.done || !strings.Contains(a.err.Message, "broke off after") || !strings.Contains(a.err.Message, c.why) {
					t.Errorf("%v: %v", a.err, got)
				}
				if row.Reason != "cannot_continue" || row.Continued != 0 || serving[1].engine.State().Requests != 0 || got.trailer.Get(headerContinued) != "" {
					t.Errorf("%+v", row)
				}
				if n := metric(t, p.door.opt.Metrics, `relay_continuations_total{outcome="failed"}`); n != "1" {
					t.Errorf("%s failures are counted", n)
				}
			})
		}
	}
}

// Three replicas in a row that bring nothing new are the end, and what was lost first is
// said.
func TestGivesUpGoingOn(t *testing.T) {
	errs := sim.Options{Faults: []sim.Fault{{Kind: sim.FaultError}}}
	p, serving := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultDie, After: 4}}}, errs, errs, errs, {}}, nil)
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
	a := readAnswer(t, got.body)
	if a.err == nil || a.err.Code != "cannot_continue" || !strings.Contains(a.err.Message, "ended in the middle of its work; it cannot be continued: peer name-of-peer3 failed") {
		t.Errorf("%v: %v", a.err, got)
	}
	if n := serving[4].engine.State().Requests; n != 0 {
		t.Error("a fourth one was asked")
	}
	if !strings.HasPrefix(wantText(), a.text) || a.text == "" {
		t.Errorf("%q", a.text)
	}
}

// A request over which engines end as soon as they go on with it is given to no third.
func TestEnginesThatEndGoingOn(t *testing.T) {
	ends := sim.Options{Faults: []sim.Fault{{Kind: sim.FaultDrop}}}
	p, serving := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultDie, After: 4}}}, ends, ends, {}}, nil)
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); a.err == nil || a.err.Code != "cannot_continue" || !strings.Contains(a.err.Message, "2 engines ended over this request") {
		t.Errorf("%v: %v", a.err, got)
	}
	if n := serving[3].engine.State().Requests; n != 0 {
		t.Error("one more was asked")
	}
}

// A gap ends when its time is over, and a streamed answer then says what was lost.
func TestNobodyGoesOn(t *testing.T) {
	for _, stream := range []bool{true, false} {
		p, _ := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultDie, After: 4}}}}, func(o *DoorOptions) { o.Deadlines.BetweenTokens = 300 * time.Millisecond })
		began := time.Now()
		got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, stream))
		a := readAnswer(t, got.body)
		want := map[bool]string{true: "cannot_continue", false: "engine_failed"}[stream]
		if took := time.Since(began); a.err == nil || a.err.Code != want || !strings.Contains(a.err.Message, "ended in the middle") || took < 300*time.Millisecond || took > 10*time.Second {
			t.Errorf("after %v: %v", took, got)
		}
	}
}

// What a request took is its prompt once, what was delivered and what came after.
func TestContinuedIsCountedOnce(t *testing.T) {
	used := &gate{told: make(chan [2]int, 10)}
	var rows = newRows()
	p, _ := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultEnd, After: 5}}}, {Faults: []sim.Fault{{Kind: sim.FaultEnd, After: 5}}}, {}}, func(o *DoorOptions) {
		o.Audit, o.Quota = func(r audit.Row) { rows.add(r) }, used
	})
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
	row := rows.next(t)
	prompt := len(sim.Tokenize("<|user|>hello<|assistant|>", true, true))
	if a := readAnswer(t, got.body); a.text != wantText() || row.Prompt != prompt || row.Completion != 12 || row.Continued != 2 {
		t.Errorf("%+v: %v", row, got)
	}
	if took := <-used.told; took != [2]int{prompt, 12} {
		t.Errorf("the quota was told %v", took)
	}
	if n := metric(t, p.door.opt.Metrics, `relay_continuations_total{outcome="ids"}`); n != "2" {
		t.Errorf("%s continuations are counted", n)
	}
}
