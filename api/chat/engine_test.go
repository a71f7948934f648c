package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/api/chat"
	"relay/llama"
	"relay/llama/demo"
	"relay/llama/sim"
)

// TestMain lets the test binary stand in for relay as the engine's shim.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine-shim" {
		os.Exit(llama.ShimMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// server is something that answers as llama-server does.
type server struct {
	client *http.Client
	url    string
}

// realServer is the pinned engine with the demo model.
func realServer(t *testing.T) server {
	t.Helper()
	e, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil {
		t.Skipf("no engine (%v): `make engine` builds one", err)
	}
	path, err := demo.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Start(t.Context(), llama.Spec{Name: "demo", Model: path, Context: 512, Slots: 4, RunDir: filepath.Join(t.TempDir(), "run"), Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return server{client: &http.Client{Transport: p.Client()}, url: "http://engine"}
}

// standIn is the stand-in for the engine.
func standIn(t *testing.T) server {
	t.Helper()
	s, err := sim.New(sim.Options{Context: 512, Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return server{client: srv.Client(), url: srv.URL}
}

func (s server) ask(t *testing.T, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true // the engine closes connections of its own accord, too
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v: %s", path, body, resp.Status, err, b)
	}
	return b
}

// payloads are those of a stream, but for the end's mark and the nulls that this
// engine puts between the answers to several prompts.
func payloads(t *testing.T, stream []byte) (list [][]byte) {
	t.Helper()
	done := false
	for line := range bytes.SplitSeq(stream, []byte("\n")) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case !ok || string(data) == "null":
		case string(data) == "[DONE]":
			done = true
		default:
			list = append(list, data)
		}
	}
	if !done {
		t.Fatalf("the stream has no end: %s", stream)
	}
	return list
}

// TestCollectedIsUnstreamed: what the collector makes of a stream is what the
// same server answers unstreamed.
func TestCollectedIsUnstreamed(t *testing.T) {
	const (
		chatPath, textPath = "/v1/chat/completions", "/v1/completions"
		ask                = `"temperature":0,"messages":[{"role":"user","content":"What is relay?"}]`
		say                = `"temperature":0,"prompt":"relay is a"`
	)
	cases := []struct {
		name, path, body string
		opt              chat.Options
	}{
		{"chat", chatPath, ask + `,"max_tokens":200`, chat.Options{}},
		{"chat cut by length", chatPath, ask + `,"max_tokens":5`, chat.Options{}},
		{"chat with timings", chatPath, ask + `,"max_tokens":5`, chat.Options{Timings: true}},
		{"chat twice", chatPath, ask + `,"n":2,"max_tokens":9`, chat.Options{Choices: 2}},
		{"chat probable", chatPath, ask + `,"logprobs":true,"top_logprobs":3,"max_tokens":5`, chat.Options{}},
		{"chat probable to its end", chatPath, ask + `,"logprobs":true,"top_logprobs":1,"max_tokens":200`, chat.Options{}},
		{"chat stopped", chatPath, ask + `,"stop":[" mesh","and"],"max_tokens":200`, chat.Options{}},
		{"chat in JSON", chatPath, ask + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"é":{"enum":["ü\n"]}},"required":["é"]}}},"max_tokens":60`, chat.Options{}},
		{"chat gone on with", chatPath, `"temperature":0,"max_tokens":6,"messages":[{"role":"user","content":"What is relay?"},{"role":"assistant","content":"relay is"}]`, chat.Options{}},
		{"text", textPath, say + `,"max_tokens":200`, chat.Options{Kind: chat.OfText}},
		{"text cut by length", textPath, say + `,"max_tokens":4`, chat.Options{Kind: chat.OfText, Timings: true}},
		{"text twice", textPath, say + `,"n":2,"max_tokens":4`, chat.Options{Kind: chat.OfText, Choices: 2, PerPrompt: 2}},
		{"text of two", textPath, `"temperature":0,"prompt":["relay is a","What"],"max_tokens":4`, chat.Options{Kind: chat.OfText, Choices: 2}},
		{"text of two twice", textPath, `"temperature":0,"prompt":["relay is a","What"],"n":2,"max_tokens":4`, chat.Options{Kind: chat.OfText, Choices: 4, PerPrompt: 2}},
		{"text probable", textPath, say + `,"logprobs":2,"max_tokens":9`, chat.Options{Kind: chat.OfText}},
		{"text stopped", textPath, say + `,"stop":"mesh","max_tokens":200`, chat.Options{Kind: chat.OfText}},
	}
	for _, kind := range []struct {
		name  string
		start func(*testing.T) server
	}{{"engine", realServer}, {"sim", standIn}} {
		t.Run(kind.name, func(t *testing.T) {
			s := kind.start(t)
			for _, tc := range cases {
				t.Run(tc.name, func(t *testing.T) {
					s.ask(t, tc.path, "{"+tc.body+"}") // so that the prompt is cached for both that follow
					want := s.ask(t, tc.path, "{"+tc.body+"}")
					stream := s.ask(t, tc.path, `{"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true,`+tc.body+"}")
					c := chat.NewCollector(tc.opt)
					for _, p := range payloads(t, stream) {
						if err := c.Add(p); err != nil {
							t.Fatalf("%v: %s", err, p)
						}
					}
					got, err := c.Answer()
					if err != nil {
						t.Fatal(err)
					}
					expect(t, got, want, tc.opt)
				})
			}
		})
	}
}

// expect compares two answers, but for what differs from request to request.
func expect(t *testing.T, got, want []byte, opt chat.Options) {
	t.Helper()
	var g, w map[string]any
	for b, v := range map[*map[string]any][]byte{&g: got, &w: want} {
		if err := json.Unmarshal(v, b); err != nil {
			t.Fatalf("%v: %s", err, v)
		}
	}
	if a, b := keysOf(got), keysOf(want); opt.Timings && a != b {
		t.Errorf("keys %s, the engine's %s", a, b)
	}
	own := "chatcmpl-"
	if opt.Kind == chat.OfText {
		own = "cmpl-"
	}
	if id, _ := g["id"].(string); !strings.HasPrefix(id, own) {
		t.Errorf("id %q", id)
	}
	for _, v := range []map[string]any{g, w} {
		if now := float64(time.Now().Unix()); math.Abs(v["created"].(float64)-now) > 600 {
			t.Errorf("created %v, now %v", v["created"], now)
		}
		if n := v["timings"]; opt.Timings == (n == nil) && (opt.Timings || &v == &g) {
			t.Errorf("timings: %v", n)
		}
		for _, k := range []string{"id", "created", "timings"} {
			delete(v, k)
		}
	}
	if opt.Kind == chat.OfChat {
		silent(w)
		named(w)
	}
	if opt.Choices > 1 {
		several(t, g, w, opt)
	}
	if !near(g, w) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// several checks the usage of several answers, which is the sum: the engine tells
// that of the first alone.
func several(t *testing.T, g, w map[string]any, opt chat.Options) {
	t.Helper()
	sum, first := g["usage"].(map[string]any), w["usage"].(map[string]any)
	delete(g, "usage")
	delete(w, "usage")
	prompts := opt.Choices / max(opt.PerPrompt, 1)
	if opt.Kind == chat.OfChat {
		prompts = 1
	}
	answer, prompt := sum["completion_tokens"].(float64), sum["prompt_tokens"].(float64)
	if least := first["completion_tokens"].(float64); answer <= least || answer > least*float64(opt.Choices) {
		t.Errorf("%v tokens in %d answers, %v in the first", answer, opt.Choices, least)
	}
	if one := first["prompt_tokens"].(float64); prompts == 1 && prompt != one || prompts > 1 && (prompt <= one || prompt >= 2*one+3) {
		t.Errorf("%v tokens in %d prompts, %v in the first", prompt, prompts, one)
	}
	if sum["total_tokens"].(float64) != answer+prompt {
		t.Errorf("usage %v does not add up", sum)
	}
}

func keysOf(object []byte) string {
	var keys []string
	d := json.NewDecoder(bytes.NewReader(object))
	d.Token() // the brace
	for d.More() {
		var value json.RawMessage
		key, err := d.Token()
		if err != nil || d.Decode(&value) != nil {
			return "not an object"
		}
		keys = append(keys, key.(string))
	}
	return strings.Join(keys, " ")
}

// endID is the token that ends an answer, in the demo model's vocabulary and in
// the stand-in's.
const endID = 2.0

// silent takes the probability of the token that ends it out of a chat's
// answer: in a stream the engine tells of a token only with the text that it
// makes, and this one makes none.
func silent(answer map[string]any) {
	for _, c := range answer["choices"].([]any) {
		probs, _ := c.(map[string]any)["logprobs"].(map[string]any)
		if probs == nil {
			continue
		}
		probs["content"] = slices.DeleteFunc(probs["content"].([]any), func(p any) bool { return p.(map[string]any)["id"] == endID })
	}
}

// named gives a chat's answer the names that OpenAI's has and the engine's lacks.
func named(answer map[string]any) {
	for _, c := range answer["choices"].([]any) {
		c := c.(map[string]any)
		c["message"].(map[string]any)["refusal"] = nil
		if probs, ok := c["logprobs"].(map[string]any); ok {
			probs["refusal"] = nil
		} else {
			c["logprobs"] = nil
		}
	}
}

// near is equality, but for the last digits of a probability: they depend on
// what else is computed in the same batch.
func near(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if other, ok := b[k]; !ok || !near(v, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !near(a[i], b[i]) {
				return false
			}
		}
		return true
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || a != math.Trunc(a) && math.Abs(a-b) < 0.05)
	}
	return reflect.DeepEqual(a, b)
}
