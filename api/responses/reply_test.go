package responses

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/api/chat"
)

var update = flag.Bool("update", false, "write the golden files anew")

// piece is a chunk of a chat's stream.
func piece(delta string) string {
	return `{"id":"chatcmpl-1","created":7,"model":"m","object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"delta":` + delta + `}]}`
}

func probable(content, probs string) string {
	return `{"choices":[{"index":0,"finish_reason":null,"delta":{"content":"` + content + `"},"logprobs":{"content":[` + probs + `]}}]}`
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
	name, request string // the request without model and stream
	stream        []string
	broken        bool
}{
	{"text", `"input":"hi","instructions":"be brief","metadata":{"a":"b"},"temperature":0.5,"user":"u"`,
		[]string{progress, first, piece(`{"content":"re"}`), piece(`{"content":"lay\n\"é\""}`), finish("stop"), used}, false},
	{"length", `"input":"hi","max_output_tokens":16`, []string{first, piece(`{"content":"re"}`), finish("length"), used}, false},
	{"nothing", `"input":"hi"`, []string{first, finish("stop"), used}, false},
	{"reasoning", `"input":"hi","reasoning":{"effort":"low"}`,
		[]string{first, piece(`{"reasoning_content":"let me "}`),
			`{"choices":[{"index":0,"finish_reason":null,"delta":{"reasoning_content":"see"}}],"timings":{"cache_n":2,"prompt_n":5,"predicted_n":4}}`,
			piece(`{"content":"yes"}`), finish("stop"), used}, false},
	{"tools", `"input":"hi","tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"function","name":"g","parameters":null}],"parallel_tool_calls":true`,
		[]string{first, piece(`{"content":"so"}`), piece(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`),
			piece(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}`), piece(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`),
			piece(`{"tool_calls":[{"index":1,"type":"function","function":{"name":"g","arguments":"{}"}}]}`), finish("tool_calls"), used}, false},
	{"logprobs", `"input":"hi","include":["message.output_text.logprobs"],"top_logprobs":1`,
		[]string{first, probable("a", `{"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[]}`),
			probable("bc", `{"token":"b","logprob":-1},{"token":"c","logprob":-2}`), finish("stop"), used}, false},
	{"logprobs_alone", `"input":"hi","include":["message.output_text.logprobs"]`,
		[]string{first, probable("a<", `{"id":5,"token":"a<","bytes":[97],"logprob":-0.5,"top_logprobs":[{"token":"a<"}]}`), finish("stop"), used}, false},
	{"prefill", `"input":[{"role":"user","content":"hi"},{"role":"assistant","content":"relay is"}]`,
		[]string{first, piece(`{"content":"relay "}`), piece(`{"content":"is a"}`), piece(`{"content":" mesh"}`), finish("stop"), used}, false},
	{"failed", `"input":"hi"`, []string{first, piece(`{"content":"re"}`)}, true},
}

func parse(t testing.TB, fields string) *Request {
	t.Helper()
	q, err := Parse([]byte(`{"model":"m",` + fields + `}`))
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
			r := NewReply(parse(t, a.request+`,"stream":true`), "0123abcd", 1700000000, "served", nil)
			var got []byte
			var err error
			for _, p := range a.stream {
				if got, err = r.Chunk(got, chunkOf(t, p)); err != nil {
					t.Fatal(err)
				}
			}
			if a.broken {
				got = r.Fail(got, "peer_gone", "the peer is gone")
			} else if got, err = r.End(got, 1700000005); err != nil {
				t.Fatal(err)
			}
			golden(t, a.name+".events", got)
			last := ordered(t, got)

			whole := NewReply(parse(t, a.request), "0123abcd", 1700000000, "served", nil)
			for _, p := range a.stream {
				if b, err := whole.Chunk(nil, chunkOf(t, p)); err != nil || len(b) > 0 {
					t.Fatalf("%q, %v", b, err)
				}
			}
			b, err := whole.Whole(1700000005)
			if a.broken {
				if !errors.Is(err, chat.ErrUnfinished) {
					t.Errorf("%s, %v", b, err)
				}
				return
			}
			if err != nil || !bytes.Equal(b, last) {
				t.Errorf("%v: the answer is\n%s\nthe last event has\n%s", err, b, last)
			}
		})
	}
}

// ordered checks what holds for every stream and gives the response of its last
// event: numbers without a gap, deltas that join to what is said to be done, and
// every item begun once, ended once, as the response has it.
func ordered(t *testing.T, stream []byte) json.RawMessage {
	t.Helper()
	var last json.RawMessage
	text, done := map[string]string{}, map[int]string{}
	begun := 0
	for i, ev := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(ev, "\ndata: ")
		var e struct {
			Type           string
			SequenceNumber *int   `json:"sequence_number"`
			ItemID         string `json:"item_id"`
			OutputIndex    *int   `json:"output_index"`
			Delta          string
			Text           *string
			Arguments      *string
			Item           json.RawMessage
			Response       json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &e); !ok || err != nil {
			t.Fatalf("event %q: %v", ev, err)
		}
		if name != "event: "+e.Type || e.SequenceNumber == nil || *e.SequenceNumber != i {
			t.Errorf("event %d: %s", i, ev)
		}
		text[e.ItemID] += e.Delta
		for _, whole := range []*string{e.Text, e.Arguments} {
			if whole != nil && *whole != text[e.ItemID] {
				t.Errorf("%q is done, and %q came before", *whole, text[e.ItemID])
			}
		}
		switch e.Type {
		case "response.output_item.added":
			if *e.OutputIndex != begun {
				t.Errorf("item %d begins after %d", *e.OutputIndex, begun)
			}
			begun++
		case "response.output_item.done":
			if done[*e.OutputIndex] != "" || *e.OutputIndex != begun-1 {
				t.Errorf("item %d ends", *e.OutputIndex)
			}
			done[*e.OutputIndex] = string(e.Item)
		case "response.completed", "response.incomplete":
			var r struct{ Output []json.RawMessage }
			if err := json.Unmarshal(e.Response, &r); err != nil || len(r.Output) != len(done) || len(done) != begun {
				t.Errorf("%d items in the response, %d begun, %d done (%v)", len(r.Output), begun, len(done), err)
			}
			for i, item := range r.Output {
				if done[i] != string(item) {
					t.Errorf("item %d is %s, and was %s", i, item, done[i])
				}
			}
		}
		last = e.Response
	}
	return last
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

// TestRequiredFields: a response has every field that OpenAI's schema marks as
// one that is always there, and those that it has come to send besides.
func TestRequiredFields(t *testing.T) {
	r := NewReply(parse(t, `"input":"hi"`), "1", 7, "m", nil)
	for _, p := range []string{first, piece(`{"content":"a"}`), finish("stop"), used} {
		if _, err := r.Chunk(nil, chunkOf(t, p)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := r.Whole(8)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"id": `"resp_1"`, "object": `"response"`, "created_at": "7", "completed_at": "8", "status": `"completed"`, "error": "null", "incomplete_details": "null",
		"instructions": "null", "model": `"m"`, "parallel_tool_calls": "true", "temperature": "null", "tool_choice": `"auto"`, "tools": "[]", "top_p": "null",
		"metadata": "{}", "background": "false", "max_output_tokens": "null", "max_tool_calls": "null", "previous_response_id": "null",
		"reasoning": `{"effort":null,"summary":null}`, "service_tier": `"default"`, "store": "false", "text": `{"format":{"type":"text"},"verbosity":"medium"}`,
		"top_logprobs": "0", "truncation": `"disabled"`, "user": "null", "safety_identifier": "null", "prompt_cache_key": "null",
		"output": `[{"id":"msg_1x0","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"a"}]}]`,
		"usage":  `{"input_tokens":7,"input_tokens_details":{"cached_tokens":2},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":16}`,
	} {
		if string(got[name]) != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("unexpected: %s", got)
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
		r := NewReply(parse(t, `"input":"hi","stream":true`), "1", 7, "m", nil)
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

// TestReplyKeepsToItsBudget: what is kept for the last event was granted.
func TestReplyKeepsToItsBudget(t *testing.T) {
	for name, delta := range map[string]string{
		"text":      `{"content":"` + strings.Repeat("x", 1000) + `"}`,
		"reasoning": `{"reasoning_content":"` + strings.Repeat("x", 1000) + `"}`,
		"items":     `{"content":"x","reasoning_content":"x"}`,
	} {
		left := 64 << 10
		r := NewReply(parse(t, `"input":"hi"`), "1", 7, "m", func(n int) bool {
			left -= n
			return left >= 0
		})
		c := chunkOf(t, piece(delta))
		var err error
		n := 0
		for ; err == nil && n < 1000; n++ {
			_, err = r.Chunk(nil, c)
		}
		if !errors.Is(err, chat.ErrTooLarge) || n > 130 {
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
		q := `"input":[{"role":"assistant","content":"re"}],"include":["message.output_text.logprobs"]`
		if streamed {
			q += `,"stream":true`
		}
		r := NewReply(parse(t, q), "1", 7, "m", func(n int) bool { return n >= 0 && n < 1<<20 })
		var out []byte
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			var c chat.Chunk
			if c.Read(line) != nil {
				continue
			}
			var err error
			if out, err = r.Chunk(out, &c); err != nil {
				out = r.Fail(out, "x", err.Error())
				break
			}
		}
		if !streamed {
			if b, err := r.Whole(8); err == nil && !json.Valid(b) {
				t.Fatalf("%s", b)
			}
			return
		}
		out, _ = r.End(out, 8)
		for line := range bytes.SplitSeq(out, []byte("\n")) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && !json.Valid(data) {
				t.Fatalf("%s", line)
			}
		}
	})
}

func BenchmarkChunk(b *testing.B) {
	r := NewReply(parse(b, `"input":"hi","stream":true`), "0123456789abcdef", 7, "m", nil)
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
