package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"relay/api/chat"
)

var update = flag.Bool("update", false, "write the golden files anew")

// piece is a chunk of a chat's stream.
func piece(delta string) string {
	return `{"id":"chatcmpl-1","created":7,"model":"m","object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"delta":` + delta + `}]}`
}

func finish(why string) string {
	return `{"choices":[{"index":0,"finish_reason":"` + why + `","delta":{}}]}`
}

const (
	first    = `{"choices":[{"index":0,"finish_reason":null,"delta":{"role":"assistant","content":null}}],"timings":{"cache_n":2,"prompt_n":5,"predicted_n":1}}`
	progress = `{"choices":[{"index":0,"finish_reason":null,"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":7,"cache":2,"processed":7,"time_ms":3}}`
	used     = `{"choices":[],"usage":{"completion_tokens":9,"prompt_tokens":7,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":2}}}`
)

// answers are what an engine says to requests of several kinds.
var answers = []struct {
	name, request string // the request without model, messages, max_tokens and stream
	stream        []string
	broken        bool
}{
	{"text", `"system":"be brief","temperature":0.5`,
		[]string{progress, first, piece(`{"content":"re"}`), piece(`{"content":"lay\n\"é\""}`), finish("stop"), used}, false},
	{"length", `"top_k":5`, []string{first, piece(`{"content":"re"}`), finish("length"), used}, false},
	{"nothing", `"top_p":1`, []string{first, finish("stop"), used}, false},
	{"stop", `"stop_sequences":["a","END"]`, []string{first, piece(`{"content":"re"}`),
		`{"choices":[{"index":0,"finish_reason":"stop","delta":{}}],"__verbose":{"stopping_word":"END"}}`, used}, false},
	{"other_stop", `"stop_sequences":["a","END"]`, []string{first, piece(`{"content":"re"}`),
		`{"choices":[{"index":0,"finish_reason":"stop","delta":{}}],"__verbose":{"stopping_word":"<|user|>"}}`, used}, false},
	{"thinking", `"thinking":{"type":"enabled","budget_tokens":1024}`,
		[]string{first, piece(`{"reasoning_content":"let me "}`), piece(`{"reasoning_content":"see"}`), piece(`{"content":"yes"}`), finish("stop"), used}, false},
	{"tools", `"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"}}]`,
		[]string{first, piece(`{"content":"so"}`), piece(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`),
			piece(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}`), piece(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`),
			piece(`{"tool_calls":[{"index":1,"type":"function","function":{"name":"g","arguments":"{}"}}]}`), finish("tool_calls"), used}, false},
	{"cut_tool", `"tools":[{"name":"f","input_schema":{"type":"object"}}]`,
		[]string{first, piece(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":"}}]}`), finish("length"), used}, false},
	{"prefill", `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"relay is"}]`,
		[]string{first, piece(`{"content":"relay "}`), piece(`{"content":"is a"}`), piece(`{"content":" mesh"}`), finish("stop"), used}, false},
	{"broken", `"top_k":0`, []string{first, piece(`{"content":"re"}`)}, true},
}

func parse(t testing.TB, fields string) *Request {
	t.Helper()
	if !strings.Contains(fields, "messages") {
		fields += `,"messages":[{"role":"user","content":"hi"}]`
	}
	q, err := Parse([]byte(`{"model":"m","max_tokens":16,` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func chunkOf(t testing.TB, payload string) *chat.Chunk {
	t.Helper()
	c := new(chat.Chunk)
	if err := c.Read([]byte(payload)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEvents holds the events of a stream, and the answer that is not streamed,
// to what is written down.
func TestEvents(t *testing.T) {
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			r := NewReply(parse(t, a.request+`,"stream":true`), "0123abcd", "served", nil)
			var got []byte
			var err error
			for _, p := range a.stream {
				if got, err = r.Chunk(got, chunkOf(t, p)); err != nil {
					t.Fatal(err)
				}
			}
			if a.broken {
				if b, err := r.End(nil); !errors.Is(err, chat.ErrUnfinished) || len(b) > 0 {
					t.Errorf("%q, %v", b, err)
				}
			} else if got, err = r.End(got); err != nil {
				t.Fatal(err)
			}
			golden(t, a.name+".events", got)
			last := accumulated(t, got)

			whole := NewReply(parse(t, a.request), "0123abcd", "served", nil)
			for _, p := range a.stream {
				if b, err := whole.Chunk(nil, chunkOf(t, p)); err != nil || len(b) > 0 {
					t.Fatalf("%q, %v", b, err)
				}
			}
			b, err := whole.Whole()
			if a.broken {
				if !errors.Is(err, chat.ErrUnfinished) {
					t.Errorf("%s, %v", b, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			golden(t, a.name+".json", append(b, '\n'))
			var one, other any
			if json.Unmarshal(b, &one) != nil || json.Unmarshal(last, &other) != nil || !reflect.DeepEqual(one, other) {
				t.Errorf("the answer is\n%s\nand its events make\n%s", b, last)
			}
		})
	}
}

// accumulated is the message that a client makes of a stream's events, in the
// way of Anthropic's own SDKs; what they could not take fails.
func accumulated(t *testing.T, stream []byte) []byte {
	t.Helper()
	type object = map[string]any
	var m object
	var content []any
	open, input := -1, ""
	for _, ev := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(ev, "\ndata: ")
		var e struct {
			Type    string
			Index   int
			Message object
			Block   object `json:"content_block"`
			Delta   object
			Usage   object
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || name != "event: "+e.Type {
			t.Fatalf("event %q: %v", ev, err)
		}
		if m == nil != (e.Type == "message_start") {
			t.Fatalf("%s, with message %v", e.Type, m)
		}
		switch e.Type {
		case "message_start":
			m = e.Message
		case "content_block_start":
			if open >= 0 || e.Index != len(content) {
				t.Fatalf("block %d begins, %d is open, there are %d", e.Index, open, len(content))
			}
			open, input, content = e.Index, "", append(content, e.Block)
		case "content_block_delta":
			if e.Index != open {
				t.Fatalf("a delta of block %d, %d is open", e.Index, open)
			}
			b := content[open].(object)
			switch e.Delta["type"] {
			case "text_delta":
				b["text"] = b["text"].(string) + e.Delta["text"].(string)
			case "thinking_delta":
				b["thinking"] = b["thinking"].(string) + e.Delta["thinking"].(string)
			case "signature_delta":
				b["signature"] = e.Delta["signature"]
			case "input_json_delta":
				input += e.Delta["partial_json"].(string)
			default:
				t.Fatalf("delta %v", e.Delta)
			}
		case "content_block_stop":
			if e.Index != open {
				t.Fatalf("block %d ends, %d is open", e.Index, open)
			}
			var v any
			if json.Unmarshal([]byte(input), &v) == nil {
				content[open].(object)["input"] = v
			}
			open = -1
		case "message_delta":
			m["stop_reason"], m["stop_sequence"] = e.Delta["stop_reason"], e.Delta["stop_sequence"]
			m["usage"] = e.Usage
		case "ping", "message_stop":
		default:
			t.Fatalf("event %s", e.Type)
		}
	}
	if m["content"] = content; content == nil {
		m["content"] = []any{}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: run with -update if this is right; got\n%s\nwant\n%s", path, got, want)
	}
}

// TestReplyRefuses: what no engine sends ends in an error, not in a panic or in
// events that make no sense.
func TestReplyRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stream []string
	}{
		{"another choice", []string{`{"choices":[{"index":1,"delta":{"content":"a"}}]}`}},
		{"a call without a name", []string{piece(`{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}`)}},
		{"a call too far", []string{piece(`{"tool_calls":[{"index":1,"function":{"name":"f"}}]}`)}},
		{"a call that was over", []string{piece(`{"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"name":"f"}}]}`),
			piece(`{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}`)}},
		{"a call after a text", []string{piece(`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`), piece(`{"content":"a"}`),
			piece(`{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}`)}},
	} {
		r := NewReply(parse(t, `"stream":true`), "1", "m", nil)
		var err error
		for _, p := range tc.stream {
			if err == nil {
				_, err = r.Chunk(nil, chunkOf(t, p))
			}
		}
		if !errors.Is(err, chat.ErrChunk) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestReplyKeepsToItsBudget: what is kept of an answer that is not streamed was granted.
func TestReplyKeepsToItsBudget(t *testing.T) {
	for name, delta := range map[string]string{
		"text":      `{"content":"` + strings.Repeat("x", 1000) + `"}`,
		"reasoning": `{"reasoning_content":"` + strings.Repeat("x", 1000) + `"}`,
		"items":     `{"content":"x","reasoning_content":"x"}`,
	} {
		left := 64 << 10
		r := NewReply(parse(t, `"top_k":1`), "1", "m", func(n int) bool {
			left -= n
			return left >= 0
		})
		c := chunkOf(t, piece(delta))
		var err error
		n := 0
		for ; err == nil && n < 1000; n++ {
			_, err = r.Chunk(nil, c)
		}
		if !errors.Is(err, chat.ErrTooLarge) || n > 140 {
			t.Errorf("%s: %d pieces were taken: %v", name, n, err)
		}
	}
}

// FuzzReply: whatever an engine says, what comes of it is an error or events of
// valid JSON.
func FuzzReply(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(strings.Join(a.stream, "\n")), true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, streamed bool) {
		q := `"messages":[{"role":"assistant","content":"re"}],"stop_sequences":["END"]`
		if streamed {
			q += `,"stream":true`
		}
		r := NewReply(parse(t, q), "1", "m", func(n int) bool { return n >= 0 && n < 1<<20 })
		var out []byte
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			var c chat.Chunk
			if c.Read(line) != nil {
				continue
			}
			var err error
			if out, err = r.Chunk(out, &c); err != nil {
				return
			}
		}
		if !streamed {
			if b, err := r.Whole(); err == nil && !json.Valid(b) {
				t.Fatalf("%s", b)
			}
			return
		}
		out, _ = r.End(out)
		for line := range bytes.SplitSeq(out, []byte("\n")) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && !json.Valid(data) {
				t.Fatalf("%s", line)
			}
		}
	})
}

func BenchmarkChunk(b *testing.B) {
	r := NewReply(parse(b, `"stream":true`), "0123456789abcdef", "m", nil)
	c := chunkOf(b, piece(`{"content":" relay"}`))
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = r.Chunk(dst[:0], c); err != nil {
			b.Fatal(err)
		}
	}
}
