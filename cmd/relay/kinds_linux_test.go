package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// said is what a stream of choices came to.
type said struct {
	text, reasoning, finish string
	ids                     []int    // Of a chat with logprobs.
	bytes                   string   // Of those.
	tokens                  []string // Of a text with logprobs.
	prompt, completion      int
	roles                   int
	calls                   string // Arguments of tools.
	code, message           string // Of an error that ended it.
}

// read takes a stream of choices apart, and wants all its events to be of one answer:
// one id, one role first, one reason for the end, one usage behind it.
func read(t *testing.T, h heard) (s said) {
	t.Helper()
	if h.status != 200 || len(h.events) == 0 {
		t.Fatalf("%d %s", h.status, h.body)
	}
	type chunk struct {
		ID, Model, Object string
		Created           int64
		Fingerprint       string `json:"system_fingerprint"`
		Choices           []struct {
			Index    int
			Text     string
			Finish   *string `json:"finish_reason"`
			Logprobs *struct {
				Content []struct {
					ID    int
					Bytes []byteOf
				}
				Tokens  []string
				Offsets []int `json:"text_offset"`
			}
			Delta struct {
				Role, Content string
				Reasoning     string `json:"reasoning_content"`
				ToolCalls     []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
		}
		Error *struct{ Code, Message string }
	}
	var first string
	var created []int64
	finishes, usages := 0, 0
	for i, data := range h.events {
		if data == "[DONE]" {
			if i != len(h.events)-1 {
				t.Errorf("[DONE] is event %d of %d", i, len(h.events))
			}
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if c.Error != nil {
			s.code, s.message = c.Error.Code, c.Error.Message
			if i != len(h.events)-1 {
				t.Errorf("there are %d events behind an error: %q", len(h.events)-1-i, h.events[i:])
			}
			continue
		}
		if is := fmt.Sprint(c.ID, c.Model, c.Object, c.Fingerprint); first == "" {
			first = is
		} else if is != first {
			t.Errorf("event %d is of %s, the first of %s", i, is, first)
			first = is
		}
		// The engine tells the time of each event.
		if len(h.continued) == 0 || i < h.continued[0].events {
			created = append(created, c.Created)
		} else if !slices.Contains(created, c.Created) {
			t.Errorf("event %d is of %d, those before the seam of %d", i, c.Created, created)
			created = append(created, c.Created)
		}
		if c.Usage != nil {
			usages++
			s.prompt, s.completion = c.Usage.Prompt, c.Usage.Completion
			if c.Usage.Total != s.prompt+s.completion || finishes != 1 {
				t.Errorf("usage %+v behind %d ends", *c.Usage, finishes)
			}
		}
		for _, o := range c.Choices {
			if o.Finish != nil {
				finishes++
				s.finish = *o.Finish
			}
			if o.Delta.Role != "" {
				s.roles++
				if s.text+s.reasoning+s.calls != "" {
					t.Errorf("a role in event %d", i)
				}
			}
			if l := o.Logprobs; l != nil {
				for _, p := range l.Content {
					s.ids = append(s.ids, p.ID)
					s.bytes += string(bytesOf(p.Bytes))
				}
				for i, offset := range l.Offsets {
					if want := utf8.RuneCountInString(s.text + strings.Join(l.Tokens[:i], "")); offset != want {
						t.Errorf("%q is at %d, not %d", l.Tokens[i], want, offset)
					}
				}
				s.tokens = append(s.tokens, l.Tokens...)
			}
			s.text += o.Text + o.Delta.Content
			s.reasoning += o.Delta.Reasoning
			for _, call := range o.Delta.ToolCalls {
				s.calls += call.Function.Arguments
			}
		}
	}
	if s.code == "" && (finishes != 1 || usages != 1 || h.events[len(h.events)-1] != "[DONE]") {
		t.Errorf("%d ends, %d usages, the last event is %s", finishes, usages, h.events[len(h.events)-1])
	}
	return s
}

// byteOf is a byte that JSON has as a number in a list.
type byteOf int

func bytesOf(list []byteOf) (b []byte) {
	for _, x := range list {
		b = append(b, byte(x))
	}
	return b
}

// A kind is a request that loses its peer in the middle.
type kind struct {
	name string
	// path is that of a chat where it is empty.
	path string
	// more is what the body has besides, start the token that the answer begins with.
	more  map[string]any
	start int
	// after is how many pieces of the answer come before its peer is killed: so few
	// that some twenty tokens are left to come, which take longer than that.
	after int
	// by is what it is continued from; empty for whatever there is.
	by string
	// want is what must hold of the answer.
	want func(t *testing.T, w *walked, s said)
	// refused is in the message of the error that ends a stream which cannot be
	// continued.
	refused string
	// sampled says that what comes behind the seam is another draw: an undisturbed
	// stream says something else.
	sampled bool
}

const textRoute, chatRoute = "/v1/completions", "/v1/chat/completions"

func (k kind) body() (path string, body map[string]any) {
	body = map[string]any{
		"model": "walk", "stream": true, "stream_options": map[string]bool{"include_usage": true},
		"temperature": 0, "logit_bias": [][]int{{k.start, 10}},
	}
	if k.path == textRoute {
		body["prompt"] = "<|user|>hello<|assistant|>"
	} else {
		body["messages"] = []map[string]string{{"role": "user", "content": "hello"}}
	}
	maps.Copy(body, k.more)
	if k.path == "" {
		return chatRoute, body
	}
	return k.path, body
}

const weatherTool = `[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

func kinds(w *walked) []kind {
	plain := func(t *testing.T, w *walked, s said) {
		if s.text != w.text(w.plain, len(w.plain)) || s.finish != "stop" || s.completion != len(w.plain)+1 {
			t.Errorf("%+v", s)
		}
	}
	round := func(path []int, n int) func(t *testing.T, w *walked, s said) {
		return func(t *testing.T, w *walked, s said) {
			if s.text != w.text(path, n) || s.finish != "length" || s.completion != n {
				t.Errorf("%d tokens, %+v, want %q", n, s, w.text(path, n))
			}
		}
	}
	// Which of two the walk takes follows from the seed, or from what was said before.
	forked := func(t *testing.T, w *walked, s said) {
		left := s.text
		for n := range s.completion {
			rung := [2]int{w.fork, w.fork}
			if n > 0 {
				rung = w.rungs[(n-1)%len(w.rungs)]
			}
			i := slices.IndexFunc(rung[:], func(id int) bool { return strings.HasPrefix(left, w.pieces[id]) })
			if i < 0 {
				t.Fatalf("token %d is none of %v: %q", n, rung, left)
			}
			left = strings.TrimPrefix(left, w.pieces[rung[i]])
		}
		if left != "" || s.finish != "length" || s.completion != 90 {
			t.Errorf("%q is left of %+v", left, s)
		}
	}
	fork := func(more map[string]any) map[string]any {
		more["max_tokens"] = 90
		return more
	}
	// The engine holds back what may become it for thirty tokens.
	stop := w.text(w.plain[24:54], 30)
	stopped := func(t *testing.T, w *walked, s said) {
		if s.text != w.text(w.plain, 24) || s.finish != "stop" {
			t.Errorf("%+v", s)
		}
	}
	// The engine takes away the space before what a message begins with.
	trimmed := func(path []int) string { return strings.TrimPrefix(w.text(path, len(path)), " ") }
	words := len(w.letters)
	letters := 10*words - 4 // which ends behind a character
	answered := func(t *testing.T, w *walked, s said) {
		if s.reasoning != w.text(w.reasoning, len(w.reasoning)) || s.text != w.text(w.answer, len(w.answer)) || s.finish != "stop" ||
			s.completion != len(w.reasoning)+len(w.answer)+3 {
			t.Errorf("%+v", s)
		}
	}
	var tools any
	if err := json.Unmarshal([]byte(weatherTool), &tools); err != nil {
		panic(err)
	}
	long := strings.Repeat("A long prompt about many small things. ", 60)
	object := map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string", "minLength": 200}}, "required": []string{"a"}}

	return []kind{
		{name: "chat", start: w.plain[0], after: 20, by: "ids", want: plain},
		{name: "text", path: textRoute, start: w.plain[0], after: 20, by: "ids", want: plain, more: map[string]any{"max_tokens": 200}},
		{name: "text of ids", path: textRoute, start: w.plain[0], after: 20, by: "ids", want: plain, more: map[string]any{"prompt": []int{1, 260, 300, assistantToken}, "max_tokens": 200}},
		{name: "other tokens for the same text", start: w.fragments[0], after: 15, by: "ids", want: round(w.fragments, 90), more: map[string]any{"max_tokens": 90}},

		{name: "a space that is taken away", start: w.beside[0], after: 10, want: func(t *testing.T, w *walked, s said) {
			if s.text != trimmed(w.beside[:39]) || s.finish != "length" {
				t.Errorf("%+v", s)
			}
		}, more: map[string]any{"max_tokens": 39}},

		{name: "temperature and seed", start: w.fork, after: 20, by: "ids", want: forked, sampled: true, more: fork(map[string]any{"temperature": 0.8, "seed": 7})},
		{name: "temperature and seed, text", path: textRoute, start: w.fork, after: 20, by: "ids", want: forked, sampled: true, more: fork(map[string]any{"temperature": 0.8, "seed": 7})},
		{name: "repeat penalty", start: w.fork, after: 30, by: "ids", want: forked, more: fork(map[string]any{"repeat_penalty": 1.02, "repeat_last_n": 64})},
		{name: "frequency penalty", start: w.fork, after: 30, by: "ids", want: forked, more: fork(map[string]any{"frequency_penalty": 0.4})},
		{name: "presence penalty", start: w.fork, after: 30, by: "ids", want: forked, more: fork(map[string]any{"presence_penalty": 0.7})},
		{name: "dry", start: w.fork, after: 30, by: "ids", want: forked, more: fork(map[string]any{"dry_multiplier": 0.3, "dry_allowed_length": 1})},

		{name: "stop string", start: w.plain[0], after: 10, want: stopped, more: map[string]any{"stop": []string{stop}}},
		{name: "stop string at the cut", start: w.plain[0], after: 24, want: stopped, more: map[string]any{"stop": []string{stop}}},
		{name: "stop string at the cut, text", path: textRoute, start: w.plain[0], after: 24, want: stopped, more: map[string]any{"stop": stop, "max_tokens": 200}},
		{name: "stop string that never comes", start: w.plain[0], after: 25, want: plain, more: map[string]any{"stop": w.text(w.plain[20:60], 40) + "!"}},

		{name: "logprobs", start: w.plain[0], after: 20, by: "ids", more: map[string]any{"logprobs": true, "top_logprobs": 2}, want: func(t *testing.T, w *walked, s said) {
			plain(t, w, s)
			if !slices.Equal(s.ids, w.plain) || s.bytes != s.text {
				t.Errorf("the tokens are not told of once each: %v", s.ids)
			}
		}},
		{name: "logprobs of parts of characters", start: w.letters[0], after: 20, more: map[string]any{"logprobs": true, "top_logprobs": 0, "max_tokens": letters}, want: func(t *testing.T, w *walked, s said) {
			round(w.letters, letters)(t, w, s)
			if s.bytes != s.text {
				t.Errorf("the tokens are not told of once each: %q", s.bytes)
			}
		}},
		{name: "logprobs, text", path: textRoute, start: w.plain[0], after: 20, by: "ids", more: map[string]any{"logprobs": 2, "max_tokens": 60}, want: func(t *testing.T, w *walked, s said) {
			round(w.plain, 60)(t, w, s)
			if len(s.tokens) != 60 || strings.Join(s.tokens, "") != s.text {
				t.Errorf("the tokens are not told of once each: %q", s.tokens)
			}
		}},

		{name: "a long prompt", start: w.plain[0], after: 20, by: "ids", want: plain, more: map[string]any{"messages": []map[string]string{{"role": "system", "content": long}, {"role": "user", "content": "hello"}}}},
		{name: "characters of several bytes", start: w.letters[0], after: 20, want: round(w.letters, letters), more: map[string]any{"max_tokens": letters}},
		{name: "characters of several bytes, text", path: textRoute, start: w.letters[0], after: 21, want: round(w.letters, letters), more: map[string]any{"max_tokens": letters}},

		{name: "in the reasoning", start: thinkToken, after: 15, by: "text", want: answered},
		{name: "behind the reasoning", start: thinkToken, after: 50, by: "text", want: answered},
		{name: "text beside tools", start: w.plain[0], after: 20, by: "text", want: plain, more: map[string]any{"tools": tools}},
		{name: "text before a call", start: w.beside[0], after: 15, by: "text", more: map[string]any{"tools": tools}, want: func(t *testing.T, w *walked, s said) {
			if s.text != trimmed(w.beside) || s.calls != `{"city": "`+w.text(w.city, len(w.city))+`"}` || s.finish != "tool_calls" {
				t.Errorf("%+v", s)
			}
		}},
		{name: "a call in flight", start: callToken, after: 5, refused: "tool", more: map[string]any{"tools": tools}},
		{name: "grammar", start: w.plain[0], after: 20, refused: "grammar", more: map[string]any{"grammar": "root ::= [a-zA-Z ]+"}},
		{name: "schema", start: w.plain[0], after: 20, refused: "response_format", more: map[string]any{"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": object}}}},
		{name: "schema, text", path: textRoute, start: w.plain[0], after: 20, refused: "schema", more: map[string]any{"json_schema": object, "max_tokens": 200}},
		{name: "json object", start: w.plain[0], after: 20, refused: "response_format", more: map[string]any{"response_format": map[string]any{"type": "json_object", "schema": object}}},
		{name: "two answers", start: w.plain[0], after: 20, refused: "several", more: map[string]any{"n": 2}},
		{name: "two prompts", path: textRoute, start: w.plain[0], after: 20, refused: "several", more: map[string]any{"prompt": []string{"<|assistant|>", "a<|assistant|>"}, "max_tokens": 70}},
		{name: "mirostat", start: w.plain[0], after: 20, refused: "mirostat", more: map[string]any{"mirostat": 2, "temperature": 0.8}},

		{name: "an answer that the client began", start: w.plain[5], after: 20, more: map[string]any{"messages": []map[string]string{{"role": "user", "content": "hello"}, {"role": "assistant", "content": w.text(w.plain, 5)}}}, want: func(t *testing.T, w *walked, s said) {
			if s.text != strings.TrimPrefix(w.text(w.plain, len(w.plain)), w.text(w.plain, 5)) || s.finish != "stop" || s.completion != len(w.plain)-5+1 {
				t.Errorf("%+v", s)
			}
		}},
		{name: "a limit behind the seam", start: w.plain[0], after: 12, by: "ids", want: round(w.plain, 40), more: map[string]any{"max_tokens": 40}},
	}
}

// TestKinds kills the peer that serves while it answers requests of every kind: each is
// continued as if nothing had been, or ends with an error that says why it cannot be.
func TestKinds(t *testing.T) {
	needEngine(t)
	w := newWalked(t)
	m := newKindsMesh(t, w.write(t, t.TempDir()))
	for _, k := range kinds(w) {
		t.Run(k.name, func(t *testing.T) {
			path, body := k.body()
			var whole said
			if k.refused == "" {
				h, err := m.cut(t.Context(), path, body, 0)
				if err != nil {
					t.Fatal(err)
				}
				whole = read(t, h)
				if k.want(t, w, whole); t.Failed() {
					t.Fatalf("undisturbed: %s", h.events)
				}
			}
			h, err := m.cut(t.Context(), path, body, k.after)
			if err != nil {
				t.Fatal(err)
			}
			if k.refused != "" {
				refusedByName(t, h, k.refused)
				return
			}
			s := read(t, h)
			k.want(t, w, s)
			if s.prompt != whole.prompt || s.roles != whole.roles || !k.sampled && (s.text != whole.text || s.completion != whole.completion) {
				t.Errorf("undisturbed it is\n%+v\nand cut\n%+v", whole, s)
			}
			continuedOnce(t, m, h, k.by)
			if t.Failed() {
				t.Logf("%q", h.events)
			}
		})
	}
	kindsOfDialects(t, m, w)
	kindsUnstreamed(t, m, w)
}

// refusedByName wants a stream to have ended with the error that it cannot be continued,
// and why.
func refusedByName(t *testing.T, h heard, why string) {
	t.Helper()
	var last struct {
		Error struct{ Code, Message string }
	}
	if len(h.events) == 0 || json.Unmarshal([]byte(h.events[len(h.events)-1]), &last) != nil || last.Error.Code != "cannot_continue" || !strings.Contains(last.Error.Message, why) {
		t.Errorf("it does not say that it cannot be continued because of %q: %q", why, h.events)
	}
	if len(h.continued) > 0 {
		t.Errorf("it was continued: %+v", h.continued)
	}
	t.Log(last.Error.Message)
}

// continuedOnce wants a stream to have been continued once, and to tell of it.
func continuedOnce(t *testing.T, m *kindsMesh, h heard, by string) {
	t.Helper()
	if len(h.continued) != 1 {
		t.Fatalf("it was continued %d times: %+v; %q", len(h.continued), h.continued, h.comments)
	}
	c := h.continued[0]
	if c.from != h.header.Get("X-Relay-Peer") || c.from == c.to || m.names[c.to] == "" {
		t.Errorf("it went from %s to %s, and began at %s", c.from, c.to, h.header.Get("X-Relay-Peer"))
	}
	if by != "" && c.by != by {
		t.Errorf("it was continued by %s, not by %s", c.by, by)
	}
	if n := h.trailer.Get("X-Relay-Continued"); n != "1" {
		t.Errorf("the trailer says that it was continued %q times", n)
	}
	if c.tokens == 0 || c.events == 0 {
		t.Errorf("nothing came before the seam: %+v", c)
	}
}
