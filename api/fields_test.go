package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"relay/api/continuation"
	"relay/llama/sim"
)

// The fields that OpenAI's documentation lists for the routes, each with a value that is
// taken, or "" for one that is refused by name whatever its value.
var documented = map[string]map[string]string{
	"/v1/chat/completions": {
		"messages": `[{"role":"user","content":"a"}]`, "model": `"tiny"`, "audio": "", "frequency_penalty": "0.5", "function_call": "", "functions": "",
		"logit_bias": `{"5":-100}`, "logprobs": "true", "max_completion_tokens": "2", "max_tokens": "2", "metadata": `{"a":"b"}`, "modalities": `["text"]`,
		"moderation": "", "n": "1", "parallel_tool_calls": "true", "prediction": "", "presence_penalty": "0.1", "prompt_cache_key": `"x"`,
		"prompt_cache_retention": `"24h"`, "reasoning_effort": `"low"`, "response_format": `{"type":"text"}`, "safety_identifier": `"x"`, "seed": "1",
		"service_tier": `"auto"`, "stop": `["x"]`, "store": "false", "stream": "true", "stream_options": `{"include_usage":true,"include_obfuscation":false}`,
		"temperature": "0", "tool_choice": `"auto"`, "tools": `[{"type":"function","function":{"name":"f","parameters":{}}}]`, "top_logprobs": "2",
		"top_p": "1", "user": `"me"`, "verbosity": `"medium"`, "web_search_options": "",
	},
	"/v1/completions": {
		"model": `"tiny"`, "prompt": `"a"`, "best_of": "1", "echo": "false", "frequency_penalty": "0", "logit_bias": "{}", "logprobs": "1", "max_tokens": "2",
		"n": "1", "presence_penalty": "0", "seed": "1", "stop": `"x"`, "stream": "true", "stream_options": `{"include_usage":true}`, "suffix": "",
		"temperature": "0", "top_p": "1", "user": `"me"`,
	},
	"/v1/embeddings": {"model": `"vectors"`, "input": `"a"`, "dimensions": "2", "encoding_format": `"base64"`, "user": `"me"`},
}

// base is the body that a field is tried in, with what else it needs.
func base(path, field, value string) string {
	body := map[string]json.RawMessage{"model": json.RawMessage(`"m"`)}
	if path == "/v1/rerank" {
		body["query"] = json.RawMessage(`"q"`)
	}
	for _, name := range []string{"model", "messages", "prompt", "input"} {
		if v := documented[path][name]; v != "" {
			body[name] = json.RawMessage(v)
		}
	}
	switch field {
	case "stream_options":
		body["stream"] = json.RawMessage("true")
	case "top_logprobs":
		body["logprobs"] = json.RawMessage("true")
	case "tool_choice", "parallel_tool_calls":
		body["tools"] = json.RawMessage(documented[path]["tools"])
	}
	body[field] = json.RawMessage(value)
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Every field that is documented is taken or refused by its name; null is as if it were
// not there, and a field that nobody knows is refused too.
func TestEveryDocumentedFieldIsTakenOrRefused(t *testing.T) {
	p := newPeer(t, "one", sim.Options{Embeddings: true}, nil)
	p.sched.models = kindsOfModels()
	for path, list := range documented {
		for field, value := range list {
			refused := value == ""
			if refused {
				value = "{}"
			}
			got := send(t, "POST", p.url+path, base(path, field, value))
			a := readAnswer(t, got.body)
			switch {
			case refused && (got.status != 400 || a.err == nil || a.err.param() != field || !strings.Contains(a.err.Message, field)):
				t.Errorf("%s %s: %v", path, field, got)
			case !refused && got.status != 200:
				t.Errorf("%s %s=%s: %v", path, field, value, got)
			}
			if field == "model" || field == "messages" || field == "prompt" || field == "input" {
				continue
			}
			if got := send(t, "POST", p.url+path, base(path, field, "null")); got.status != 200 {
				t.Errorf("%s %s=null: %v", path, field, got)
			}
		}
		got := send(t, "POST", p.url+path, base(path, "tempreature", "1"))
		if a := readAnswer(t, got.body); got.status != 400 || a.err.param() != "tempreature" || a.err.Code != "invalid_request" {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// TestFieldsRefused is every refusal of a value, as it is said.
func TestFieldsRefused(t *testing.T) {
	tables := map[string]dialect{
		"/v1/chat/completions": chatDialect, "/v1/completions": textDialect, "/v1/embeddings": embeddingsDialect, "/v1/rerank": rerankDialect,
		"/v1/tokenize": tokenizeDialect, "/v1/detokenize": detokenizeDialect,
	}
	wrong := map[string]map[string][]string{
		"/v1/chat/completions": {
			"stream": {`"yes"`, `1`}, "n": {`0`, `129`, `1.5`, `"2"`}, "stop": {`5`, `[1]`, `""`, `[""]`, `["",""]`, `["a",""]`}, "max_tokens": {`0`, `-1`, `"5"`}, "max_completion_tokens": {`0`, `1e3`, `1.0`, `1000000000`},
			"logprobs": {`1`}, "top_logprobs": {`21`, `-1`, `"2"`}, "messages": {`"hi"`, `{}`, `[]`, `[ ]`, `["hi"]`, `[{}]`, `[{"content":"a"}]`, `[{"role":"usr","content":"a"}]`, `[{"role":5}]`, `[{"role":null}]`, `[{"role":"function","name":"f","content":"a"}]`}, "reasoning_effort": {`"hgh"`, `5`, `""`}, "temperature": {`"x"`, `true`}, "top_p": {`[]`}, "frequency_penalty": {`"0"`}, "presence_penalty": {`{}`}, "modalities": {`["text","audio"]`, `["audio"]`}, "verbosity": {`"low"`},
			"store": {`true`}, "service_tier": {`"priority"`}, "stream_options": {`true`, `{"what":1}`, `{"include_usage":1}`, `{"include_obfuscation":true}`}, "user": {`5`},
			"tools":           {`{}`, `["f"]`, `[{"type":"web_search"}]`, `[{"type":"function"}]`, `[{"type":"function","function":{}}]`},
			"tool_choice":     {`"any"`, `5`, `{"type":"custom"}`, `{"type":"function","function":{"name":"g"}}`, `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`},
			"response_format": {`"json"`, `{"type":"xml"}`, `{"type":"json_schema"}`, `{"type":"json_schema","json_schema":{"name":"x"}}`, `{"type":"json_object","schema":[]}`},
			"functions":       {`[]`}, "function_call": {`"auto"`}, "audio": {`{}`}, "prediction": {`{}`}, "web_search_options": {`{}`}, "moderation": {`{}`},
			"logit_bias": {`5`, `"x"`, `{"a":1}`, `{"-1":1}`, `{"5":101}`, `{"5":"1"}`, `{"5":false}`, `[5]`, `[[5]]`, `[[5,true]]`, `[[-1,1]]`, `[[5,-101]]`},
			"seed":       {`"x"`, `1.5`, `{}`, `99999999999999999999`}, "samplers": {`"top_k"`, `[1]`, `["top_k","best"]`}, "mirostat": {`3`, `-1`, `"2"`, `1.5`},
			"chat_template_kwargs": {`5`, `[]`}, "add_generation_prompt": {`1`}, "continue_final_message": {`"content"`},
			"reasoning_budget_tokens": {`-2`, `"5"`}, "thinking_budget_tokens": {`1.5`},
			"id_slot": {`0`}, "lora": {`[]`}, "response_fields": {`[]`}, "nosuch": {`1`}, "": {`1`},
		},
		"/v1/completions": {
			"prompt": {`5`, `{}`, `[]`, `[{"prompt_string":"x"}]`, `[null]`}, "echo": {`true`}, "best_of": {`2`}, "suffix": {`"x"`}, "logprobs": {`true`, `21`}, "messages": {`[]`},
			"max_tokens": {`0`}, "n_predict": {`0`, `-2`, `"5"`},
		},
		"/v1/embeddings": {
			"input": {`5`, `[]`, `{}`, `""`, `["a",""]`, `[[]]`, `[` + strings.Repeat(`"a",`, 2048) + `"a"]`}, "dimensions": {`0`, `"2"`}, "encoding_format": {`"hex"`, `5`}, "stream": {`true`},
		},
		"/v1/rerank": {
			"query": {`5`}, "documents": {`"a"`, `[]`, `[5]`, `[{"text":5}]`, `[{"text":"a","title":"b"}]`}, "top_n": {`0`}, "return_documents": {`1`}, "rank_fields": {`[]`},
		},
		"/v1/tokenize":   {"content": {`5`, `["a"]`}, "with_pieces": {`1`}, "text": {`"a"`}, "prompt": {`"a"`}},
		"/v1/detokenize": {"tokens": {`"a"`, `["a"]`, `[1.5]`, `[5,-1]`}},
	}
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(wrong)) {
		for _, field := range slices.Sorted(maps.Keys(wrong[path])) {
			for _, value := range wrong[path][field] {
				body := base(path, field, value)
				q, no := tables[path](nil, []byte(body))
				if no == nil {
					t.Errorf("%s %s=%s is taken: %q", path, field, clip(value, 60), q.calling("x"))
					continue
				}
				if no.param != field || no.verdict().status != 400 {
					t.Errorf("%s %s=%s: %q, %s", path, field, clip(value, 60), no.param, no.message)
				}
				fmt.Fprintf(&b, "%s %s=%s\n    %s\n", path, field, clip(value, 60), no.message)
			}
		}
	}
	// What only fields together can be wrong in.
	for _, body := range []string{
		`{"model":"tiny","messages":[{"role":"user","content":"a"}],"stream_options":{"include_usage":true}}`, `{"model":"tiny","messages":[{"role":"user","content":"a"}],"max_tokens":1,"max_completion_tokens":2}`,
		`{"model":"tiny","messages":[{"role":"user","content":"a"}],"top_logprobs":2}`, `{"model":"tiny","messages":[{"role":"user","content":"a"}],"tool_choice":"required"}`,
		`{"model":"tiny","messages":[{"role":"user","content":"a"}],"logprobs":true,"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"model":"tiny","messages":[{"role":"user","content":[{"type":"file","file":{}}]}]}`, `{"model":"tiny","messages":[{"role":"user","content":[{"type":"video_url"}]}]}`,
		`{"model":"tiny","messages":[{"role":"user","content":[{"text":"a"}]}]}`, `{"model":"tiny","messages":[{"role":"user","content":[{"type":5}]}]}`,
		`{"model":"tiny","messages":[{"role":"assistant","function_call":{"name":"f"}}]}`, `{"model":"tiny","messages":[{"role":"assistant","audio":{"id":"x"}}]}`,
	} {
		_, no := chatDialect(nil, []byte(body))
		if no == nil || no.param == "" {
			t.Errorf("%s: %v", body, no)
			continue
		}
		fmt.Fprintf(&b, "%s\n    %s\n", body, no.message)
	}
	golden(t, "fields.golden", b.String())
}

// TestEchoedMessagesAreTaken: clients send back what they were sent, with whatever their
// own types have beside.
func TestEchoedMessagesAreTaken(t *testing.T) {
	for _, message := range []string{
		`{"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,"function_call":null,"reasoning_content":"r","reasoning":"r","reasoning_details":[{"type":"x"}],"tool_calls":[],"parsed":{"role":"usr"}}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","index":0,"function":{"name":"f","arguments":"{}","parsed_arguments":{"role":"x"}}}]}`,
		`{"role":"tool","tool_call_id":"1","name":"f","content":[{"type":"text","text":"t"}]}`,
		`{"role":"developer","content":"d","name":"n"}`, `{"content":"s","role":"system"}`, `{"r\u006fle":"\u0075ser","content":"s"}`,
	} {
		body := `{"model":"m","messages":[` + message + `,{"role":"user","content":"b"}]}`
		if _, no := chatDialect(nil, []byte(body)); no != nil {
			t.Errorf("%s: %s", message, no.message)
		}
	}
}

// TestWhatTheEngineGets of what a client asks for, where relay puts it into other words.
func TestWhatTheEngineGets(t *testing.T) {
	const asks = `,"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true}`
	ids := asks[:len(asks)-1] + continuation.IDs + "}" // Of one answer whose logprobs are not asked for anyway.
	const tools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	for _, c := range []struct {
		dialect    dialect
		body, want string
	}{
		{chatDialect, `{"messages":[{"role":"user","content":"a"}],"model":"m","stream":false,"stream_options":null,"user":"u","store":false}`, `"messages":[{"role":"user","content":"a"}]` + ids},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],"logprobs":true}`, `"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":1` + asks},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":3}`, `"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":3` + asks},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],` + tools + `,"tool_choice":{"type":"function","function":{"name":"g"}}}`,
			`"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":"required"` + ids},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],` + tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}}`,
			`"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"` + ids},
		{chatDialect, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"refusal","refusal":"no"},{"refusal":"\"","type":"refusal"}]}]}`,
			`"messages":[{"role":"assistant","content":[{"type":"text","text":"no"},{"text":"\"","type":"text"}]}]` + ids},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":5,"max_completion_tokens":5}`, `"messages":[{"role":"user","content":"a"}],"max_completion_tokens":5` + ids},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object"}}`, `"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object","schema":{"type":"object"}}` + ids},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"string"}}}}`,
			`"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"string"}}}` + ids},
		{textDialect, `{"model":"m","prompt":"a","logprobs":0,"echo":false}`, `"prompt":"a","logprobs":1` + asks},
		{chatDialect, `{"model":"m","messages":[{"role":"user","content":"a"}],"n":2}`, `"messages":[{"role":"user","content":"a"}],"n":2` + asks},
		{textDialect, `{"model":"m","prompt":["a","b"]}`, `"prompt":["a","b"]` + asks},
		{textDialect, `{"model":"m","prompt":"a"}`, `"prompt":"a"` + ids},
		{embeddingsDialect, `{"model":"m","input":"a","dimensions":5,"encoding_format":"base64"}`, `"input":"a","encoding_format":"float"}`},
		{rerankDialect, `{"model":"m","query":"q","documents":["a",{"text":"b"}],"top_n":1,"return_documents":true}`, `"query":"q","documents":["a","b"]}`},
		{tokenizeDialect, `{"model":"m","content":"a","with_pieces":true}`, `"content":"a","with_pieces":true}`},
	} {
		q, no := c.dialect(nil, []byte(c.body))
		if no != nil {
			t.Errorf("%s: %v", c.body, no)
			continue
		}
		var got []byte
		for _, p := range q.calling("uid") {
			got = append(got, p...)
		}
		if want := `{"model":"uid",` + c.want; string(got) != want || !json.Valid(got) {
			t.Errorf("%s became\n%s, want\n%s", c.body, got, want)
		}
	}
}

// Whatever a body is, it is refused in words or becomes a body that the engine can read,
// with no field that the tables do not know.
func FuzzFields(f *testing.F) {
	for path, list := range documented {
		for field, value := range list {
			if value == "" {
				value = "{}"
			}
			f.Add(base(path, field, value))
		}
	}
	for _, body := range []string{`{"model":"m","messages":[{"content":[{"type":"refusal","refusal":"x","type":"refusal"}]}]}`, `{"model":"m","prompt":[[1],"a"],"logprobs":0}`} {
		f.Add(body)
	}
	known := map[string]fields{pathChat: chatFields, pathText: textFields, pathEmbeddings: embeddingFields, pathRerank: rerankFields, pathTokenize: tokenizeFields, pathDetokenize: detokenizeFields}
	f.Fuzz(func(t *testing.T, body string) {
		for _, speak := range []dialect{chatDialect, textDialect, embeddingsDialect, rerankDialect, tokenizeDialect, detokenizeDialect} {
			q, no := speak(nil, []byte(body))
			if no != nil {
				if v := no.verdict(); v.status != 400 || no.message == "" {
					t.Fatalf("%q: %+v", body, no)
				}
				continue
			}
			var sent []byte
			for _, p := range q.calling("uid") {
				sent = append(sent, p...)
			}
			var object map[string]json.RawMessage
			if err := json.Unmarshal(sent, &object); err != nil {
				t.Fatalf("%q became %q: %v", body, sent, err)
			}
			if string(object["model"]) != `"uid"` || q.model == "" || (q.reply == nil) == (q.whole == nil) {
				t.Fatalf("%q became %q", body, sent)
			}
			for name := range object {
				if q.tracked && strings.Contains(continuation.IDs, `"`+name+`"`) {
					continue
				}
				if is, ok := known[q.path][name]; !ok || is.hint || is.refused != "" {
					t.Fatalf("%q became %q, with %q", body, sent, name)
				}
			}
		}
	})
}
