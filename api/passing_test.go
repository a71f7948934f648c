package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"relay/api/chat"
)

// A chunk that is passed on has what the client asked for and no more, whatever the
// order of its members.
func TestPassing(t *testing.T) {
	const chunkOf = `"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"top_logprobs":[{"token":"]"}],"id":1},{"top_logprobs":[]}]}}]`
	for _, c := range []struct {
		p        passing
		in, want string
	}{
		{passing{}, `{` + chunkOf + `,"model":"x","timings":{"a":1},"usage":{"prompt_tokens":1}}`, `{` + chunkOf + `,"model":"m"}`},
		{passing{}, ` { "timings" : {} , "usage":{}, "model":"x" , ` + chunkOf + `} `, `{"model":"m",` + chunkOf + `}`},
		{passing{timings: true}, `{"timings":{"a":1},` + chunkOf + `}`, `{"timings":{"a":1},` + chunkOf + `}`},
		{passing{usage: true}, `{` + chunkOf + `}`, `{` + chunkOf + `,"usage":null}`},
		{passing{progress: true}, `{` + chunkOf + `,"prompt_progress":{"total":1}}`, `{` + chunkOf + `,"prompt_progress":{"total":1}}`},
		{passing{hide: blankTop}, `{` + chunkOf + `}`, `{` + strings.ReplaceAll(chunkOf, `[{"token":"]"}]`, `[]`) + `}`},
		{passing{kind: chat.OfText}, `{` + chunkOf + `,"id":"chatcmpl-x"}`, `{` + chunkOf + `,"id":"cmpl-x"}`},
		{passing{kind: chat.OfText}, `{"id":"x",` + chunkOf + `}`, `{"id":"x",` + chunkOf + `}`},
		{passing{}, `{` + chunkOf + `,"id":"chatcmpl-x"}`, `{` + chunkOf + `,"id":"chatcmpl-x"}`},
		{passing{}, `{"choices":[],"usage":{"prompt_tokens":1}}`, ``},
		{passing{}, "{\"choices\":[\n{\"index\":0}]}", "{\"choices\":[\ndata: {\"index\":0}]}"},
	} {
		c.p.model = []byte(`"m"`)
		ev := chunk{data: []byte(c.in)}
		if err := outlineInto(&ev.out, ev.data); err != nil {
			t.Fatal(err)
		}
		got, err := c.p.event(&ev)
		want := ""
		if c.want != "" {
			want = "data: " + c.want + "\n\n"
		}
		if string(got) != want || err != nil {
			t.Errorf("%s became\n%q, want\n%q: %v", c.in, got, want, err)
		}
	}
}

func TestFurtherCalls(t *testing.T) {
	for in, want := range map[string]bool{
		`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}`: false, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"a"}]}}]}`: true,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"\"index\":1"},"index":2}]},"index":0}]}`: true,
		`{"choices":[{"index":3,"delta":{"content":"\"tool_calls\":[{\"index\":1"}}]}`:                          false, `{"choices":[]}`: false, `{}`: false,
	} {
		ev := chunk{data: []byte(in)}
		if err := outlineInto(&ev.out, ev.data); err != nil {
			t.Fatal(err)
		}
		if got := ev.furtherCall(); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

// The tokens are those of all answers, and a prompt's count once.
func TestTally(t *testing.T) {
	const finish = `"choices":[{"index":%,"finish_reason":"stop"}],`
	for _, c := range []struct {
		name    string
		answers int
		events  []string
		want    usage
	}{
		{"nothing", 1, []string{`{"choices":[{"index":0}]}`}, usage{}},
		{"a prompt that is read", 1, []string{`{"choices":[{"index":0}],"prompt_progress":{"total":90,"cache":10,"processed":40}}`}, usage{40, 0, 10}},
		{"a stream that is cut", 1, []string{`{"choices":[{"index":0}],"timings":{"cache_n":2,"prompt_n":5,"predicted_n":3,"prompt_ms":1.5}}`}, usage{7, 3, 2}},
		{"a chat", 0, []string{`{` + finish + `"a":1}`, `{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":2}},"timings":{"predicted_n":9}}`}, usage{7, 3, 2}},
		{"two answers of a chat", 2, []string{
			`{"choices":[{"index":1}]}`, `{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":7}}`,
			`{"choices":[{"index":0}]}`, `{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":7}}`}, usage{7, 7, 0}},
		{"two prompts of two answers", 2, []string{
			`{"choices":[{"index":3}],"usage":{"completion_tokens":1,"prompt_tokens":5}}`, `{"choices":[{"index":2}],"usage":{"completion_tokens":2,"prompt_tokens":5}}`,
			`{"choices":[{"index":0}],"usage":{"completion_tokens":3,"prompt_tokens":4}}`, `{"choices":[{"index":1}],"timings":{"predicted_n":1,"prompt_n":4}}`}, usage{9, 7, 0}},
		{"words that look like it", 1, []string{`{"choices":[{"index":0,"text":"\"index\":7,\"usage\":{\"prompt_tokens\":9}"}],"timings":{"prompt_n":1,"predicted_n":1}}`}, usage{1, 1, 0}},
	} {
		tally := tally{answers: c.answers}
		for _, e := range c.events {
			ev := chunk{data: []byte(strings.ReplaceAll(e, "%", "0"))}
			if err := outlineInto(&ev.out, ev.data); err != nil {
				t.Fatal(err)
			}
			tally.note(&ev)
		}
		if got := tally.sum(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Whatever an engine sends for an event, what goes on is an event that is JSON, with the
// client's name of the model, and nothing that was not asked for.
func FuzzPassing(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" a"},"logprobs":{"content":[{"top_logprobs":[{"token":"["}]}]}}],"model":"x","timings":{"prompt_n":1}}`,
		`{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":7},"model":"x"}`, `{"usage":null}`, `{"choices":5,"usage":{}}`, `{"choices":[{"index":-1}],"prompt_progress":{}}`,
		"{\"choices\":[{\"index\":99999999999,\n\"text\":\"top_logprobs\\\":\"}],\"model\":{}}", `{"choices":[{"index":4000,"text":"a","logprobs":{"content":[{"token":"a","logprob":-1}]}}]}`,
	} {
		f.Add([]byte(s), uint8(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, bits uint8) {
		ev := chunk{data: bytes.Clone(data)}
		if outlineInto(&ev.out, ev.data) != nil {
			return
		}
		counted := tally{answers: int(bits>>5) + 1}
		counted.note(&ev)
		if u := counted.sum(); u.Prompt < 0 || u.Completion < 0 || u.Cached < 0 || len(counted.each) > maxAnswers {
			t.Fatalf("%q: %+v", data, u)
		}
		p := &passing{model: []byte(`"m"`), usage: bits&1 != 0, timings: bits&2 != 0}
		if bits&4 != 0 {
			p.hide = blankTop
		}
		var r reply = p
		if bits&8 != 0 {
			r = legacyLogprobs(func(*call, string) reply { return p }, 1)(nil, "")
		}
		out, err := r.event(&ev)
		if err != nil {
			return
		}
		end, err := r.end(usage{1, 2, 3})
		if err != nil && p.began {
			t.Fatalf("%q: %v", data, err)
		}
		events := newEventReader(bytes.NewReader(append(out, end...)), 1<<20)
		for n := 0; ; n++ {
			got, err := events.next()
			if err != nil {
				break
			}
			if string(got.data) == endOfStream {
				return
			}
			var object map[string]json.RawMessage
			if err := json.Unmarshal(got.data, &object); err != nil {
				t.Fatalf("%q became %q: %v", data, got.data, err)
			}
			if name, there := object["model"]; there && string(name) != `"m"` {
				t.Fatalf("%q became %q", data, got.data)
			}
			if _, there := object["timings"]; there && !p.timings {
				t.Fatalf("%q became %q", data, got.data)
			}
			if u, there := object["usage"]; there && !p.usage || there && n == 0 && len(out) > 0 && string(u) != "null" {
				t.Fatalf("%q became %q", data, got.data)
			}
		}
		t.Fatalf("%q: %q has no end", data, end)
	})
}

func BenchmarkPassing(b *testing.B) {
	data := []byte(`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" time"}}],"created":1796068072,"id":"chatcmpl-BRCwDS0E6rLJWP9hFp0NosIDq8J3WCrT","model":"01uidoftiny","system_fingerprint":"b1-80fb11a","object":"chat.completion.chunk","timings":{"cache_n":0,"prompt_n":7,"prompt_ms":1.471,"prompt_per_token_ms":0.21014285714285716,"prompt_per_second":4758.667573079538,"predicted_n":2,"predicted_ms":0.881,"predicted_per_token_ms":0.881,"predicted_per_second":1135.0737797956867}}`)
	p := &passing{model: []byte(`"tiny"`), kind: chat.OfChat}
	t := tally{answers: 1}
	ev := chunk{data: data}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := outlineInto(&ev.out, data); err != nil {
			b.Fatal(err)
		}
		t.note(&ev)
		if out, err := p.event(&ev); err != nil || len(out) == 0 {
			b.Fatal(err)
		}
	}
}
