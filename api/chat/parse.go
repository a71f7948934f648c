package chat

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Read reads a payload of a stream, which is neither [DONE] nor null, into c,
// whatever was there before. The error is ErrChunk.
func (c *Chunk) Read(payload []byte) error {
	*c = Chunk{ID: c.ID, Model: c.Model, Fingerprint: c.Fingerprint, Choices: c.Choices[:0]}
	if !json.Valid(payload) {
		return fmt.Errorf("%w: not JSON", ErrChunk)
	}
	r := reader{ok: true}
	r.object(payload, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "id":
			r.same(&c.ID, v)
		case "model":
			r.same(&c.Model, v)
		case "system_fingerprint":
			r.same(&c.Fingerprint, v)
		case "created":
			c.Created = int64(r.number(v))
		case "choices":
			r.list(v, func(v json.RawMessage) { c.Choices = append(c.Choices, r.choice(v)) })
		case "usage":
			c.HasUsage = !isNull(v)
			c.Usage = r.usage(v)
		case "timings":
			c.Timings = r.raw(v)
		case "__verbose":
			r.object(v, func(name []byte, v json.RawMessage) {
				if string(name) == "stopping_word" {
					c.StoppingWord = r.text(v)
				}
			})
		}
	})
	if !r.ok {
		return fmt.Errorf("%w: a field is of another kind", ErrChunk)
	}
	return nil
}

// reader reads values of valid JSON, null as nothing, and notes where one is of
// another kind than it must be.
type reader struct{ ok bool }

func isNull(v json.RawMessage) bool { return string(v) == "null" }

func (r *reader) object(v json.RawMessage, each func(name []byte, v json.RawMessage)) {
	if !isNull(v) && !Members(v, each) {
		r.ok = false
	}
}

func (r *reader) list(v json.RawMessage, each func(v json.RawMessage)) {
	if !isNull(v) && !Elements(v, each) {
		r.ok = false
	}
}

func (r *reader) raw(v json.RawMessage) json.RawMessage {
	if isNull(v) {
		return nil
	}
	return v
}

func (r *reader) text(v json.RawMessage) string {
	if isNull(v) {
		return ""
	}
	s, ok := unquote(v)
	r.ok = r.ok && ok
	return s
}

// same is text for what mostly is as it was in the chunk before.
func (r *reader) same(s *string, v json.RawMessage) {
	if len(v) != len(*s)+2 || string(v[1:len(v)-1]) != *s || v[0] != '"' {
		*s = r.text(v)
	}
}

func (r *reader) number(v json.RawMessage) int {
	if isNull(v) {
		return 0
	}
	n, err := strconv.Atoi(string(v))
	r.ok = r.ok && err == nil
	return n
}

func (r *reader) choice(v json.RawMessage) (c Choice) {
	r.object(v, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "index":
			c.Index = r.number(v)
		case "delta":
			c.Delta = r.delta(v)
		case "text":
			c.Text = r.text(v)
		case "logprobs":
			c.Logprobs = r.raw(v)
		case "finish_reason":
			c.Finish = r.text(v)
		}
	})
	return c
}

func (r *reader) delta(v json.RawMessage) (d Delta) {
	r.object(v, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "content":
			d.Content = r.text(v)
		case "reasoning_content":
			d.Reasoning = r.text(v)
		case "tool_calls":
			r.list(v, func(v json.RawMessage) { d.ToolCalls = append(d.ToolCalls, r.call(v)) })
		}
	})
	return d
}

func (r *reader) call(v json.RawMessage) (c ToolCall) {
	r.object(v, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "index":
			c.Index = r.number(v)
		case "id":
			c.ID = r.text(v)
		case "function":
			r.object(v, func(name []byte, v json.RawMessage) {
				switch string(name) {
				case "name":
					c.Name = r.text(v)
				case "arguments":
					c.Arguments = r.text(v)
				}
			})
		}
	})
	return c
}

func (r *reader) usage(v json.RawMessage) (u Usage) {
	r.object(v, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "completion_tokens":
			u.Completion = r.number(v)
		case "prompt_tokens":
			u.Prompt = r.number(v)
		case "total_tokens":
			u.Total = r.number(v)
		case "prompt_tokens_details":
			r.object(v, func(name []byte, v json.RawMessage) {
				if string(name) == "cached_tokens" {
					u.Cached = r.number(v)
				}
			})
		}
	})
	return u
}
