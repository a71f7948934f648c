package continuation_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"relay/api/chat"
	"relay/api/continuation"
)

// Chunks as the engine sends them.
const (
	roleChunk  = `{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"}`
	firstChunk = `{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"},"logprobs":{"content":[{"id":5,"token":"Hello","bytes":[72,101,108,108,111],"prob":1.0,"top_probs":[]}]}}],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk","timings":{"cache_n":2,"prompt_n":8,"prompt_ms":1.5,"predicted_n":1,"predicted_ms":4.0}}`
	nextChunk  = `{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" you"},"logprobs":{"content":[{"id":6,"token":" you","bytes":[32,121,111,117],"prob":1.0,"top_probs":[]}]}}],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk","timings":{"cache_n":2,"prompt_n":8,"prompt_ms":1.5,"predicted_n":2,"predicted_ms":8.0}}`
	thinkChunk = `{"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"Hm"}}],"created":7,"id":"chatcmpl-1","model":"m","object":"chat.completion.chunk","timings":{"cache_n":2,"prompt_n":8,"predicted_n":2}}`
	callChunk  = `{"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"f","arguments":"{"}}]}}],"created":7,"id":"chatcmpl-1","model":"m","object":"chat.completion.chunk"}`
	endChunk   = `{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"}`
	textChunk  = `{"choices":[{"text":"Hello","index":0,"logprobs":{"content":[{"id":5,"token":"Hello","bytes":[72,101,108,108,111],"prob":1.0,"top_probs":[{"id":5,"token":"Hello","bytes":[72,101,108,108,111],"prob":1.0}]}]},"finish_reason":null}],"created":7,"id":"chatcmpl-1","model":"m","object":"text_completion","timings":{"cache_n":0,"prompt_n":4,"predicted_n":1}}`
)

func delivered(t *testing.T, kind chat.Kind, chunks ...string) *continuation.Track {
	t.Helper()
	track := continuation.New(kind, nil)
	for _, c := range chunks {
		var p continuation.Piece
		if err := p.Read([]byte(c)); err != nil {
			t.Fatal(err)
		}
		track.Delivered(&p)
	}
	return track
}

const messages = `"messages":[{"role":"user","content":"hi"}]`

// TestBodies: what the engine that goes on is asked.
func TestBodies(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   chat.Kind
		chunks []string
		body   string
		asks   string // paths
		want   string // the last body; a seed is taken out
	}{
		{"nothing yet", chat.OfChat, []string{roleChunk}, `{` + messages + `,"max_tokens":9,"grammar":"x","seed":1}`, "/v1/chat/completions", `{` + messages + `,"max_tokens":9,"grammar":"x"}`},
		{"ids", chat.OfChat, []string{roleChunk, firstChunk, nextChunk}, `{` + messages + `,"max_tokens":9,"n_probs":1,"reasoning_format":"auto","temperature":0.5}`, "/apply-template /v1/completions",
			`{"prompt":["<p>",5,6],"n_predict":7,"n_probs":1,"temperature":0.5}`},
		{"logprobs", chat.OfChat, []string{roleChunk, firstChunk}, `{` + messages + `,"logprobs":true,"top_logprobs":3,"max_completion_tokens":5}`, "/apply-template /v1/completions", `{"prompt":["<p>",5],"n_predict":4,"n_probs":3}`},
		{"as many as fit", chat.OfChat, []string{firstChunk}, `{` + messages + `,"max_tokens":5,"n_predict":-1}`, "/apply-template /v1/completions", `{"prompt":["<p>",5],"max_tokens":5,"n_predict":-1}`},
		{"n_predict goes before", chat.OfChat, []string{firstChunk}, `{` + messages + `,"max_tokens":5,"n_predict":4}`, "/apply-template /v1/completions", `{"prompt":["<p>",5],"n_predict":3}`},
		{"tools", chat.OfChat, []string{firstChunk}, `{` + messages + `,"tools":[{}]}`, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello"}],"tools":[{}],"add_generation_prompt":false,"continue_final_message":"content"}`},
		{"no tools to choose", chat.OfChat, []string{firstChunk}, `{` + messages + `,"tools":[{}],"tool_choice":"none"}`, "/apply-template /v1/completions", `{"prompt":["<p>",5]}`},
		{"an image", chat.OfChat, []string{firstChunk}, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}`, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]},{"role":"assistant","content":"Hello"}],"add_generation_prompt":false,"continue_final_message":"content"}`},
		{"thinking", chat.OfChat, []string{roleChunk, thinkChunk}, `{` + messages + `,"max_tokens":9}`, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"","reasoning_content":"Hm"}],"n_predict":7,"add_generation_prompt":false,"continue_final_message":"reasoning_content"}`},
		{"after thinking, of its own", chat.OfChat, []string{thinkChunk, firstChunk}, `{"messages":[{"role":"assistant","name":"x","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}],"tools":[{}],"continue_final_message":true}`, "/v1/chat/completions",
			`{"messages":[{"role":"assistant","name":"x","content":"A\nBHello","reasoning_content":"Hm"}],"tools":[{}],"add_generation_prompt":false,"continue_final_message":"content"}`},
		{"a text", chat.OfText, []string{textChunk}, `{"prompt":"Say","max_tokens":3}`, "/v1/completions", `{"prompt":["Say",5],"n_predict":2}`},
		{"ids of a list", chat.OfText, []string{textChunk}, `{"prompt":[[1,2]]}`, "/v1/completions", `{"prompt":[1,2,5]}`},
		{"a list of one", chat.OfText, []string{textChunk}, `{"prompt":["Say"],"stop":["x"]}`, "/v1/completions", `{"prompt":["Say",5],"stop":["x"]}`},
		{"no indent, no time", chat.OfText, []string{textChunk}, `{"prompt":"Say","n_indent":0,"t_max_predict_ms":-1}`, "/v1/completions", `{"prompt":["Say",5],"n_indent":0,"t_max_predict_ms":-1}`},
		{"any seed", chat.OfText, []string{textChunk}, `{"prompt":"Say","seed":-1}`, "/v1/completions", `{"prompt":["Say",5],"seed":-1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := delivered(t, tc.kind, tc.chunks...).Plan([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for !plan.Next().Stream {
				paths = append(paths, plan.Next().Path)
				if err := plan.Answer([]byte(`{"prompt":"<p>"}`)); err != nil {
					t.Fatal(err)
				}
			}
			last := plan.Next()
			if got := strings.Join(append(paths, last.Path), " "); got != tc.asks {
				t.Errorf("it asks %s", got)
			}
			var got, want map[string]any
			if json.Unmarshal(last.Body, &got) != nil || json.Unmarshal([]byte(tc.want), &want) != nil {
				t.Fatalf("%s", last.Body)
			}
			if want["seed"] == nil {
				delete(got, "seed")
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s", last.Body)
			}
		})
	}
}

// TestCannot: what cannot be gone on with is refused by name.
func TestCannot(t *testing.T) {
	for _, tc := range []struct{ chunk, body, says string }{
		{firstChunk, `{` + messages + `,"n":2}`, "several"},
		{firstChunk, `{` + messages + `,"grammar":"root ::= x"}`, "grammar"},
		{firstChunk, `{` + messages + `,"json_schema":{}}`, "json_schema"},
		{firstChunk, `{` + messages + `,"response_format":{"type":"json_object"}}`, "response_format"},
		{firstChunk, `{` + messages + `,"mirostat":2}`, "mirostat"},
		{firstChunk, `{` + messages + `,"samplers":["top_k","adaptive_p"]}`, "adaptive_p"},
		{firstChunk, `{` + messages + `,"n_indent":4}`, "n_indent"},
		{firstChunk, `{` + messages + `,"t_max_predict_ms":1e3}`, "t_max_predict_ms"},
		{callChunk, `{` + messages + `,"tools":[{}]}`, "tool call"},
		{thinkChunk, `{` + messages + `,"reasoning_format":"deepseek-legacy"}`, "reasoning_format"},
		{firstChunk, `not JSON`, "not known"},
		{strings.Replace(firstChunk, `"index":0`, `"index":1`, 1), `{` + messages + `}`, "several"},
	} {
		_, err := delivered(t, chat.OfChat, tc.chunk).Plan([]byte(tc.body))
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.body, err)
		}
	}
	if _, err := delivered(t, chat.OfText, textChunk).Plan([]byte(`{"prompt":["a","b"]}`)); err == nil {
		t.Error("one of several prompts is gone on with")
	}
}

// TestEnding: what is left of an answer that needs no engine.
func TestEnding(t *testing.T) {
	for _, tc := range []struct {
		name   string
		chunks []string
		body   string
		want   []string
	}{
		{"all its tokens", []string{roleChunk, firstChunk, nextChunk}, `{` + messages + `,"max_tokens":2}`, []string{
			`{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"}`,
			`{"choices":[],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk","usage":{"completion_tokens":2,"prompt_tokens":10,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":2}},"timings":{"cache_n":2,"prompt_n":8,"prompt_ms":1.5,"predicted_n":2,"predicted_ms":8.0}}`,
		}},
		{"but its usage", []string{roleChunk, firstChunk, endChunk}, `{` + messages + `}`, []string{
			`{"choices":[],"created":7,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk","usage":{"completion_tokens":1,"prompt_tokens":10,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":2}},"timings":{"cache_n":2,"prompt_n":8,"prompt_ms":1.5,"predicted_n":1,"predicted_ms":4.0}}`,
		}},
	} {
		plan, err := delivered(t, chat.OfChat, tc.chunks...).Plan([]byte(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range plan.Ending() {
			got = append(got, string(c))
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %s", tc.name, strings.Join(got, "\n"))
		}
	}
}

// TestEndedByAStopString: a chunk whose token shows less than it is was the last before the
// finish; one that completes what was held back is not.
func TestEndedByAStopString(t *testing.T) {
	chunk := func(text, bytes, own string) string {
		return `{"choices":[{"text":"` + text + `","index":0,"logprobs":{"content":[{"id":5,"token":"","bytes":` + bytes + `,"prob":1.0,"top_probs":[{"id":4,"bytes":[9]},{"id":5,"bytes":` + own + `}]}]},"finish_reason":null}],"id":"chatcmpl-1","timings":{"cache_n":0,"prompt_n":4,"predicted_n":3}}`
	}
	for _, tc := range []struct {
		name, text, bytes, own string
		ended                  bool
	}{
		{"a part", "He", "[72,101]", "[72,101,108]", true},
		{"a rest of the token before", "H", "[72]", "[101]", true},
		{"digits alike", "e", "[101]", "[1]", true},
		{"all of it", "He", "[72,101]", "[72,101]", false},
		{"and what was held", "He", "[72,101]", "[101]", false},
		{"the end of the answer, and what was held", "He", "[72,101]", "[]", false},
		{"nothing left", "", "[]", "[72]", false},
	} {
		plan, err := delivered(t, chat.OfText, textChunk, chunk(tc.text, tc.bytes, tc.own)).Plan([]byte(`{"prompt":"Say","stop":["l"]}`))
		if err != nil {
			t.Fatal(err)
		}
		if ended := plan.Ending() != nil; ended != tc.ended {
			t.Errorf("%s: ended is %v", tc.name, ended)
		} else if ended && !strings.Contains(string(plan.Ending()[0]), `"finish_reason":"stop"`) {
			t.Errorf("%s: %s", tc.name, plan.Ending())
		}
	}
}

// TestWithout: who asked for no ids sees none.
func TestWithout(t *testing.T) {
	for _, tc := range []struct {
		kind       chat.Kind
		with, want string
	}{
		{chat.OfChat, `[{"index":0,"delta":{"content":"\"logprobs\""},"logprobs":{"content":[]}}]`, `[{"index":0,"delta":{"content":"\"logprobs\""}}]`},
		{chat.OfText, `[{"text":"a","logprobs":{"content":[{"id":1}]},"finish_reason":null}]`, `[{"text":"a","logprobs":null,"finish_reason":null}]`},
		{chat.OfChat, `[{"logprobs":{"content":[{"token":"\"]}"}]},"index":0},{"index":1,"logprobs":null}]`, `[{"index":0},{"index":1}]`},
		{chat.OfChat, `[{"logprobs":{}}]`, `[{}]`},
		{chat.OfChat, `[]`, `[]`},
		{chat.OfChat, `[{"delta":{}}]`, `[{"delta":{}}]`},
	} {
		if got := continuation.Without(tc.kind, []byte(tc.with)); string(got) != tc.want {
			t.Errorf("%s became %s", tc.with, got)
		}
	}
}
