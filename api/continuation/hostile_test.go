package continuation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"relay/api/chat"
	"relay/api/continuation"
)

// FuzzChunks: whatever an engine sends, nothing panics, what is held is bounded by what came,
// and what a seam and an ending make of valid JSON is valid JSON.
func FuzzChunks(f *testing.F) {
	f.Add(false, []byte(`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" a"},"logprobs":{"content":[{"id":261,"token":" a","bytes":[32,97],"prob":1.0,"top_probs":[{"id":261,"token":" a","bytes":[32,97],"prob":1.0}]}]}}],"created":1,"id":"chatcmpl-x","model":"m","system_fingerprint":"b","object":"chat.completion.chunk","timings":{"cache_n":0,"prompt_n":9,"predicted_n":3,"predicted_ms":2.0}}`))
	f.Add(true, []byte("{\"choices\":[{\"text\":\"é\",\"index\":0,\"logprobs\":{\"content\":[{\"id\":5,\"bytes\":[195]}]},\"finish_reason\":null}],\"timings\":{\"predicted_n\":1}}\n{\"choices\":[{\"text\":\"\",\"index\":0,\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":99999999999999999999}}"))
	f.Add(false, []byte("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}],\"prompt_progress\":{}}\n{\"choices\":[{\"delta\":{\"reasoning_content\":\"x\",\"tool_calls\":[1]}}]}"))
	f.Add(true, []byte("{\"tokens\":[{\"id\":5,\"piece\":[10]},{\"id\":-1,\"piece\":7}]}\n{\"choices\":[]}"))
	f.Fuzz(func(t *testing.T, ofText bool, lines []byte) {
		kind, body := chat.OfChat, []byte(`{"messages":[{"role":"user","content":"x"}],"stop":"b","seed":1,"max_tokens":9}`)
		if ofText {
			kind, body = chat.OfText, []byte(`{"prompt":[1,"a"],"seed":1}`)
		}
		held := 0
		track := continuation.New(kind, func(n int) bool { held += n; return held < 1<<20 })
		var seam *continuation.Seam
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			list := [][]byte{line}
			if seam != nil {
				var err error
				if list, err = seam.Turn(line); err != nil {
					continue
				}
			}
			for _, c := range list {
				if seam != nil && json.Valid(line) && !json.Valid(c) {
					t.Fatalf("%s became %s", line, c)
				}
				if v := continuation.Without(kind, c); json.Valid(c) && !json.Valid(v) {
					t.Fatalf("%s became %s", c, v)
				}
				var p continuation.Piece
				if p.Read(c) == nil {
					track.Delivered(&p)
				}
			}
			plan, err := track.Plan(body)
			if err != nil {
				continue
			}
			if plan.Ending() == nil && !plan.Next().Stream {
				if plan.Answer(line) != nil {
					continue
				}
			}
			if plan.Ending() == nil && plan.Next().Stream {
				seam = plan.Seam()
			}
		}
		if held > 64<<10+64*len(lines) {
			t.Fatalf("%d bytes are held of %d", held, len(lines))
		}
	})
}

// TestLongAnswer: an answer of 30,000 tokens is kept in what its text and its ids take, and
// no more than that is asked for.
func TestLongAnswer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tells bool
		most  int
	}{{"ids", true, 800 << 10}, {"holes", false, 3 << 20}} {
		t.Run(tc.name, func(t *testing.T) {
			held := 0
			track := continuation.New(chat.OfText, func(n int) bool { held += n; return true })
			var p continuation.Piece
			const tokens = 30_000
			for n := 1; n <= tokens; n++ {
				told := n
				if !tc.tells {
					told = 2 * n
				}
				c := encode(object{"choices": []object{{"index": 0, "text": "word ", "logprobs": object{"content": []object{{"id": n, "bytes": ints("word ")}}}}}, "timings": object{"predicted_n": told}})
				if err := p.Read(c); err != nil {
					t.Fatal(err)
				}
				track.Delivered(&p)
			}
			if held > tc.most {
				t.Errorf("%d bytes are held", held)
			}
			plan, err := track.Plan([]byte(`{"prompt":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := track.Tokens(); tc.tells && got != tokens || !tc.tells && got != 2*tokens {
				t.Errorf("%d tokens", got)
			}
			if path := plan.Next().Path; (path == "/v1/completions") != tc.tells {
				t.Error(path)
			}
		})
	}
}

// TestTooMuch: what may not be held ends what can be gone on with, not the answer.
func TestTooMuch(t *testing.T) {
	held := 0
	track := continuation.New(chat.OfText, func(n int) bool { held += n; return held < 10_000 })
	var p continuation.Piece
	for n := 1; n < 20_000; n++ {
		if err := p.Read(encode(object{"choices": []object{{"index": 0, "text": "a"}}})); err != nil {
			t.Fatal(err)
		}
		track.Delivered(&p)
	}
	if _, err := track.Plan([]byte(`{"prompt":"x"}`)); err == nil {
		t.Error("it can be gone on with")
	}
}

func BenchmarkDelivered(b *testing.B) {
	c := []byte(`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" a"},"logprobs":{"content":[{"id":261,"token":" a","bytes":[32,97],"prob":1.0,"top_probs":[{"id":261,"token":" a","bytes":[32,97],"prob":1.0}]}]}}],"created":1764543414,"id":"chatcmpl-dnKKqVQdPGDZbPO8QBLpUcYvvEFh0sS8","model":"m","system_fingerprint":"b1-80fb11a","object":"chat.completion.chunk","timings":{"cache_n":0,"prompt_n":9,"prompt_ms":2.125,"prompt_per_token_ms":0.236,"prompt_per_second":4235.294,"predicted_n":3,"predicted_ms":2.033,"predicted_per_token_ms":0.678,"predicted_per_second":1475.652}}`)
	b.Run("first", func(b *testing.B) {
		track := continuation.New(chat.OfChat, nil)
		var p continuation.Piece
		b.ReportAllocs()
		for b.Loop() {
			if err := p.Read(c); err != nil {
				b.Fatal(err)
			}
			track.Delivered(&p)
		}
	})
	b.Run("seam", func(b *testing.B) {
		track := continuation.New(chat.OfChat, nil)
		var p continuation.Piece
		if err := p.Read(c); err != nil {
			b.Fatal(err)
		}
		track.Delivered(&p)
		plan, err := track.Plan([]byte(`{"messages":[]}`))
		if err != nil {
			b.Fatal(err)
		}
		if err := plan.Answer([]byte(`{"prompt":"x"}`)); err != nil {
			b.Fatal(err)
		}
		seam := plan.Seam()
		text := bytes.Replace(bytes.Replace(c, []byte(`"delta":{"content":" a"}`), []byte(`"text":" a"`), 1), []byte("chat.completion.chunk"), []byte("text_completion"), 1)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := seam.Turn(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("without", func(b *testing.B) {
		choices := c[len(`{"choices":`):bytes.Index(c, []byte(`,"created"`))]
		b.ReportAllocs()
		for b.Loop() {
			continuation.Without(chat.OfChat, choices)
		}
	})
}

// An engine that says too much about its answer is not gone on from: each chunk of the next
// one would say it again.
func TestLongHeading(t *testing.T) {
	for _, member := range []string{`"id":"` + strings.Repeat("a", 5<<10) + `"`, `"timings":{"predicted_n":1,"x":"` + strings.Repeat("a", 5<<10) + `"}`} {
		track, piece := continuation.New(chat.OfChat, nil), new(continuation.Piece)
		if err := piece.Read([]byte(`{"choices":[{"index":0,"delta":{"content":"x"}}],` + member + `}`)); err != nil {
			t.Fatal(err)
		}
		track.Delivered(piece)
		var cannot *continuation.Cannot
		if _, err := track.Plan([]byte(`{"messages":[{"role":"user","content":"x"}]}`)); !errors.As(err, &cannot) {
			t.Errorf("%.40s: %v", member, err)
		}
	}
}
