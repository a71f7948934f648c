package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/llama/sim"
)

// busyScript has all that an answer can be made of.
var busyScript = []sim.Script{
	{Match: "everything", Turns: []sim.Turn{
		{ReasoningContent: "let me see", Content: "I call both.", ToolCalls: []sim.ToolCall{
			{Name: "f", Arguments: json.RawMessage(`{"x":1}`)}, {Name: "g", Arguments: json.RawMessage(`{}`)},
		}},
		{Content: "It is done."},
	}},
	{Match: "cut", Turns: []sim.Turn{{Content: "It is too", FinishReason: "length"}}},
	{Match: "long", Turns: []sim.Turn{{Content: strings.Repeat("on and ", 40)}}},
}

// places is a door whose own engine answers, and one that only forwards.
func places(t *testing.T, o sim.Options, change func(*DoorOptions)) map[string]*testPeer {
	t.Helper()
	entrance, _ := newMesh(t, []sim.Options{o}, change)
	return map[string]*testPeer{"here": newPeer(t, "one", o, change), "elsewhere": entrance}
}

// eventsOf are the payloads of a stream's events, by their names.
func eventsOf(t *testing.T, body string) (names []string, payloads []string) {
	t.Helper()
	for e := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		if strings.HasPrefix(e, ":") {
			continue
		}
		name, data, ok := strings.Cut(e, "\ndata: ")
		name, named := strings.CutPrefix(name, "event: ")
		var is struct{ Type string }
		if err := json.Unmarshal([]byte(data), &is); !ok || !named || err != nil || is.Type != name {
			t.Fatalf("not an event: %q (%v)", e, err)
		}
		names, payloads = append(names, name), append(payloads, data)
	}
	return names, payloads
}

// runs shortens a list of names: one that comes again and again stands there once.
func runs(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i == 0 || names[i-1] != n {
			b.WriteString(n)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func decode(t *testing.T, data string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), v); err != nil {
		t.Fatalf("%v: %q", err, data)
	}
}

const responseTools = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"function","name":"g","parameters":{"type":"object"}}]`

// A response, streamed and whole, here and through a peer that only forwards: the same
// output, and what it took as the engine's own chat says it.
func TestResponses(t *testing.T) {
	for where, p := range places(t, sim.Options{Slots: 4, Scripts: busyScript}, nil) {
		t.Run(where, func(t *testing.T) {
			type response struct {
				ID, Object, Status, Model string
				Output                    []struct {
					ID, Type, Status, Name, Arguments string
					CallID                            string `json:"call_id"`
					Content                           []struct{ Type, Text string }
				}
				Usage struct {
					InputTokens  int `json:"input_tokens"`
					OutputTokens int `json:"output_tokens"`
					Details      struct {
						Reasoning int `json:"reasoning_tokens"`
					} `json:"output_tokens_details"`
				}
				Incomplete *struct{ Reason string } `json:"incomplete_details"`
			}
			ask := func(body string) (r response, events []string) {
				got := send(t, "POST", p.url+"/v1/responses", body)
				if got.status != 200 || got.err != nil {
					t.Fatal(got)
				}
				if !strings.Contains(body, `"stream":true`) {
					if kind := got.header.Get("Content-Type"); kind != "application/json; charset=utf-8" {
						t.Errorf("content type %q", kind)
					}
					decode(t, got.body, &r)
					return r, nil
				}
				if kind := got.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
					t.Errorf("content type %q", kind)
				}
				names, payloads := eventsOf(t, got.body)
				var last struct{ Response response }
				decode(t, payloads[len(payloads)-1], &last)
				return last.Response, names
			}
			const everything = `{"model":"tiny","input":"everything",` + responseTools
			whole, _ := ask(everything + `}`)
			streamed, events := ask(everything + `,"stream":true}`)
			golden(t, "responses_events.golden", runs(events))
			if len(whole.Output) != 4 || whole.Output[0].Type != "reasoning" || whole.Output[0].Content[0].Text != "let me see" || whole.Output[1].Content[0].Text != "I call both." ||
				whole.Output[2].Name != "f" || whole.Output[2].Arguments != `{"x":1}` || whole.Output[2].CallID == "" || whole.Output[3].Name != "g" {
				t.Errorf("%+v", whole)
			}
			if whole.ID == streamed.ID || !strings.HasPrefix(whole.ID, "resp_") || whole.Model != testModel || whole.Status != "completed" || streamed.Status != "completed" {
				t.Errorf("%+v, %+v", whole, streamed)
			}
			for i := range whole.Output {
				a, b := whole.Output[i], streamed.Output[i]
				a.ID, b.ID = "", ""
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("item %d: %v whole, %v streamed", i, a, b)
				}
			}
			u := whole.Usage
			if u.InputTokens == 0 || u.OutputTokens == 0 || u.Details.Reasoning == 0 || u.Details.Reasoning >= u.OutputTokens || streamed.Usage.OutputTokens != u.OutputTokens {
				t.Errorf("usage %+v whole, %+v streamed", u, streamed.Usage)
			}

			next, _ := ask(fmt.Sprintf(`{"model":"tiny",%s,"input":[{"role":"user","content":"everything"},{"type":"function_call","call_id":%q,"name":"f","arguments":"{}"},`+
				`{"type":"function_call_output","call_id":%q,"output":"1"}]}`, responseTools, whole.Output[2].CallID, whole.Output[2].CallID))
			if len(next.Output) != 1 || next.Output[0].Content[0].Text != "It is done." {
				t.Errorf("the next turn: %+v", next)
			}
			cut, events := ask(`{"model":"tiny","input":"cut","stream":true}`)
			if cut.Status != "incomplete" || cut.Incomplete == nil || cut.Incomplete.Reason != "max_output_tokens" || cut.Output[0].Status != "incomplete" ||
				events[len(events)-1] != "response.incomplete" {
				t.Errorf("%+v, %q", cut, events)
			}
			if err := p.sched.lastEnd(); err != nil {
				t.Errorf("the route ended with %v", err)
			}
		})
	}
}

const messageTools = `"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"}}]`

// A message, streamed and whole, here and through a peer that only forwards.
func TestMessages(t *testing.T) {
	for where, p := range places(t, sim.Options{Slots: 4, Scripts: busyScript}, nil) {
		t.Run(where, func(t *testing.T) {
			type usage struct {
				Input  int `json:"input_tokens"`
				Cached int `json:"cache_read_input_tokens"`
				Output int `json:"output_tokens"`
			}
			type message struct {
				ID, Type, Role, Model string
				StopReason            string `json:"stop_reason"`
				Content               []struct {
					Type, Text, Thinking, ID, Name string
					Input                          map[string]any
				}
				Usage usage
			}
			const everything = `{"model":"tiny","max_tokens":200,"messages":[{"role":"user","content":"everything"}],` + messageTools
			ask := func(body string) (m message) {
				got := send(t, "POST", p.url+"/v1/messages", body, "Authorization", "", "X-Api-Key", testKey, "Anthropic-Version", "2023-06-01")
				if got.status != 200 || got.header.Get("Request-Id") == "" {
					t.Fatal(got)
				}
				decode(t, got.body, &m)
				return m
			}
			m := ask(everything + `}`)
			if m.Type != "message" || m.Role != "assistant" || m.Model != testModel || !strings.HasPrefix(m.ID, "msg_") || m.StopReason != "tool_use" {
				t.Errorf("%+v", m)
			}
			if len(m.Content) != 4 || m.Content[0].Thinking != "let me see" || m.Content[1].Text != "I call both." || m.Content[2].Name != "f" ||
				m.Content[2].Input["x"] != 1.0 || m.Content[2].ID == "" || m.Content[3].Name != "g" {
				t.Errorf("%+v", m.Content)
			}
			got := send(t, "POST", p.url+"/v1/messages", everything+`,"stream":true}`)
			names, payloads := eventsOf(t, got.body)
			golden(t, "messages_events.golden", runs(names))
			var first struct{ Message message }
			decode(t, payloads[0], &first)
			var last struct{ Usage usage }
			decode(t, payloads[len(payloads)-2], &last)
			if first.Message.Usage.Input+first.Message.Usage.Cached != m.Usage.Input+m.Usage.Cached || last.Usage.Output != m.Usage.Output || m.Usage.Output == 0 {
				t.Errorf("usage %+v at first, %+v at last, %+v whole", first.Message.Usage, last.Usage, m.Usage)
			}
			next := ask(`{"model":"tiny","max_tokens":200,` + messageTools + `,"messages":[{"role":"user","content":"everything"},` +
				`{"role":"assistant","content":[{"type":"tool_use","id":"` + m.Content[2].ID + `","name":"f","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + m.Content[2].ID + `","content":"1"}]}]}`)
			if len(next.Content) != 1 || next.Content[0].Text != "It is done." || next.StopReason != "end_turn" {
				t.Errorf("the next turn: %+v", next)
			}
			if cut := ask(`{"model":"tiny","max_tokens":200,"messages":[{"role":"user","content":"cut"}]}`); cut.StopReason != "max_tokens" {
				t.Errorf("%+v", cut)
			}

			const hello = `"model":"tiny","system":"be brief","messages":[{"role":"user","content":"hello"}]`
			asked := ask(`{` + hello + `,"max_tokens":3}`)
			got = send(t, "POST", p.url+"/v1/messages/count_tokens", `{`+hello+`}`)
			if want := fmt.Sprintf(`{"input_tokens":%d}`, asked.Usage.Input+asked.Usage.Cached); strings.TrimSpace(got.body) != want || got.status != 200 {
				t.Errorf("%v, want %s", got, want)
			}
		})
	}
}

// What is refused looks as it does where these APIs come from.
func TestDialectRefusals(t *testing.T) {
	p, _ := newMesh(t, []sim.Options{{Context: 64}}, nil)
	long := strings.Repeat("x", 500)
	const messages = `{"model":"tiny","max_tokens":5,"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/responses", `{"model":"tiny","input":"hi","store":true}`, 400, `"type":"invalid_request_error","param":"store","code":"invalid_request"`},
		{"/v1/responses", `{"model":"tiny","input":"hi","input":"ho"}`, 400, "more than once"},
		{"/v1/responses", ``, 400, "the body is empty"},
		{"/v1/responses", `{"model":"tiny","input":"hi"`, 400, "not JSON"},
		{"/v1/responses", `{"model":"other","input":"hi"}`, 404, `"code":"model_not_found"`},
		{"/v1/responses", `{"model":"tiny","input":"` + long + `"}`, 400, `"code":"context_length_exceeded"`},
		{"/v1/responses", `{"model":"tiny","input":"` + long + `","stream":true}`, 400, `This model's maximum context length is 64 tokens. However, your input resulted in `},
		{"/v1/messages", messages + `,"mcp_servers":[]}`, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"\"mcp_servers\" is not supported`},
		{"/v1/messages", messages, 400, "not JSON"},
		{"/v1/messages", strings.Replace(messages, "tiny", "other", 1) + `}`, 404, `"type":"not_found_error"`},
		{"/v1/messages", strings.Replace(messages, "hi", long, 1) + `}`, 400, "prompt is too long: "},
		{"/v1/messages", strings.Replace(messages, "hi", long, 1) + `,"stream":true}`, 400, " > 64 maximum"},
		{"/v1/messages/count_tokens", messages + `}`, 400, "does not know the field \\\"max_tokens\\\""},
	} {
		got := send(t, "POST", p.url+c.path, c.body)
		if got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s: %v; want %d, %s", c.path, clip(c.body, 80), got, c.status, c.says)
		}
	}
}

// A stream that nobody goes on with ends with the error that clients look for; before the
// first event the request goes elsewhere.
func TestDialectsBreakOff(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/responses": `{"model":"tiny","stream":true,"input":"long"}`,
		"/v1/messages":  `{"model":"tiny","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"long"}]}`,
	} {
		t.Run(path, func(t *testing.T) {
			faulty := sim.Options{Scripts: busyScript, Faults: []sim.Fault{{Kind: sim.FaultDie, After: 4, Times: 1}, {Kind: sim.FaultDrop, Times: 1}}}
			p, serving := newMesh(t, []sim.Options{faulty, {Scripts: busyScript}}, func(o *DoorOptions) { o.Deadlines.BetweenTokens = 300 * time.Millisecond })
			p.sched.set(func() { p.sched.peers = serving[:1] })
			got := send(t, "POST", p.url+path, body)
			names, payloads := eventsOf(t, got.body)
			at := len(names) - 1
			if path == "/v1/responses" {
				if names[at] != "response.failed" || !strings.Contains(payloads[at], `"status":"failed"`) {
					t.Errorf("the last is %s", payloads[at])
				}
				at--
			}
			if names[at] != "error" || !strings.Contains(payloads[at], "broke off") {
				t.Errorf("%q: %s", names, payloads[at])
			}
			p.sched.set(func() { p.sched.peers = serving })
			if got := send(t, "POST", p.url+path, body); got.header.Get(headerAttempts) != "2" || strings.Contains(got.body, "event: error") {
				t.Errorf("elsewhere: %v", got)
			}
		})
	}
}

// While nothing comes, a comment keeps a stream open; one of Anthropic's is pinged once
// it has begun.
func TestDialectsKeepAlive(t *testing.T) {
	for path, c := range map[string]struct{ body, sign string }{
		"/v1/responses": {`{"model":"tiny","stream":true,"input":"long"}`, ": waiting"},
		"/v1/messages":  {`{"model":"tiny","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"long"}]}`, "event: ping"},
	} {
		t.Run(path, func(t *testing.T) {
			stalls := sim.Options{Scripts: busyScript, Faults: []sim.Fault{{Kind: sim.FaultStall, After: 4}}}
			p, serving := newMesh(t, []sim.Options{stalls}, func(o *DoorOptions) { o.Deadlines.KeepAlive = 20 * time.Millisecond })
			p.sched.set(func() { p.sched.peers = nil })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, "POST", p.url+path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+testKey)
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			awaitLine := func(want string, times int) {
				for times > 0 {
					line, err := lines.ReadString('\n')
					if err != nil {
						t.Fatalf("waiting for %q: %v", want, err)
					}
					if strings.TrimSpace(line) == want {
						times--
					}
				}
			}
			awaitLine(": waiting", 2)
			p.sched.add(serving[0])
			awaitLine(c.sign, 4) // a stream of messages begins with a ping of its own
		})
	}
}

// An answer is held only as far as all answers together may be. A message that is
// streamed is not held; a response is, for its last event has all of it.
func TestDialectsBudget(t *testing.T) {
	long := []sim.Script{{Turns: []sim.Turn{{Content: strings.Repeat("x", 8<<10)}}}}
	p := newPeer(t, "one", sim.Options{Scripts: long, Context: 16 << 10}, func(o *DoorOptions) { o.MaxHeld = 10 << 10 })
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/responses", `{"model":"tiny","input":"hi"}`, 503, "have the answer streamed"},
		{"/v1/responses", `{"model":"tiny","input":"hi","stream":true}`, 200, `"status":"failed"`},
		{"/v1/messages", `{"model":"tiny","max_tokens":9999,"messages":[{"role":"user","content":"hi"}]}`, 503, "have the answer streamed"},
		{"/v1/messages", `{"model":"tiny","max_tokens":9999,"messages":[{"role":"user","content":"hi"}],"stream":true}`, 200, "message_stop"},
	} {
		if got := send(t, "POST", p.url+c.path, c.body); got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s: %d %s", c.path, c.body, got.status, clip(got.body, 300))
		}
	}
}

// stopWord is an engine that says which word ended its answer, as the pinned one does
// where it is asked.
type stopWord struct{ t *testing.T }

func (e stopWord) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(b), `"verbose":true,"response_fields":["stopping_word"]`) {
		e.t.Errorf("the engine was not asked for the word: %s", b)
	}
	const answer = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"__verbose\":{\"stopping_word\":\"END\"}}\n\ndata: [DONE]\n\n"
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(answer)), ContentLength: -1}, nil
}

// The word that ended an answer is told, though the engine's native chat has no place for
// it.
func TestStopSequence(t *testing.T) {
	p, serving := newMesh(t, []sim.Options{{}}, nil)
	serving[0].client = stopWord{t}
	got := send(t, "POST", p.url+"/v1/messages", `{"model":"tiny","max_tokens":5,"stop_sequences":["END"],"messages":[{"role":"user","content":"hi"}]}`)
	if got.status != 200 || !strings.Contains(got.body, `"stop_reason":"stop_sequence","stop_sequence":"END"`) {
		t.Error(got)
	}
}
