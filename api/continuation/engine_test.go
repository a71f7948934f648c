package continuation_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/api/chat"
	"relay/api/continuation"
	"relay/llama"
	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

// TestMain lets the test binary stand in for relay as the engine's shim.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine-shim" {
		os.Exit(llama.ShimMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// engine starts the pinned engine with a model, and gives what asks it.
func engine(t *testing.T, model string, args ...string) asker {
	t.Helper()
	e, err := llama.Find(t.Context(), llama.FindOptions{Bin: os.Getenv("RELAY_LLAMA_BIN"), PathEnv: os.Getenv("PATH")})
	if err != nil {
		t.Skipf("no engine (%v): `make engine` builds one", err)
	}
	p, err := e.Start(t.Context(), llama.Spec{Name: "m", Model: model, Context: 512, Slots: 2, RunDir: filepath.Join(t.TempDir(), "run"), Threads: 1, Args: args})
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
	client := &http.Client{Transport: p.Client()}
	return func(path string, body []byte) (chunks [][]byte, whole []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine"+path, bytes.NewReader(body))
		if err != nil {
			panic(failure(err.Error()))
		}
		req.Close = true
		resp, err := client.Do(req)
		if err != nil {
			panic(failure(err.Error()))
		}
		defer resp.Body.Close()
		whole, err = io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			panic(failure(fmt.Sprintf("%s: %s, %v: %s: %s", path, resp.Status, err, body, whole)))
		}
		lines := bufio.NewScanner(bytes.NewReader(whole))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok && data[0] == '{' {
				chunks = append(chunks, bytes.Clone(data))
			}
		}
		return chunks, whole
	}
}

// demoModel is relay's own model; with a template of a reasoning model's, where that is asked
// for: it begins with a thought, which this model never ends.
func demoModel(t *testing.T, template string) string {
	t.Helper()
	if template == "" {
		path, err := demo.Write(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	file, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, file.With("tokenizer.chat_template", template).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	streamed = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"timings_per_token":true,"return_progress":true,"cache_prompt":false`
	question = `,"messages":[{"role":"user","content":"What is relay?"}]`
)

// TestEngineGoesOnExactly: where a batch of one token is computed as one token is, the engine
// goes on with an answer, wherever it is cut, as if nothing had happened.
func TestEngineGoesOnExactly(t *testing.T) {
	models := map[string]string{"relay-tiny": demoModel(t, "")}
	if path := os.Getenv("RELAY_TEST_MODEL"); path != "" { // A further model, which should have byte tokens.
		models["further"] = path
	}
	for name, path := range models {
		t.Run(name, func(t *testing.T) {
			ask := engine(t, path, "-ub", "1")
			for _, tc := range []struct {
				name string
				kind chat.Kind
				body string
				ways []string
			}{
				{"chat", chat.OfChat, streamed + continuation.IDs + question + `,"temperature":0,"max_tokens":60}`, []string{"ids"}},
				{"text", chat.OfText, streamed + continuation.IDs + `,"prompt":"Once upon a time","temperature":0,"max_tokens":60,"ignore_eos":true}`, []string{"ids"}},
				{"text of ids", chat.OfText, streamed + continuation.IDs + `,"prompt":[1,65,70,80],"temperature":0,"max_tokens":40,"ignore_eos":true}`, []string{"ids"}},
				{"chat that ends", chat.OfChat, streamed + continuation.IDs + question + `,"temperature":0,"max_tokens":100}`, []string{"ids"}},
				{"logprobs", chat.OfChat, streamed + `,"logprobs":true,"top_logprobs":2` + question + `,"temperature":0,"max_tokens":30}`, []string{"ids"}},
				{"logprobs of a text", chat.OfText, streamed + `,"logprobs":2,"prompt":"Once upon a time","temperature":0,"max_tokens":30,"ignore_eos":true}`, []string{"ids"}},
				{"penalties", chat.OfChat, streamed + continuation.IDs + question + `,"temperature":0,"max_tokens":60,"frequency_penalty":0.7,"presence_penalty":0.3,"repeat_penalty":1.2,"repeat_last_n":64}`, []string{"ids"}},
				{"stop", chat.OfChat, streamed + continuation.IDs + question + `,"temperature":0,"max_tokens":100,"stop":["GPU mem","langXX"]}`, []string{"ids"}},
				{"stop of a text", chat.OfText, streamed + continuation.IDs + `,"prompt":"Once upon a time","temperature":0,"max_tokens":60,"stop":[". S","thXX"]}`, []string{"ids"}},
				{"of its own beginning", chat.OfChat, streamed + continuation.IDs + `,"messages":[{"role":"user","content":"What is relay?"},{"role":"assistant","content":"relay is"}],"temperature":0,"max_tokens":60}`, []string{"ids"}},
				{"bytes", chat.OfText, streamed + continuation.IDs + `,"prompt":"é","temperature":0,"max_tokens":24,"ignore_eos":true` + bytesOnly + `}`, []string{"ids"}},
			} {
				t.Run(tc.name, func(t *testing.T) {
					want, err := run(tc.kind, ask, tc.body)
					if err != nil {
						t.Fatal(err)
					}
					if tc.name == "bytes" && want.content != strings.Repeat("é", 12) {
						t.Fatalf("the bytes of é are answered as %q", want.content)
					}
					// What stands before a stop string comes at once with the end: who loses
					// the end alone goes on from there.
					most, again := len(want.chunks), [][]int{nil, {3, 4}}
					if strings.Contains(tc.body, "stop\"") {
						most, again = most-3, again[:1]
					}
					t.Logf("%d chunks: %q, %s", len(want.chunks), want.content, want.finish)
					first := 1
					if strings.Contains(tc.name, "own") {
						first = 3 // Of its own the engine says who speaks, and the client's beginning.
					}
					for cut := first; cut < most; cut += 1 + len(want.chunks)/12 {
						for _, more := range again {
							cuts := append([]int{cut}, more...)
							got, err := run(tc.kind, ask, tc.body, cuts...)
							switch {
							case err != nil:
								t.Fatalf("cut at %v: %v", cuts, err)
							case got.cannot != nil:
								t.Fatalf("cut at %v: %v", cuts, got.cannot)
							}
							if err := got.one(max(want.roles(), 1)); err != nil {
								t.Errorf("cut at %v: %v", cuts, err)
							}
							if got.content != want.content || got.finish != want.finish {
								t.Errorf("cut at %v behind %v in %v: %q, %s, not %q, %s", cuts, got.tokens, got.ways, got.content, got.finish, want.content, want.finish)
							}
							if got.usage.Prompt != want.usage.Prompt || !strings.Contains(tc.body, "stop") && tc.name != "bytes" && !slices.Equal(shown(got.ids), shown(want.ids)) {
								t.Errorf("cut at %v: usage %+v, not %+v; ids %v, not %v", cuts, got.usage, want.usage, got.ids, want.ids)
							}
							for _, way := range got.ways {
								if !slices.Contains(tc.ways, way) {
									t.Errorf("cut at %v: in %v", cuts, got.ways)
								}
							}
						}
					}
				})
			}
		})
	}
}

// shown are ids but for the last one, which ends an answer: a text completion tells it.
func shown(ids []int) []int { return ids[:max(len(ids)-1, 0)] }

// bytesOnly has the two bytes of é come in turns, where the id of a byte's token is three more
// than the byte: each wins, but not twice in a row.
const bytesOnly = `,"logit_bias":[[198,40],[172,40]],"presence_penalty":20,"repeat_last_n":1`

// TestEngineGoesOnValidly: with the flags that engines run with, and by chance, answers are
// complete, and nothing is in them twice or missing at the seam.
func TestEngineGoesOnValidly(t *testing.T) {
	ask := engine(t, demoModel(t, ""))
	for _, tc := range []struct {
		name, more string
		kind       chat.Kind
	}{
		{"greedy", question + `,"temperature":0,"max_tokens":60`, chat.OfChat},
		{"by chance", question + `,"temperature":0.8,"seed":42,"max_tokens":60,"ignore_eos":true`, chat.OfChat},
		{"by chance with stops", question + `,"temperature":0.8,"seed":42,"max_tokens":60,"ignore_eos":true,"stop":["zzz","memory an","eXX"]`, chat.OfChat},
		{"with tools", question + `,"temperature":0,"max_tokens":60,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`, chat.OfChat},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := streamed + continuation.IDs + tc.more + "}"
			want, err := run(tc.kind, ask, body)
			if err != nil {
				t.Fatal(err)
			}
			equal, all := 0, 0
			for cut := 2; cut < len(want.chunks); cut += 1 + len(want.chunks)/8 {
				before, got := told{}, told{}
				for _, c := range want.chunks[:cut] {
					if err := before.add(tc.kind, c); err != nil {
						t.Fatal(err)
					}
				}
				if got, err = run(tc.kind, ask, body, cut); err != nil || got.cannot != nil {
					t.Fatalf("cut at %d: %v, %v", cut, err, got.cannot)
				}
				if err := got.one(1); err != nil {
					t.Errorf("cut at %d: %v", cut, err)
				}
				if !strings.HasPrefix(got.content, before.content) || got.finish == "" || got.usage.Prompt != want.usage.Prompt {
					t.Errorf("cut at %d: %q, %s, %+v behind %q, %+v", cut, got.content, got.finish, got.usage, before.content, want.usage)
				}
				if got.finish == "length" && got.usage.Completion != 60 {
					t.Errorf("cut at %d: %+v of 60", cut, got.usage)
				}
				if all++; got.content == want.content {
					equal++
				}
			}
			t.Logf("%d of %d are the undisturbed answer %q", equal, all, want.content)
		})
	}
}

// reasoner is the template of a model that thinks first.
const reasoner = `{%- for m in messages -%}{{- '<|' + m.role + '|>' -}}
{%- if m.role == 'assistant' and m.reasoning_content -%}{{- '<think>' + m.reasoning_content + '</think>' -}}{%- endif -%}
{{- m.content + '\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- if enable_thinking is not defined or enable_thinking -%}{{- '<think>' -}}{%- else -%}{{- '<think></think>' -}}{%- endif -%}{%- endif -%}`

// TestEngineGoesOnThinking: an answer that is lost while the model thinks goes on thinking.
func TestEngineGoesOnThinking(t *testing.T) {
	ask := engine(t, demoModel(t, reasoner))
	for _, tc := range []struct {
		name, more, way string
		thinks          bool
	}{
		{"thinking", "", "text", true},
		{"not thinking", `,"chat_template_kwargs":{"enable_thinking":false}`, "ids", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := streamed + continuation.IDs + question + `,"temperature":0,"max_tokens":30,"ignore_eos":true` + tc.more + "}"
			want, err := run(chat.OfChat, ask, body)
			if err != nil {
				t.Fatal(err)
			}
			if thinks := want.reasoning != ""; thinks != tc.thinks {
				t.Fatalf("reasoning %q, content %q", want.reasoning, want.content)
			}
			for _, cut := range []int{5, 9, 20} {
				got, err := run(chat.OfChat, ask, body, cut, 4)
				if err != nil || got.cannot != nil {
					t.Fatalf("cut at %d: %v, %v", cut, err, got.cannot)
				}
				if err := got.one(1); err != nil {
					t.Errorf("cut at %d: %v", cut, err)
				}
				if tc.thinks != (got.reasoning != "") || tc.thinks == (got.content != "") || got.finish != "length" || got.usage.Completion != 30 || got.usage.Prompt != want.usage.Prompt {
					t.Errorf("cut at %d: %q, %q, %s, %+v; undisturbed %+v", cut, got.reasoning, got.content, got.finish, got.usage, want.usage)
				}
				if got.ways[0] != tc.way {
					t.Errorf("cut at %d: in %v", cut, got.ways)
				}
				t.Logf("cut at %d in %v: %v", cut, got.ways, got.content+got.reasoning == want.content+want.reasoning)
			}
		})
	}
}
