package responses

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"relay/api/chat"
)

func hello(more string) string { return `{"model":"m","input":"hi"` + more + `}` }

func items(list string) string { return `{"model":"m","input":[` + list + `]}` }

// TestParse: what the engine is asked.
func TestParse(t *testing.T) {
	const hi = `{"role":"user","content":"hi"}`
	const tools = `,"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g"}]`
	const f = `{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}`
	const g = `{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}`
	for _, tc := range []struct{ name, body, want string }{
		{"least", hello(``), `{"model":"m","messages":[` + hi + `]}`},
		{"hints", hello(`,"metadata":{"a":"b"},"user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","client_metadata":{"a":"b"},"service_tier":"auto",
			"store":false,"background":false,"truncation":"disabled","stream":true,"stream_options":{"include_obfuscation":false},"include":["reasoning.encrypted_content"],
			"reasoning":{"effort":null,"summary":"auto"},"text":{"verbosity":"medium"},"previous_response_id":null,"conversation":null,"tool_choice":"auto"`),
			`{"model":"m","messages":[` + hi + `]}`},
		{"settings", hello(`,"instructions":"be brief","temperature":0.5,"top_p":0.9,"max_output_tokens":16,"reasoning":{"effort":"low"}`),
			`{"model":"m","messages":[{"role":"system","content":"be brief"},` + hi + `],"max_tokens":16,"temperature":0.5,"top_p":0.9,"reasoning_effort":"low"}`},
		{"logprobs", hello(`,"include":["message.output_text.logprobs"],"top_logprobs":3`), `{"model":"m","messages":[` + hi + `],"logprobs":true,"top_logprobs":3}`},
		{"logprobs without others", hello(`,"include":["message.output_text.logprobs"]`), `{"model":"m","messages":[` + hi + `],"logprobs":true,"top_logprobs":1}`},
		{"tools", hello(tools + `,"parallel_tool_calls":false,"tool_choice":"required"`),
			`{"model":"m","messages":[` + hi + `],"tools":[` + f + `,` + g + `],"tool_choice":"required","parallel_tool_calls":false}`},
		{"one tool", hello(tools + `,"tool_choice":{"type":"function","name":"g"}`), `{"model":"m","messages":[` + hi + `],"tools":[` + g + `],"tool_choice":"required"}`},
		{"allowed tools", hello(tools + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`),
			`{"model":"m","messages":[` + hi + `],"tools":[` + f + `],"tool_choice":"auto"}`},
		{"an object", hello(`,"text":{"format":{"type":"json_object"}}`), `{"model":"m","messages":[` + hi + `],"response_format":{"type":"json_object"}}`},
		{"a schema", hello(`,"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"},"strict":true}}`),
			`{"model":"m","messages":[` + hi + `],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}}`},
		{"the beginning is one", `{"model":"m","instructions":"a","input":[{"role":"developer","content":"b"},{"role":"user","content":"hi"},{"role":"developer","content":"c"}]}`,
			`{"model":"m","messages":[{"role":"system","content":"a\n\nb"},` + hi + `,{"role":"system","content":"c"}]}`},
		{"parts", items(`{"type":"message","role":"user","content":[{"type":"input_text","text":"what"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]}`),
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`},
		{"a tool's turn", items(`{"role":"user","content":"hi"},
			{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"hm"}],"encrypted_content":null,"status":"completed"},
			{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"so","annotations":[],"logprobs":[]}]},
			{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}","status":"completed"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{\"x\":1}"},
			{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]}`),
			`{"model":"m","messages":[` + hi + `,{"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[
			{"type":"function","function":{"name":"f","arguments":"{}"},"id":"c1"},{"type":"function","function":{"name":"g","arguments":"{\"x\":1}"},"id":"c2"}]},
			{"role":"tool","content":"1","tool_call_id":"c1"},{"role":"tool","content":"2","tool_call_id":"c2"}]}`},
		{"reasoning that is none", items(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},{"role":"user","content":"hi"}`), `{"model":"m","messages":[` + hi + `]}`},
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
	tool := func(kind string) string { return hello(`,"tools":[{"type":"` + kind + `"}]`) }
	for _, tc := range []struct{ body, param, says string }{
		{`x`, "", "not a JSON object"},
		{`{}`, "model", "missing"},
		{`{"model":"m"}`, "input", "missing"},
		{`{"model":"m","input":5}`, "input", "list of objects"},
		{hello(`,"store":true`), "store", "keeps no responses"},
		{hello(`,"background":true`), "background", "not supported"},
		{hello(`,"previous_response_id":"resp_1"`), "previous_response_id", "keeps no responses"},
		{hello(`,"conversation":"c"`), "conversation", "keeps no conversations"},
		{hello(`,"prompt":{"id":"p"}`), "prompt", "templates"},
		{hello(`,"max_tool_calls":3`), "max_tool_calls", "built-in"},
		{hello(`,"truncation":"auto"`), "truncation", "does not shorten"},
		{hello(`,"truncation":"some"`), "truncation", "not a value"},
		{hello(`,"service_tier":"flex"`), "service_tier", "auto and default"},
		{hello(`,"stream_options":{"include_obfuscation":true}`), "stream_options.include_obfuscation", "no obfuscation"},
		{hello(`,"seed":1`), "seed", "does not know"},
		{hello(`,"temperature":3`), "temperature", "from 0 to 2"},
		{hello(`,"max_output_tokens":0`), "max_output_tokens", "at least 1"},
		{hello(`,"include":["file_search_call.results"]`), "include[0]", "not supported"},
		{hello(`,"top_logprobs":3`), "top_logprobs", "include"},
		{hello(`,"include":["message.output_text.logprobs"],"tools":[{"type":"function","name":"f"}]`), "include[0]", "together with"},
		{hello(`,"reasoning":{"summary":"detailed"}`), "reasoning.summary", "in full"},
		{hello(`,"reasoning":{"effort":"most"}`), "reasoning.effort", "not a value"},
		{hello(`,"text":{"verbosity":"low"}`), "text.verbosity", "instructions"},
		{hello(`,"text":{"format":{"type":"grammar"}}`), "text.format.type", "not supported"},
		{hello(`,"text":{"format":{"type":"json_schema","name":"x"}}`), "text.format.schema", "missing"},
		{hello(`,"metadata":{"a":1}`), "metadata.a", "string"},
		{hello(`,"tool_choice":"required"`), "tool_choice", "no \"tools\""},
		{hello(`,"tool_choice":{"type":"function","name":"f"}`), "tool_choice.name", `no function "f"`},
		{hello(`,"tool_choice":{"type":"web_search_preview"}`), "tool_choice.type", "not supported"},
		{hello(`,"tool_choice":5`), "tool_choice", "object"},
		{tool("web_search"), "tools[0].type", `"web_search" are not supported`},
		{tool("web_search_preview"), "tools[0].type", "not supported"},
		{tool("file_search"), "tools[0].type", "not supported"},
		{tool("computer_use_preview"), "tools[0].type", "not supported"},
		{tool("mcp"), "tools[0].type", "not supported"},
		{tool("code_interpreter"), "tools[0].type", "not supported"},
		{tool("image_generation"), "tools[0].type", "not supported"},
		{tool("local_shell"), "tools[0].type", "not supported"},
		{tool("custom"), "tools[0].type", "not supported"},
		{hello(`,"tools":[{"type":"function"}]`), "tools[0].name", "missing"},
		{items(`{"type":"item_reference","id":"x"}`), "input[0].type", "keeps no items"},
		{items(`{"role":"user","content":"a"},{"type":"web_search_call","id":"x"}`), "input[1].type", `"web_search_call" are not supported`},
		{items(`{"content":"a"}`), "input[0].type", "needs a"},
		{items(`{"role":"user"}`), "input[0].content", "missing"},
		{items(`{"role":"user","content":[{"type":"input_image","image_url":"https://x/y.png"}]}`), "input[0].content[0].image_url", "fetches nothing"},
		{items(`{"role":"user","content":[{"type":"input_image","file_id":"x"}]}`), "input[0].content[0].file_id", "keeps no files"},
		{items(`{"role":"user","content":[{"type":"input_file","file_data":"x"}]}`), "input[0].content[0].type", `"input_file" is not supported`},
		{items(`{"type":"function_call","name":"f"}`), "input[0].call_id", "missing"},
	} {
		_, err := Parse([]byte(tc.body))
		var no *chat.FieldError
		if !errors.As(err, &no) || no.Param != tc.param || !strings.Contains(no.Message, tc.says) {
			t.Errorf("%s: %v, param %+v; want %q, %q", tc.body, err, no, tc.param, tc.says)
		}
	}
}

// FuzzParse: whatever comes is refused with a field, or asks the engine in valid
// JSON and is repeated in valid JSON.
func FuzzParse(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(`{"model":"m",` + a.request + `}`))
	}
	f.Add([]byte(items(`{"type":"reasoning","content":[{"type":"reasoning_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{"},{"type":"function_call_output","call_id":"c","output":[]}`)))
	f.Add([]byte(hello(`,"text":{"format":{"type":"json_schema","name":"x","schema":{}}},"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := Parse(body)
		var no *chat.FieldError
		switch {
		case err != nil && (!errors.As(err, &no) || no.Message == ""):
			t.Fatalf("%v", err)
		case err == nil && !json.Valid(q.Chat.Append(nil)):
			t.Fatalf("the engine is asked %s", q.Chat.Append(nil))
		case err == nil && !json.Valid(append([]byte(`{"x":0`), append(q.echo, '}')...)):
			t.Fatalf("repeated is %s", q.echo)
		}
	})
}
