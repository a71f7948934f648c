package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func collect(opt Options, payloads ...string) (string, error) {
	c := NewCollector(opt)
	for _, p := range payloads {
		if err := c.Add([]byte(p)); err != nil {
			return "", err
		}
	}
	b, err := c.Answer()
	return string(b), err
}

func piece(choice string) string {
	return `{"id":"x","created":7,"model":"m","system_fingerprint":"f","object":"o","choices":[` + choice + `]}`
}

func TestCollectorJoinsToolCalls(t *testing.T) {
	got, err := collect(Options{Model: "served"},
		piece(`{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}`),
		piece(`{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}`),
		piece(`{"index":0,"delta":{"reasoning_content":"m"},"finish_reason":null}`),
		piece(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}`),
		piece(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}]},"finish_reason":null}`),
		piece(`{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"\"é\"}"}}]},"finish_reason":null}`),
		piece(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`),
		`{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":3,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1}}}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":null,"refusal":null,"reasoning_content":"hmm","tool_calls":[` +
		`{"type":"function","function":{"name":"f","arguments":"{\"x\":\"é\"}"},"id":"a"},{"type":"function","function":{"name":"g","arguments":"{}"},"id":"b"}]},"logprobs":null}],` +
		`"created":7,"model":"served","system_fingerprint":"f","object":"chat.completion",` +
		`"usage":{"completion_tokens":4,"prompt_tokens":3,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1}},"id":"x"}`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCollectorJoinsLegacyLogprobs: the lists of OpenAI's own text completions,
// which an engine that was attached from outside may have.
func TestCollectorJoinsLegacyLogprobs(t *testing.T) {
	got, err := collect(Options{Kind: OfText},
		piece(`{"index":0,"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-1.5],"top_logprobs":null,"text_offset":[0]},"finish_reason":null}`),
		piece(`{"index":0,"text":"bc","logprobs":{"tokens":["b","c"],"token_logprobs":[-1,-2],"top_logprobs":null,"text_offset":[1,2]},"finish_reason":null}`),
		piece(`{"index":0,"text":"","logprobs":{"tokens":[],"token_logprobs":[],"top_logprobs":null,"text_offset":[]},"finish_reason":"stop"}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"choices":[{"text":"abc","index":0,"logprobs":{"tokens":["a","b","c"],"token_logprobs":[-1.5,-1,-2],"top_logprobs":null,"text_offset":[0,1,2]},` +
		`"finish_reason":"stop"}],"created":7,"model":"m","system_fingerprint":"f","object":"text_completion","id":"x"}`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCollectorRefusesWhatIsNoAnswer(t *testing.T) {
	end := piece(`{"index":0,"delta":{},"finish_reason":"stop"}`)
	for _, tc := range []struct {
		name     string
		opt      Options
		payloads []string
		want     error
	}{
		{"nothing", Options{}, nil, ErrUnfinished},
		{"no end", Options{}, []string{piece(`{"index":0,"delta":{"content":"a"}}`)}, ErrUnfinished},
		{"one of two", Options{Choices: 2}, []string{end}, ErrUnfinished},
		{"no JSON", Options{}, []string{"{"}, ErrChunk},
		{"no object", Options{}, []string{"[1]"}, ErrChunk},
		{"content that is none", Options{}, []string{piece(`{"index":0,"delta":{"content":5}}`)}, ErrChunk},
		{"a choice too many", Options{}, []string{piece(`{"index":1,"delta":{"content":"a"}}`)}, ErrChunk},
		{"a choice before the first", Options{}, []string{piece(`{"index":-1,"delta":{"content":"a"}}`)}, ErrChunk},
		{"a call left out", Options{}, []string{piece(`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"a"}]}}`)}, ErrChunk},
		{"a call before the first", Options{}, []string{piece(`{"index":0,"delta":{"tool_calls":[{"index":-1,"id":"a"}]}}`)}, ErrChunk},
	} {
		if got, err := collect(tc.opt, tc.payloads...); !errors.Is(err, tc.want) {
			t.Errorf("%s: %q, %v; want %v", tc.name, got, err, tc.want)
		}
	}
}

// TestCollectorKeepsToItsBudget: whatever grows, what is held was granted
// before, and the answer is no larger than that.
func TestCollectorKeepsToItsBudget(t *testing.T) {
	long := strings.Repeat("x", 1000)
	probs := `{"content":[` + strings.Repeat(`{"token":"x"},`, 70) + `{"token":"x"}]}`
	for name, choice := range map[string]string{
		"content":   fmt.Sprintf(`{"index":0,"delta":{"content":%q}}`, long),
		"reasoning": fmt.Sprintf(`{"index":0,"delta":{"reasoning_content":%q}}`, long),
		"arguments": fmt.Sprintf(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%q}}]}}`, long),
		"logprobs":  `{"index":0,"delta":{},"logprobs":` + probs + `}`,
		"names":     fmt.Sprintf(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":%q,"function":{"name":%q}}]}}`, long, long),
	} {
		t.Run(name, func(t *testing.T) {
			const budget = 64 << 10
			left := budget
			c := NewCollector(Options{Grab: func(n int) bool {
				if n > left {
					return false
				}
				left -= n
				return true
			}})
			var err error
			n := 0
			for ; err == nil && n < 1000; n++ {
				err = c.Add([]byte(piece(choice)))
			}
			if !errors.Is(err, ErrTooLarge) || n < 16 || n > 70 {
				t.Errorf("%d pieces of a kilobyte were taken with a budget of %d: %v", n, budget, err)
			}
		})
	}
	c := NewCollector(Options{Grab: func(n int) bool { return n < 600 }})
	for _, p := range []string{piece(fmt.Sprintf(`{"index":0,"delta":{"content":%q}}`, long[:500])), piece(`{"index":0,"delta":{},"finish_reason":"stop"}`)} {
		if err := c.Add([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Answer(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("the answer itself was not asked for: %v", err)
	}
}

// FuzzCollector: whatever comes is refused or makes valid JSON.
func FuzzCollector(f *testing.F) {
	f.Add([]byte(piece(`{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]},"logprobs":{"content":[{"token":"a"}]},"finish_reason":"stop"}`)), false)
	f.Add([]byte(piece(`{"index":0,"text":"a","logprobs":{"tokens":[],"x":null},"finish_reason":"length"}`)), true)
	f.Add([]byte(`{"choices":null,"timings":[],"usage":{}}`), false)
	f.Fuzz(func(t *testing.T, payload []byte, text bool) {
		opt := Options{Choices: 1, Timings: true, Grab: func(n int) bool { return n >= 0 && n < 1<<20 }}
		if text {
			opt.Kind = OfText
		}
		c := NewCollector(opt)
		for range 2 {
			if c.Add(payload) != nil {
				return
			}
		}
		if b, err := c.Answer(); err == nil && !json.Valid(b) {
			t.Fatalf("%s", b)
		}
	})
}

func BenchmarkReadChunk(b *testing.B) {
	payload := []byte(`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" is"}}],"created":1796068077,"id":"chatcmpl-sfzd5xVr2o9smWUYmfC6q1iyixr3ShGt","model":"demo","system_fingerprint":"b1-80fb11a","object":"chat.completion.chunk","timings":{"cache_n":0,"prompt_n":7,"prompt_ms":3.223,"prompt_per_token_ms":0.4604285714285714,"prompt_per_second":2171.8895439031958,"predicted_n":2,"predicted_ms":0.353,"predicted_per_token_ms":0.353,"predicted_per_second":2832.8611898016998}}`)
	b.ReportAllocs()
	var c Chunk
	for b.Loop() {
		if err := c.Read(payload); err != nil {
			b.Fatal(err)
		}
	}
}
