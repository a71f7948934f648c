package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What is recorded is what five llama-servers said of one small model, with two
// slots of 512 tokens: one as it is, one with 1024 tokens, a template that knows
// tools and "<tool_call>\n" as the text of token 560, one with --embeddings --pooling mean, one with --reranking and one with
// a projector.
// The engines that are named are asked what is not recorded yet.
var record = flag.String("record", "", "addresses of real llama-servers whose answers go into testdata/engine.json, as plain=http://127.0.0.1:8080,tools=…,embed=…,rerank=…,images=…")

// exchange is one question and what llama-server said to it.
type exchange struct {
	Name   string `json:"name"`
	Engine string `json:"engine,omitempty"` // empty: the plain one
	Path   string `json:"path"`
	Body   string `json:"body,omitempty"` // empty: GET
	Status int    `json:"status"`
	Type   string `json:"type"`
	Answer string `json:"answer"`
}

// seen is a picture of 8 by 8 pixels.
const seen = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAaklEQVR4nBWMQREAQQzCqqRKUBIlVYISlKDo9niSTGaGHTQw3OAhQ4eZZRctLLd4ydJ9QKyQQJywiKge+NV3/jswBPrCc+yh++87fOToPWDWyL98xiamfiBsUP7EBYeE5oGyRf3DV1xSWj4Df0sBxNBRMwAAAABJRU5ErkJggg=="

func questions() []exchange {
	look := func(url string) string {
		return `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"` + url + `"}},{"type":"text","text":"it"}]}],"max_tokens":2,"ignore_eos":true}`
	}
	const hello = `"messages":[{"role":"user","content":"hello"}],"max_tokens":3,"temperature":0,"ignore_eos":true`
	const weather = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string","enum":["Paris"]}},"required":["city"]}}}]`
	// The bias is towards the token that begins a call; there is room for one.
	const called = `"messages":[{"role":"user","content":"hello"}],"temperature":0,"tool_choice":"required","logit_bias":[[560,50]],"max_tokens":50`
	const what = `"prompt":"What is","max_tokens":3,"temperature":0,"ignore_eos":true`
	const ids = `"n_probs":1,"post_sampling_probs":true`
	const begun = `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}],"max_tokens":2,"temperature":0,"ignore_eos":true`
	const still = `,"add_generation_prompt":false,"continue_final_message":`
	// What a grammar makes the engine say a script says to the stand-in.
	const spelt = `"messages":[{"role":"user","content":"spell"}],"temperature":0,"grammar":"root ::= \"hé x STX STOP y\""`
	const speltFirst = `"messages":[{"role":"user","content":"begin"}],"temperature":0,"grammar":"root ::= \"éx\""`
	return []exchange{
		{Name: "health", Path: "/health"},
		{Name: "models", Path: "/v1/models"},
		{Name: "props", Path: "/props"},
		{Name: "no route", Path: "/nosuch"},
		{Name: "chat", Path: "/v1/chat/completions", Body: `{` + hello + `}`},
		{Name: "chat stream", Path: "/v1/chat/completions", Body: `{"stream":true,` + hello + `}`},
		{Name: "chat stream usage", Path: "/v1/chat/completions", Body: `{"stream":true,"stream_options":{"include_usage":true},` + hello + `}`},
		{Name: "chat logprobs", Path: "/v1/chat/completions", Body: `{"logprobs":true,"top_logprobs":1,` + hello + `}`},
		{Name: "chat stream logprobs", Path: "/v1/chat/completions", Body: `{"stream":true,"logprobs":true,"top_logprobs":1,` + hello + `}`},
		{Name: "chat twice", Path: "/v1/chat/completions", Body: `{"n":2,` + hello + `}`},
		{Name: "chat parts", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"max_tokens":1,"ignore_eos":true}`},
		{Name: "chat no tokens", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"a"}],"max_tokens":0,"ignore_eos":true}`},
		{Name: "completion", Path: "/v1/completions", Body: `{` + what + `}`},
		{Name: "completion stream", Path: "/v1/completions", Body: `{"stream":true,` + what + `}`},
		{Name: "completion stream usage", Path: "/v1/completions", Body: `{"stream":true,"stream_options":{"include_usage":true},` + what + `}`},
		{Name: "completion logprobs", Path: "/v1/completions", Body: `{"logprobs":1,"prompt":"What is","max_tokens":2,"temperature":0}`},
		{Name: "completion of ids", Path: "/v1/completions", Body: `{"prompt":[1,50,60],"max_tokens":2,"ignore_eos":true}`},
		{Name: "completion of a mix", Path: "/v1/completions", Body: `{"prompt":[1,50,"ab"],"max_tokens":2,"ignore_eos":true}`},
		{Name: "completion of two", Path: "/v1/completions", Body: `{"prompt":["a","b"],"max_tokens":1,"ignore_eos":true}`},
		{Name: "native", Path: "/completion", Body: `{"prompt":"What is","n_predict":2,"temperature":0,"ignore_eos":true}`},
		{Name: "native tokens", Path: "/completion", Body: `{"prompt":"What is","n_predict":2,"return_tokens":true,"ignore_eos":true}`},
		{Name: "native probs", Path: "/completion", Body: `{"prompt":"What is","n_predict":2,"n_probs":1,"ignore_eos":true}`},
		{Name: "native stream", Path: "/completion", Body: `{"prompt":[1,50,60],"n_predict":2,"stream":true,"return_tokens":true,"ignore_eos":true}`},
		{Name: "tokenize", Path: "/tokenize", Body: `{"content":"hello <|user|>x","add_special":true}`},
		{Name: "tokenize pieces", Path: "/tokenize", Body: `{"content":"h\u00e9","with_pieces":true}`},
		{Name: "tokenize nothing", Path: "/tokenize", Body: `{}`},
		{Name: "detokenize", Path: "/detokenize", Body: `{"tokens":[1,50,60]}`},
		{Name: "detokenize nothing", Path: "/detokenize", Body: `{}`},
		{Name: "detokenize beyond", Path: "/detokenize", Body: `{"tokens":[99999]}`},
		{Name: "template", Path: "/apply-template", Body: `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"},{"role":"user","content":"b"}]}`},
		{Name: "template prefill", Path: "/apply-template", Body: `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]}`},
		{Name: "not json", Path: "/v1/chat/completions", Body: `notjson`},
		{Name: "no messages", Path: "/v1/chat/completions", Body: `{}`},
		{Name: "messages of no kind", Path: "/v1/chat/completions", Body: `{"messages":"x"}`},
		{Name: "no content", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user"}]}`},
		{Name: "content of no kind", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":5}]}`},
		{Name: "field of no kind", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"}],"max_tokens":"x"}`},
		{Name: "image", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`},
		{Name: "no prompt", Path: "/v1/completions", Body: `{}`},
		{Name: "empty prompts", Path: "/v1/completions", Body: `{"prompt":[]}`},
		{Name: "prompt of no kind", Path: "/completion", Body: `{"prompt":5}`},
		{Name: "ids beyond", Path: "/completion", Body: `{"prompt":[99999],"n_predict":1}`},
		{Name: "too long", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"` + strings.Repeat("hello there ", 2000) + `"}]}`},
		{Name: "metrics off", Path: "/metrics"},
		{Name: "chat told all", Path: "/v1/chat/completions", Body: `{"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true,` + hello + `}`},
		{Name: "chat timings", Path: "/v1/chat/completions", Body: `{"stream":true,"timings_per_token":true,` + hello + `}`},
		{Name: "chat progress", Path: "/v1/chat/completions", Body: `{"stream":true,"return_progress":true,` + hello + `}`},
		{Name: "chat many logprobs", Path: "/v1/chat/completions", Body: `{"logprobs":true,` + hello + `}`},
		{Name: "chat no logprobs", Path: "/v1/chat/completions", Body: `{"logprobs":true,"top_logprobs":0,` + hello + `}`},
		{Name: "chat too many", Path: "/v1/chat/completions", Body: `{"n":3,` + hello + `}`},
		{Name: "chat none", Path: "/v1/chat/completions", Body: `{"n":0,` + hello + `}`},
		{Name: "chat stream of no kind", Path: "/v1/chat/completions", Body: `{"stream":"yes",` + hello + `}`},
		{Name: "chat logprobs of no kind", Path: "/v1/chat/completions", Body: `{"logprobs":"yes",` + hello + `}`},
		{Name: "chat top logprobs alone", Path: "/v1/chat/completions", Body: `{"top_logprobs":2,` + hello + `}`},
		{Name: "chat two prefills", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"a"},{"role":"assistant","content":"a"}]}`},
		{Name: "chat says nothing", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"assistant"}]}`},
		{Name: "chat of less than none", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"a"}],"max_tokens":-5}`},
		{Name: "completion told all", Path: "/v1/completions", Body: `{"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true,"logprobs":2,` + what + `}`},
		{Name: "completion of two stream", Path: "/v1/completions", Body: `{"stream":true,"prompt":["a","b"],"max_tokens":1,"ignore_eos":true}`},
		{Name: "completion logprobs switched", Path: "/v1/completions", Body: `{"logprobs":true,` + what + `}`},
		{Name: "completion twice", Path: "/v1/completions", Body: `{"n":2,` + what + `}`},
		{Name: "completion echo", Path: "/v1/completions", Body: `{"echo":true,"best_of":3,"suffix":"x",` + what + `}`},
		{Name: "native told all", Path: "/completion", Body: `{"prompt":"What is","n_predict":2,"stream":true,"n_probs":1,"timings_per_token":true,"return_progress":true,"ignore_eos":true}`},
		{Name: "chat schema", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}}}`},
		{Name: "chat schema stream", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"}],"stream":true,"response_format":{"type":"json_object","schema":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}}`},
		{Name: "chat format of no kind", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"xml"}}`},
		{Name: "chat schema of no kind", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nosuch"}}}}`},
		{Name: "chat schema and grammar", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"}],"json_schema":{"type":"object"},"grammar":"root ::= \"a\""}`},
		{Name: "completion schema", Path: "/v1/completions", Body: `{"prompt":"a","json_schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}`},
		{Name: "completion schema of no kind", Path: "/v1/completions", Body: `{"prompt":"a","json_schema":{"type":"nosuch"}}`},
		{Name: "no embeddings", Path: "/v1/embeddings", Body: `{"input":"a"}`},
		{Name: "no own embeddings", Path: "/embeddings", Body: `{"input":"a"}`},
		{Name: "no ranks", Path: "/v1/rerank", Body: `{"query":"a","documents":["b"]}`},

		{Engine: "tools", Name: "reasoning", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"think"}],"temperature":0,"grammar":"root ::= \"<think>hum</think>yes\""}`},
		{Engine: "tools", Name: "reasoning stream", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"think"}],"temperature":0,"stream":true,"timings_per_token":true,"grammar":"root ::= \"<think>hum</think>yes\""}`},
		{Engine: "tools", Name: "tool called", Path: "/v1/chat/completions", Body: `{` + called + `,` + weather + `}`},
		{Engine: "tools", Name: "tool called stream", Path: "/v1/chat/completions", Body: `{"stream":true,"stream_options":{"include_usage":true},` + called + `,` + weather + `}`},
		{Engine: "tools", Name: "tool called told all", Path: "/v1/chat/completions", Body: `{"stream":true,"timings_per_token":true,"return_progress":true,` + called + `,` + weather + `}`},
		{Engine: "tools", Name: "tools unused", Path: "/v1/chat/completions", Body: `{` + hello + `,` + weather + `}`},
		{Engine: "tools", Name: "tools forbidden", Path: "/v1/chat/completions", Body: `{` + hello + `,"tool_choice":"none",` + weather + `}`},
		{Engine: "tools", Name: "tools of no choice", Path: "/v1/chat/completions", Body: `{` + hello + `,"tool_choice":"some",` + weather + `}`},
		{Engine: "tools", Name: "no tools to choose", Path: "/v1/chat/completions", Body: `{` + hello + `,"tool_choice":"required","tools":[]}`},
		{Engine: "tools", Name: "a tool of no kind", Path: "/v1/chat/completions", Body: `{` + hello + `,"tools":[{"type":"function","function":{}}]}`},
		{Engine: "tools", Name: "tools logprobs", Path: "/v1/chat/completions", Body: `{"logprobs":true,"stream":true,` + hello + `,` + weather + `}`},
		{Engine: "tools", Name: "tools grammar", Path: "/v1/chat/completions", Body: `{"grammar":"root ::= \"a\"",` + hello + `,` + weather + `}`},
		{Engine: "tools", Name: "tools used", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"sun"}],"max_tokens":2,"ignore_eos":true,` + weather + `}`},
		{Engine: "tools", Name: "a call to go on with", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":"{}"}}]}],` + weather + `}`},
		{Engine: "tools", Name: "props", Path: "/props"},

		{Engine: "embed", Name: "embedding", Path: "/v1/embeddings", Body: `{"input":"hello"}`},
		{Engine: "embed", Name: "embeddings", Path: "/v1/embeddings", Body: `{"input":["hello","b"],"model":"m","dimensions":8}`},
		{Engine: "embed", Name: "embeddings base64", Path: "/v1/embeddings", Body: `{"input":["hello","b"],"encoding_format":"base64"}`},
		{Engine: "embed", Name: "embeddings of ids", Path: "/v1/embeddings", Body: `{"input":[[1,50],[1,60]]}`},
		{Engine: "embed", Name: "embedding of ids", Path: "/v1/embeddings", Body: `{"input":[1,50]}`},
		{Engine: "embed", Name: "embedding of nothing", Path: "/v1/embeddings", Body: `{"input":""}`},
		{Engine: "embed", Name: "embedding of none", Path: "/v1/embeddings", Body: `{"input":[]}`},
		{Engine: "embed", Name: "embedding of no kind", Path: "/v1/embeddings", Body: `{"input":5}`},
		{Engine: "embed", Name: "embedding of ids beyond", Path: "/v1/embeddings", Body: `{"input":[99999]}`},
		{Engine: "embed", Name: "embedding without", Path: "/v1/embeddings", Body: `{}`},
		{Engine: "embed", Name: "embedding encoded in no way", Path: "/v1/embeddings", Body: `{"input":"a","encoding_format":"zip"}`},
		{Engine: "embed", Name: "embedding of content", Path: "/v1/embeddings", Body: `{"content":"a"}`},
		{Engine: "embed", Name: "embedding too long", Path: "/v1/embeddings", Body: `{"input":"` + strings.Repeat("hello there ", 600) + `"}`},
		{Engine: "embed", Name: "own embeddings", Path: "/embeddings", Body: `{"input":["hello","b"]}`},
		{Engine: "embed", Name: "embed chat", Path: "/v1/chat/completions", Body: `{` + hello + `}`},
		{Engine: "embed", Name: "embed no ranks", Path: "/v1/rerank", Body: `{"query":"a","documents":["b"]}`},

		{Engine: "rerank", Name: "rank", Path: "/v1/rerank", Body: `{"query":"a","documents":["b","c"]}`},
		{Engine: "rerank", Name: "rank one", Path: "/rerank", Body: `{"query":"a","documents":["b","c"],"top_n":1,"model":"m","return_documents":true}`},
		{Engine: "rerank", Name: "rank texts", Path: "/v1/rerank", Body: `{"query":"a","texts":["b","c"],"return_text":true}`},
		{Engine: "rerank", Name: "rank none", Path: "/v1/rerank", Body: `{"query":"a","documents":[]}`},
		{Engine: "rerank", Name: "rank no kind", Path: "/v1/rerank", Body: `{"query":"a","documents":[5]}`},
		{Engine: "rerank", Name: "rank without", Path: "/v1/rerank", Body: `{"documents":["b"]}`},
		{Engine: "rerank", Name: "rank by no kind", Path: "/v1/rerank", Body: `{"query":5,"documents":["b"]}`},
		{Engine: "rerank", Name: "rank too long", Path: "/v1/rerank", Body: `{"query":"a","documents":["` + strings.Repeat("hello there ", 600) + `"]}`},

		{Engine: "images", Name: "image seen", Path: "/v1/chat/completions", Body: look("data:image/png;base64," + seen)},
		{Engine: "images", Name: "image template", Path: "/apply-template", Body: look("data:image/png;base64," + seen)},
		{Engine: "images", Name: "image bare", Path: "/v1/chat/completions", Body: look(seen)},
		{Engine: "images", Name: "image of no kind", Path: "/v1/chat/completions", Body: look("data:image/png;base64,AAAA")},
		{Engine: "images", Name: "image of text", Path: "/v1/chat/completions", Body: look("data:text/plain;base64,AAAA")},
		{Engine: "images", Name: "image as it is", Path: "/v1/chat/completions", Body: look("data:image/png,AAAA")},
		{Engine: "images", Name: "image in two", Path: "/v1/chat/completions", Body: look("data:image/png;base64,A,A")},
		{Engine: "images", Name: "image file", Path: "/v1/chat/completions", Body: look("file:///x")},
		{Engine: "images", Name: "image to fetch", Path: "/v1/chat/completions", Body: look("http://127.0.0.1:1/x")},
		{Engine: "images", Name: "image nowhere", Path: "/v1/chat/completions", Body: look("")},
		{Engine: "images", Name: "models with images", Path: "/v1/models"},
		{Engine: "images", Name: "props with images", Path: "/props"},

		{Name: "chat ids", Path: "/v1/chat/completions", Body: `{` + ids + `,` + hello + `}`},
		{Name: "chat stream ids", Path: "/v1/chat/completions", Body: `{"stream":true,` + ids + `,` + hello + `}`},
		{Name: "chat stream ids and times", Path: "/v1/chat/completions", Body: `{"stream":true,"timings_per_token":true,"return_progress":true,` + ids + `,` + hello + `}`},
		{Name: "chat own probabilities", Path: "/v1/chat/completions", Body: `{"n_probs":2,` + hello + `}`},
		{Name: "chat ids and logprobs", Path: "/v1/chat/completions", Body: `{"logprobs":true,"top_logprobs":1,` + ids + `,` + hello + `}`},
		{Name: "chat ids and top logprobs", Path: "/v1/chat/completions", Body: `{"top_logprobs":1,` + ids + `,` + hello + `}`},
		{Name: "completion ids", Path: "/v1/completions", Body: `{` + ids + `,` + what + `}`},
		{Name: "completion stream ids", Path: "/v1/completions", Body: `{"stream":true,"timings_per_token":true,` + ids + `,` + what + `}`},
		{Name: "completion of text and ids", Path: "/v1/completions", Body: `{"prompt":["What is",50,60],"max_tokens":2,"ignore_eos":true}`},
		{Name: "native ids", Path: "/completion", Body: `{"prompt":"What is","n_predict":2,"ignore_eos":true,"temperature":0,` + ids + `}`},
		{Name: "tokenize text and ids", Path: "/tokenize", Body: `{"content":["What is",60],"add_special":true,"with_pieces":true}`},
		{Name: "chat goes on", Path: "/v1/chat/completions", Body: `{` + begun + still + `"content"}`},
		{Name: "chat goes on stream", Path: "/v1/chat/completions", Body: `{"stream":true,` + ids + `,` + begun + still + `"content"}`},
		{Name: "chat goes on and begins", Path: "/v1/chat/completions", Body: `{` + begun + `,"continue_final_message":"content"}`},
		{Name: "template goes on", Path: "/apply-template", Body: `{` + begun + still + `"content"}`},
		{Name: "template of all", Path: "/apply-template", Body: `{"stream":true,"stream_options":{"include_usage":true},"seed":5,"stop":["x"],` + ids + `,` + hello + `}`},
		{Name: "template of nothing to say", Path: "/apply-template", Body: `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false}`},
		{Name: "chat of parts of characters", Path: "/v1/chat/completions", Body: `{"stream":true,"timings_per_token":true,"max_tokens":14,` + ids + `,` + spelt + `}`},
		{Name: "chat begins in a character", Path: "/v1/chat/completions", Body: `{"stream":true,"timings_per_token":true,` + ids + `,` + speltFirst + `}`},
		{Name: "chat ends in a character", Path: "/v1/chat/completions", Body: `{"stream":true,"max_tokens":2,` + ids + `,` + spelt + `}`},
		{Name: "chat of a held stop", Path: "/v1/chat/completions", Body: `{"stream":true,"stop":["STOP"],"timings_per_token":true,` + ids + `,` + spelt + `}`},
		{Name: "chat of a held stop whole", Path: "/v1/chat/completions", Body: `{"stop":["STOP"],` + ids + `,` + spelt + `}`},
		{Name: "chat ends in a held stop", Path: "/v1/chat/completions", Body: `{"stream":true,"stop":["x STOP y"],"max_tokens":8,` + ids + `,` + spelt + `}`},

		{Engine: "tools", Name: "reasoning ids", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"think"}],"temperature":0,"stream":true,"timings_per_token":true,` + ids + `,"grammar":"root ::= \"<think>hum</think>yes\""}`},
		{Engine: "tools", Name: "reasoning goes on", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"think"},{"role":"assistant","content":"","reasoning_content":"h"}],"temperature":0,"stream":true` + still + `"reasoning_content","grammar":"root ::= \"um</think>yes\""}`},
		{Engine: "tools", Name: "reasoning goes on whole", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":"think"},{"role":"assistant","content":"y","reasoning_content":"hum"}],"temperature":0` + still + `true,"grammar":"root ::= \"es\""}`},
		{Engine: "tools", Name: "tool called ids", Path: "/v1/chat/completions", Body: `{"stream":true,` + ids + `,` + called + `,` + weather + `}`},
		{Engine: "tools", Name: "tools unused ids", Path: "/v1/chat/completions", Body: `{"stream":true,` + ids + `,` + hello + `,` + weather + `}`},
		{Engine: "tools", Name: "template of tools and logprobs", Path: "/apply-template", Body: `{"logprobs":true,"stream":true,` + hello + `,` + weather + `}`},

		{Name: "video", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":[{"type":"input_video"}]}]}`},
		{Name: "audio", Path: "/v1/chat/completions", Body: `{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`},
	}
}

const recorded = "testdata/engine.json"

// TestShapes holds the stand-in to what the real engine said when it was asked
// the same: status, content type, and every key and kind of value, in order.
func TestShapes(t *testing.T) {
	if *record != "" {
		recordAnswers(t, *record)
	}
	data, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var real []exchange
	if err := json.Unmarshal(data, &real); err != nil {
		t.Fatal(err)
	}
	if len(real) != len(questions()) {
		t.Fatalf("%d answers are recorded for %d questions: run with -record", len(real), len(questions()))
	}
	thinks := []Script{{Match: "think", Turns: []Turn{{ReasoningContent: "hum", Content: "yes"}}}}
	spells := []Script{{Match: "spell", Turns: []Turn{{Content: "hé x STX STOP y"}}}, {Match: "begin", Turns: []Turn{{Content: "éx"}}}}
	address := map[string]string{}
	for name, opt := range map[string]Options{
		"": {Scripts: spells}, "tools": {Context: 1024, Scripts: thinks}, "embed": {Embeddings: true}, "rerank": {Reranking: true}, "images": {Images: true},
	} {
		opt.Context, opt.Slots = max(opt.Context, 512), 2
		s, err := New(opt)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(s.Handler())
		defer srv.Close()
		address[name] = srv.URL
	}
	for i, q := range questions() {
		t.Run(q.Name, func(t *testing.T) {
			want := real[i]
			if want.Name != q.Name || want.Body != q.Body {
				t.Fatalf("the recorded answer is to another question: run with -record")
			}
			got := ask(t, address[q.Engine], q)
			if got.Status != want.Status || got.Type != want.Type {
				t.Errorf("status %d, type %q; the engine says %d, %q", got.Status, got.Type, want.Status, want.Type)
			}
			if g, w := shapeOf(t, got), shapeOf(t, want); g != w {
				t.Errorf("shape\n%s\nthe engine's\n%s", g, w)
			}
			if got.Status != want.Status {
				return
			}
			if g, w := spelling(got.Answer), spelling(want.Answer); strings.Contains(want.Body, "grammar") && q.Engine == "" && g != w {
				t.Errorf("it spells\n%s\nthe engine\n%s", g, w)
			}
			// Refusals are the engine's to the word, where the word is not about the model.
			if want.Status >= 400 && !strings.Contains(want.Answer, "parse_error") && !strings.HasSuffix(want.Name, "too long") && want.Name != "field of no kind" && want.Name != "detokenize beyond" {
				if g, w := messageOf(got.Answer), messageOf(want.Answer); g != w {
					t.Errorf("message %q; the engine's %q", g, w)
				}
			}
		})
	}
}

func recordAnswers(t *testing.T, engines string) {
	address := map[string]string{}
	for pair := range strings.SplitSeq(engines, ",") {
		name, url, _ := strings.Cut(pair, "=")
		address[strings.TrimPrefix(name, "plain")] = url
	}
	var old []exchange
	if data, err := os.ReadFile(recorded); err == nil {
		if err := json.Unmarshal(data, &old); err != nil {
			t.Fatal(err)
		}
	}
	var all []exchange
	for _, q := range questions() {
		i := slices.IndexFunc(old, func(o exchange) bool { return o.Name == q.Name && o.Engine == q.Engine && o.Body == q.Body })
		switch {
		case i >= 0:
			all = append(all, old[i])
		case address[q.Engine] != "":
			all = append(all, ask(t, address[q.Engine], q))
		default:
			t.Fatalf("%q is not recorded: say where the engine %q is", q.Name, q.Engine)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(all); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, base string, q exchange) exchange {
	t.Helper()
	method := http.MethodPost
	if q.Body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequest(method, base+q.Path, strings.NewReader(q.Body))
	if err != nil {
		t.Fatal(err)
	}
	// The real engine closes a connection after a stream without saying so
	// before: each question gets its own.
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	q.Status, q.Type, q.Answer = resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
	return q
}

var spelled = regexp.MustCompile(`"(content|bytes|predicted_n|completion_tokens|finish_reason)":("[^"]*"|[0-9]+|\[[0-9,]*\])`)

// spelling is what an answer tells of its letters, in the order of telling.
func spelling(answer string) string {
	return strings.Join(spelled.FindAllString(answer, -1), " ")
}

func messageOf(answer string) string {
	var e struct{ Error struct{ Message string } }
	json.Unmarshal([]byte(answer), &e)
	return e.Error.Message
}

// shapeOf is an answer with every value replaced by its kind, and runs of equal
// shapes folded into one.
func shapeOf(t *testing.T, x exchange) string {
	if !strings.HasPrefix(x.Type, "text/event-stream") {
		return jsonShape(t, x.Answer)
	}
	var out []string
	for e := range strings.SplitSeq(strings.TrimSuffix(x.Answer, "\n\n"), "\n\n") {
		payload, ok := strings.CutPrefix(e, "data: ")
		if !ok {
			t.Fatalf("an event without data: %q", e)
		}
		shape := payload
		if payload != "[DONE]" {
			shape = jsonShape(t, payload)
		}
		if len(out) == 0 || out[len(out)-1] != shape {
			out = append(out, shape)
		}
	}
	if strings.Contains(x.Answer, `"index":1`) {
		// Several answers come in whatever order they come.
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return strings.Join(out, "\n")
}

func jsonShape(t *testing.T, s string) string {
	d := json.NewDecoder(strings.NewReader(s))
	var walk func() string
	walk = func() string {
		tok, err := d.Token()
		if err != nil {
			t.Fatalf("%v in %.200q", err, s)
		}
		switch v := tok.(type) {
		case json.Delim:
			var parts []string
			for d.More() {
				if v == '{' {
					key, err := d.Token()
					if err != nil {
						t.Fatal(err)
					}
					shape := walk()
					if key == "bytes" && shape == "[]" {
						shape = "[float64]" // whether a likely token has text is the model's affair
					}
					parts = append(parts, fmt.Sprint(key, ":", shape))
				} else if e := walk(); len(parts) == 0 || parts[len(parts)-1] != e {
					parts = append(parts, e)
				}
			}
			end, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(v) + strings.Join(parts, ",") + fmt.Sprint(end)
		case nil:
			return "null"
		default:
			return fmt.Sprintf("%T", v)
		}
	}
	return walk()
}
