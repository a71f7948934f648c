package messages

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"relay/api/chat"
)

// hello is a request with nothing but what must be there, and more fields.
func hello(more string) string {
	return `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]` + more + `}`
}

func saying(blocks string) string {
	return `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[` + blocks + `]}]}`
}

// TestParse: what the engine is asked.
func TestParse(t *testing.T) {
	const hi = `{"role":"user","content":"hi"}`
	const tools = `,"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"x":{"type":"number"}}},"cache_control":{"type":"ephemeral","ttl":"5m"}},` +
		`{"type":"custom","name":"g","input_schema":{"type":"object"},"strict":true}]`
	const f = `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"number"}}}}}`
	const g = `{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}`
	for _, tc := range []struct{ name, body, want string }{
		{"least", hello(``), `{"model":"m","messages":[` + hi + `],"max_tokens":5}`},
		{"hints", hello(`,"metadata":{"user_id":"u"},"service_tier":"auto","cache_control":{"type":"ephemeral"},"stream":true,"stop_sequences":[],"container":null`),
			`{"model":"m","messages":[` + hi + `],"max_tokens":5}`},
		{"sampling", hello(`,"temperature":0.5,"top_p":0.9,"top_k":3,"stop_sequences":["a","b"]`),
			`{"model":"m","messages":[` + hi + `],"max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":3,"stop":["a","b"],"verbose":true,"response_fields":["stopping_word"]}`},
		{"system", hello(`,"system":"be brief"`), `{"model":"m","messages":[{"role":"system","content":"be brief"},` + hi + `],"max_tokens":5}`},
		{"system in blocks", hello(`,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}]`),
			`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` + hi + `],"max_tokens":5}`},
		{"tools", hello(tools), `{"model":"m","messages":[` + hi + `],"tools":[` + f + `,` + g + `],"max_tokens":5}`},
		{"any tool", hello(tools + `,"tool_choice":{"type":"any","disable_parallel_tool_use":true}`),
			`{"model":"m","messages":[` + hi + `],"tools":[` + f + `,` + g + `],"tool_choice":"required","parallel_tool_calls":false,"max_tokens":5}`},
		{"one tool", hello(tools + `,"tool_choice":{"type":"tool","name":"g"}`),
			`{"model":"m","messages":[` + hi + `],"tools":[` + g + `],"tool_choice":"required","max_tokens":5}`},
		{"no tool", hello(tools + `,"tool_choice":{"type":"none"}`),
			`{"model":"m","messages":[` + hi + `],"tools":[` + f + `,` + g + `],"tool_choice":"none","max_tokens":5}`},
		{"no thinking", hello(`,"thinking":{"type":"disabled"}`), `{"model":"m","messages":[` + hi + `],"max_tokens":5,"reasoning_effort":"none"}`},
		{"thinking", hello(`,"thinking":{"type":"enabled","budget_tokens":1024}`), `{"model":"m","messages":[` + hi + `],"max_tokens":5,"thinking_budget_tokens":1024}`},
		{"form", hello(`,"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}`),
			`{"model":"m","messages":[` + hi + `],"response_format":{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"}}},"max_tokens":5,"reasoning_effort":"low"}`},
		{"image", saying(`{"type":"text","text":"what"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`),
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}],"max_tokens":5}`},
		{"a tool's turn", `{"model":"m","max_tokens":5,"messages":[` + hi + `,{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
			{"type":"redacted_thinking","data":"x"},{"type":"text","text":"so"},{"type":"tool_use","id":"c1","name":"f","input":{"x": 1}},{"type":"tool_use","id":"c2","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"1"},{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"no"}]},
			{"type":"tool_result","tool_use_id":"c3","is_error":true},{"type":"text","text":"go on"}]}]}`,
			`{"model":"m","messages":[` + hi + `,{"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[
			{"type":"function","function":{"name":"f","arguments":"{\"x\": 1}"},"id":"c1"},{"type":"function","function":{"name":"g","arguments":"{}"},"id":"c2"}]},
			{"role":"tool","content":"1","tool_call_id":"c1"},{"role":"tool","content":"Error: no","tool_call_id":"c2"},{"role":"tool","content":"Error: ","tool_call_id":"c3"},
			{"role":"user","content":"go on"}],"max_tokens":5}`},
	} {
		q, err := Parse([]byte(tc.body))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var got, want any
		b := q.Chat.Append(nil)
		if json.Unmarshal(b, &got) != nil || json.Unmarshal([]byte(tc.want), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the engine is asked\n%s\nwant\n%s", tc.name, b, tc.want)
		}
	}
}

// TestRefusals: what cannot be honoured is refused by name.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct{ body, param, says string }{
		{`x`, "", "not a JSON object"},
		{`{}`, "model", "missing"},
		{`{"model":"m","max_tokens":5}`, "messages", "missing"},
		{`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "max_tokens", "missing"},
		{hello(`,"max_tokens":0`), "max_tokens", "at least 1"},
		{hello(`,"frequency":1`), "frequency", "does not know"},
		{hello(`,"container":"x"`), "container", "runs no containers"},
		{hello(`,"mcp_servers":[]`), "mcp_servers", "MCP"},
		{hello(`,"context_management":{}`), "context_management", "shorten"},
		{hello(`,"service_tier":"flex"`), "service_tier", "auto and standard_only"},
		{hello(`,"stop_sequences":["a",""]`), "stop_sequences", "holds an empty string"},
		{hello(`,"temperature":1.5`), "temperature", "from 0 to 1"},
		{hello(`,"metadata":{"x":1}`), "metadata.x", "does not know"},
		{hello(`,"tools":[{"type":"web_search_20250305","name":"web_search"}]`), "tools[0].type", `"web_search_20250305" are not supported`},
		{hello(`,"tools":[{"name":"f"}]`), "tools[0].input_schema", "missing"},
		{hello(`,"tools":[{"name":"f","input_schema":{},"defer_loading":true}]`), "tools[0].defer_loading", "searches no tools"},
		{hello(`,"tool_choice":{"type":"any"}`), "tool_choice", "no \"tools\""},
		{hello(`,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"}`), "tool_choice.name", `no tool "g"`},
		{hello(`,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"x"}`), "tool_choice.type", "not supported"},
		{hello(`,"thinking":{"type":"enabled"}`), "thinking.budget_tokens", "missing"},
		{hello(`,"thinking":{"type":"deep"}`), "thinking.type", "not supported"},
		{hello(`,"output_config":{"format":{"type":"regex"}}`), "output_config.format.type", "not supported"},
		{hello(`,"system":[{"type":"image"}]`), "system[0].type", "takes text"},
		{saying(`{"type":"document","source":{}}`), "messages[0].content[0].type", `"document" is not supported`},
		{saying(`{"type":"tool_use","id":"a","name":"f","input":{}}`), "messages[0].content[0].type", `"tool_use" is not supported here`},
		{saying(`{"type":"image","source":{"type":"url","url":"http://x/y.png"}}`), "messages[0].content[0].source.url", "fetches nothing"},
		{saying(`{"type":"image","source":{"type":"file","file_id":"x"}}`), "messages[0].content[0].source.type", "not supported"},
		{saying(`{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"AA=="}}`), "messages[0].content[0].source.media_type", "image/webp"},
		{saying(`{"type":"text","text":"a","cache_control":{"type":"forever"}}`), "messages[0].content[0].cache_control.type", "ephemeral"},
		{`{"model":"m","max_tokens":5,"messages":[{"role":"system","content":"a"}]}`, "messages[0].role", "user and assistant"},
		{`{"model":"m","max_tokens":5,"messages":[{"role":"user"}]}`, "messages[0].content", "missing"},
	} {
		_, err := Parse([]byte(tc.body))
		var no *chat.FieldError
		if !errors.As(err, &no) || no.Param != tc.param || !strings.Contains(no.Message, tc.says) {
			t.Errorf("%s: %v, param %+v; want %q, %q", tc.body, err, no, tc.param, tc.says)
		}
	}
}

func TestCount(t *testing.T) {
	q, err := ParseCount([]byte(`{"model":"m","system":"s","messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{"type":"object"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}],` +
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`
	if got := string(q.Chat.Append(nil)); got != want {
		t.Errorf("the engine is asked %s", got)
	}
	for body, param := range map[string]string{
		hello(``): "max_tokens", // it is not part of this request
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]}`: "messages",
	} {
		var no *chat.FieldError
		if _, err := ParseCount([]byte(body)); !errors.As(err, &no) || no.Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// FuzzParse: whatever comes is refused with a field, or asks the engine in valid
// JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte(hello(`,"system":[{"type":"text","text":"a"}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"}`)))
	f.Add([]byte(saying(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"tool_result","tool_use_id":"x","is_error":true}`)))
	f.Add([]byte(`{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"a":[1]}},{"type":"thinking","thinking":"x"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (*Request, error){Parse, ParseCount} {
			q, err := parse(body)
			var no *chat.FieldError
			switch {
			case err != nil && (!errors.As(err, &no) || no.Message == ""):
				t.Fatalf("%v", err)
			case err == nil && !json.Valid(q.Chat.Append(nil)):
				t.Fatalf("the engine is asked %s", q.Chat.Append(nil))
			}
		}
	})
}
