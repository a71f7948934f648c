package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"relay/api/chat"
	"relay/scheduler"
)

// chatDialect is POST /v1/chat/completions: OpenAI's, and the engine's own.
func chatDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(chatFields, body)
	if no != nil {
		return nil, no
	}
	q.path, q.kind = pathChat, kindChat
	if q.value("messages") == nil {
		return nil, invalid("messages", "the body has no messages")
	}
	if a, b := q.value("max_tokens"), q.value("max_completion_tokens"); a != nil && b != nil {
		if !bytes.Equal(a, b) {
			return nil, invalid("max_tokens", "max_tokens and max_completion_tokens mean the same; send one of them")
		}
		q.drop("max_tokens")
	}
	if no := q.chooseTools(); no != nil {
		return nil, no
	}
	logprobs := string(q.value("logprobs")) == "true"
	top, _ := whole(q.value("top_logprobs"))
	switch {
	case logprobs && q.tools:
		return nil, invalid("logprobs", "the engine tells no logprobs beside tools; leave one of them out")
	case !logprobs && top > 0:
		return nil, invalid("top_logprobs", "top_logprobs needs logprobs to be true")
	case !logprobs:
		q.drop("top_logprobs")
	case top == 0: // The engine would tell none at all.
		q.set("top_logprobs", "1")
	}
	return q, q.complete(chat.OfChat, logprobs && top == 0)
}

// textDialect is POST /v1/completions.
func textDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(textFields, body)
	if no != nil {
		return nil, no
	}
	q.path, q.kind = pathText, kindChat
	prompt := q.value("prompt")
	if prompt == nil {
		return nil, invalid("prompt", "the body has no prompt")
	}
	q.prompts = prompts(prompt)
	v := q.value("logprobs")
	n, _ := whole(v)
	if v != nil && n == 0 {
		q.set("logprobs", "1")
	}
	if no := q.complete(chat.OfText, false); no != nil {
		return nil, no
	}
	if v != nil {
		q.reply = legacyLogprobs(q.reply, n)
	}
	return q, nil
}

// complete has a completion streamed by the engine, with all that relay wants to know of
// it, and makes its reply.
func (q *request) complete(kind chat.Kind, blank bool) *refusal {
	q.stream = string(q.value("stream")) == "true"
	var options struct {
		Usage bool `json:"include_usage"`
	}
	if v := q.value("stream_options"); v != nil {
		if !q.stream {
			return invalid("stream_options", "stream_options is for streams; send stream: true, or leave it out")
		}
		json.Unmarshal(v, &options)
	}
	q.answers, _ = whole(q.value("n"))
	timings := string(q.value("timings_per_token")) == "true"
	q.progress = q.stream && string(q.value("return_progress")) == "true"
	q.streamed()
	choices := max(q.answers, 1) * max(q.prompts, 1)
	if q.stream {
		q.reply = func(c *call, model string) reply {
			return &passing{model: encodeJSON(model), kind: kind, usage: options.Usage, timings: timings, progress: q.progress, blank: blank}
		}
		return nil
	}
	q.reply = func(c *call, model string) reply {
		return &collecting{blank: blank, Collector: chat.NewCollector(chat.Options{
			Kind: kind, Choices: choices, PerPrompt: q.answers, Model: model, Timings: timings, Grab: c.grab,
		})}
	}
	return nil
}

// streamed has the engine stream its answer, and tell with every event what it took.
func (q *request) streamed() {
	q.set("stream", "true")
	q.set("stream_options", `{"include_usage":true}`)
	q.set("timings_per_token", "true")
	q.set("return_progress", "true")
}

// chooseTools puts a choice of tools into the engine's words: it knows none, auto and
// required, but not a choice among the tools, which is made by sending it those alone.
func (q *request) chooseTools() *refusal {
	v := q.value("tools")
	var tools []json.RawMessage
	if v != nil {
		json.Unmarshal(v, &tools)
	}
	choice := q.value("tool_choice")
	q.tools = len(tools) > 0 && string(choice) != `"none"`
	if len(tools) == 0 {
		switch string(choice) {
		case "", `"auto"`, `"none"`:
			return nil
		}
		return invalid("tool_choice", "there are no tools to choose from; send tools, or leave tool_choice out")
	}
	if choice == nil || choice[0] != '{' {
		return nil
	}
	type named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var chosen struct {
		named
		Allowed struct {
			Mode  string  `json:"mode"`
			Tools []named `json:"tools"`
		} `json:"allowed_tools"`
	}
	if json.Unmarshal(choice, &chosen) != nil {
		return invalid("tool_choice", "tool_choice is not what it must be: {\"type\":\"function\",\"function\":{\"name\":…}}")
	}
	mode, names := "required", []named{chosen.named}
	switch chosen.Type {
	case "function":
	case "allowed_tools":
		mode, names = chosen.Allowed.Mode, chosen.Allowed.Tools
		if mode != "auto" && mode != "required" {
			return invalid("tool_choice", "tool_choice: allowed_tools.mode must be one of: auto, required")
		}
	default:
		return invalid("tool_choice", "tool_choice is of the type %q; there is: function, allowed_tools", clip(chosen.Type, 40))
	}
	var kept []json.RawMessage
	for _, want := range names {
		at := slices.IndexFunc(tools, func(raw json.RawMessage) bool {
			var t named
			return json.Unmarshal(raw, &t) == nil && t.Function.Name == want.Function.Name
		})
		if at < 0 {
			return invalid("tool_choice", "tool_choice names %q, which is not among the tools", clip(want.Function.Name, 60))
		}
		kept = append(kept, tools[at])
	}
	if len(kept) == 0 {
		return invalid("tool_choice", "tool_choice allows no tool; name one, or send \"none\"")
	}
	q.set("tools", string(encodeJSON(kept)))
	q.set("tool_choice", `"`+mode+`"`)
	return nil
}

// passing passes a stream on, event by event: the engine's chunks without what the client
// did not ask for.
type passing struct {
	model                    []byte // as JSON
	kind                     chat.Kind
	usage, timings, progress bool
	// blank empties the lists of top_logprobs, which relay alone asked for.
	blank bool
	// last is the latest event that told the usage.
	last  []byte
	began bool
}

// event writes the chunk anew: most of it is copied in one piece.
func (p *passing) event(c *chunk) ([]byte, error) {
	p.began = true
	if u := c.value("usage"); len(u) > 0 && u[0] == '{' {
		p.last = append(p.last[:0], c.data...)
		if v := c.value("choices"); len(v) > 0 && bytes.IndexByte(v, '{') < 0 {
			return nil, nil
		}
	}
	return p.write(c, nil), nil
}

func (p *passing) write(c *chunk, usage []byte) []byte {
	out := append(make([]byte, 0, len(c.data)+len(p.model)+48), "data: {"...)
	first := true
	for _, m := range c.out.members {
		v := m.value.of(c.data)
		switch string(m.key) {
		case "usage":
			continue
		case "timings":
			if !p.timings {
				continue
			}
		case "prompt_progress":
			if !p.progress {
				continue
			}
		case "model":
			v = p.model
		case "choices":
			switch {
			case usage != nil:
				v = []byte("[]")
			case p.blank:
				v = blankTop(v)
			}
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, c.data[m.all.start:m.value.start]...)
		out = append(out, v...)
	}
	if usage == nil && p.usage {
		usage = []byte("null")
	}
	if usage != nil {
		if !first {
			out = append(out, ',')
		}
		out = append(append(out, `"usage":`...), usage...)
	}
	out = append(out, "}\n\n"...)
	if bytes.IndexByte(out[:len(out)-2], '\n') >= 0 {
		return dataEvent(bytes.TrimPrefix(out[:len(out)-2], []byte("data: ")))
	}
	return out
}

func (p *passing) end(u usage) ([]byte, error) {
	if !p.began {
		return nil, chat.ErrUnfinished
	}
	var out []byte
	if p.usage && p.last != nil {
		var c chunk
		c.data = p.last
		if err := outlineInto(&c.out, c.data); err != nil {
			return nil, err
		}
		out = p.write(&c, appendUsage(nil, u))
	}
	return append(out, "data: "+endOfStream+"\n\n"...), nil
}

func appendUsage(dst []byte, u usage) []byte {
	return chat.Usage{Prompt: u.Prompt, Completion: u.Completion, Total: u.Prompt + u.Completion, Cached: u.Cached}.Append(dst)
}

func (p *passing) failed(no *refusal) []byte { return shapeOpenAI{}.event(no, "") }

func (p *passing) keepAlive() []byte { return waiting }

// collecting puts a stream together to one answer.
type collecting struct {
	*chat.Collector
	blank bool
}

func (a *collecting) event(c *chunk) ([]byte, error) {
	if !a.blank {
		return nil, a.Add(c.data)
	}
	var b []byte
	at := c.out.get("choices")
	b = append(append(append(b, c.data[:at.start]...), blankTop(at.of(c.data))...), c.data[at.end:]...)
	return nil, a.Add(b)
}

func (a *collecting) end(usage) ([]byte, error) { return a.Answer() }

func (a *collecting) failed(no *refusal) []byte { return nil }

func (a *collecting) keepAlive() []byte { return nil }

// topLogprobs begins a list of the likeliest tokens; it cannot be within a string, whose
// quotes are escaped.
var topLogprobs = []byte(`"top_logprobs":`)

// blankTop is valid JSON with every list of top_logprobs empty.
func blankTop(v []byte) []byte {
	var out []byte
	for {
		at := bytes.Index(v, topLogprobs)
		if at < 0 {
			return append(out, v...)
		}
		at += len(topLogprobs)
		s := scanner{b: v, i: at}
		if s.value(0, placeOther) != nil {
			return append(out, v...)
		}
		out = append(append(out, v[:at]...), "[]"...)
		v = v[s.i:]
	}
}

// heldTooMuch is the refusal for an answer that may not be held whole; nil for any other
// error.
func heldTooMuch(err error) *refusal {
	if !errors.Is(err, chat.ErrTooLarge) {
		return nil
	}
	no := refuse(scheduler.Busy, "this peer holds as many bytes of requests and answers as it may; ask again in a moment, ask another peer, or have the answer streamed")
	no.retry = scheduler.RetryLater
	return no
}
