//go:build unix

package llama

import (
	"cmp"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"relay/llama/demo"
	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
)

// randomModel writes a model with random weights and the demo model's vocabulary.
func randomModel(t testing.TB, m gguftest.Random) string {
	t.Helper()
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "random.gguf")
	if err := m.Write(path, from); err != nil {
		t.Fatal(err)
	}
	return path
}

// fill has an engine take all the memory that it may: every slot reads a prompt
// that leaves room for a few tokens of an answer; of a model that embeds or
// reranks, one text fills its batch.
func fill(t testing.TB, p *Process, s Spec) {
	t.Helper()
	before, err := p.Timings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := func(n, first int) []int {
		list := make([]int, n)
		for i := range list {
			list[i] = 300 + (i*7+first)%700
		}
		return list
	}
	ask := func(path string, body map[string]any) []byte {
		status, answer, err := p.ask(t.Context(), http.MethodPost, path, body)
		if err != nil || s.Kind != KindChat && status != http.StatusOK { // What a random model says may be no text, and then is an error.
			t.Errorf("%s: %d %v %.200s", path, status, err, answer)
		}
		return answer
	}
	_, batch := gguf.Batch(gguf.Kind(s.Kind), s.Context, s.Args)
	want := batch - 16
	switch s.Kind {
	case KindEmbed:
		ask("/v1/embeddings", map[string]any{"input": ids(want, 0)})
	case KindRerank:
		const text, words = " and", 100
		var made struct{ Tokens []int }
		if err := json.Unmarshal(ask("/tokenize", map[string]any{"content": strings.Repeat(text, words)}), &made); err != nil || len(made.Tokens) == 0 {
			t.Fatalf("%v %v", made, err)
		}
		want -= want % (2 * len(made.Tokens) / words)
		ask("/v1/rerank", map[string]any{"query": "a", "documents": []string{strings.Repeat(text, (batch-16)*words/len(made.Tokens))}})
	default:
		want = s.Slots * (s.Context - 8)
		var wg sync.WaitGroup
		for slot := range s.Slots {
			wg.Go(func() {
				ask("/completion", map[string]any{"prompt": ids(s.Context-8, slot), "n_predict": 4, "ignore_eos": true, "id_slot": slot})
			})
		}
		wg.Wait()
	}
	after, err := p.Timings(t.Context())
	if got := after.PromptTokens - before.PromptTokens; err != nil || got < uint64(want) {
		t.Fatalf("it read %d tokens of the prompts, not %d, %v", got, want, err)
	}
}

// What is predicted of a model's memory is within a tenth of what its engine
// uses: what its process has resident, mapped files included, when all slots
// have read a prompt that fills them.
func TestPrediction(t *testing.T) {
	e := engine(t)
	llama := gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: 12, Width: 1024, KVWidth: 256, HeadWidth: 64, FeedForward: 2816, Vocab: 32000, Train: 32768}
	of := func(m gguftest.Random, kind uint32) gguftest.Random {
		m.Type = kind
		return m
	}
	wide := llama // all heads have keys and values of their own
	wide.KVWidth, wide.Vocab = 1024, 0
	experts := llama
	experts.Layers, experts.FeedForward, experts.Experts, experts.Used = 8, 1024, 8, 2
	window := wide
	window.Arch, window.Window, window.Vocab, window.Layers, window.Type = "gemma3", 256, 32000, 6, gguftest.F16
	embeds, encodes := llama, gguftest.Random{Arch: "bert", Type: gguftest.Q8_0, Layers: 12, Width: 768, KVWidth: 768, HeadWidth: 64, FeedForward: 3072, Vocab: 32000, Train: 2048, Pooling: 1}
	embeds.Pooling = 3
	reranks := encodes
	reranks.Pooling = 4
	for _, c := range []struct {
		name  string
		model gguftest.Random
		s     gguf.Serving
		long  bool
	}{
		{"q8_0", llama, gguf.Serving{Context: 512, Slots: 1}, false},
		{"q4_0", of(llama, gguftest.Q4_0), gguf.Serving{Context: 512, Slots: 2}, false},
		{"experts", experts, gguf.Serving{Context: 512, Slots: 1}, false},
		{"window", window, gguf.Serving{Context: 768, Slots: 2}, false},
		{"embeds", embeds, gguf.Serving{Kind: gguf.KindEmbed, Context: 512, Slots: 1}, false},
		{"encodes", encodes, gguf.Serving{Context: 512, Slots: 2}, false},
		{"reranks", reranks, gguf.Serving{Context: 512, Slots: 1}, false},
		{"chats, and is to embed", llama, gguf.Serving{Kind: gguf.KindEmbed, Context: 2048, Slots: 1, Args: []string{"-b", "1024", "--pooling", "mean"}}, true},
		{"encodes long texts", encodes, gguf.Serving{Context: 1536, Slots: 1}, true},
		{"f16", of(llama, gguftest.F16), gguf.Serving{Context: 512, Slots: 3}, true},
		{"q4_0, mapped", of(llama, gguftest.Q4_0), gguf.Serving{Context: 512, Slots: 1, Args: []string{"--no-repack"}}, true},
		{"q4_K", of(llama, gguftest.Q4_K), gguf.Serving{Context: 512, Slots: 1}, true},
		{"no groups", wide, gguf.Serving{Context: 768, Slots: 2}, true},
		{"experts, q4_0", of(experts, gguftest.Q4_0), gguf.Serving{Context: 1024, Slots: 1}, true},
		{"window, q4_0", of(window, gguftest.Q4_0), gguf.Serving{Context: 1024, Slots: 1}, true},
		{"window, whole, cache in q8_0", window, gguf.Serving{Context: 768, Slots: 1, Args: []string{"--swa-full", "-ctk", "q8_0", "-ctv=q8_0", "-fa", "on"}}, true},
		{"large batches", llama, gguf.Serving{Context: 1024, Slots: 1, Args: []string{"-ub", "1024"}}, true},
		{"no flash attention", llama, gguf.Serving{Context: 768, Slots: 1, Args: []string{"-fa", "off"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("without -short it runs")
			}
			s := Spec{
				Name: "m", Model: randomModel(t, c.model), Context: c.s.Context, Slots: c.s.Slots, Args: c.s.Args,
				Threads: 1, RunDir: filepath.Join(t.TempDir(), "run"),
			}
			h, err := gguf.Read(s.Model)
			if err != nil {
				t.Fatal(err)
			}
			m, err := h.Memory(c.s)
			if err != nil {
				t.Fatal(err)
			}
			s.Kind = Kind(cmp.Or(c.s.Kind, h.Kind))
			p := start(t, e, s)
			fill(t, p, s)
			used, err := p.Usage()
			if err != nil {
				t.Fatal(err)
			}
			const mib = 1 << 20
			ratio := float64(m.Total) / float64(used.RSS)
			t.Logf("predicted %d MiB (weights %d, cache %d, else %d), used %d MiB (private %d): %.3f; the engine said %+v",
				m.Total/mib, m.Weights/mib, m.KV/mib, m.Compute/mib, used.RSS/mib, used.Private/mib, ratio, p.Report().Buffers)
			if ratio < 0.9 || ratio > 1.1 {
				t.Errorf("predicted is %.3f of what is used", ratio)
			}
			var kv uint64
			for _, b := range p.Report().Buffers {
				kv += b.Context
			}
			// What the engine has for its answers is counted with it: 125 KiB for a slot,
			// and of a model that embeds a vector.
			if d := float64(kv) - float64(m.KV); d < 0 || d > float64(s.Slots*136<<10) {
				t.Errorf("the cache is predicted with %d bytes, the engine says %d", m.KV, kv)
			}
		})
	}
}
