package api

import (
	"bytes"

	"relay/api/chat"
)

// passing passes a stream on, event by event: the engine's chunks without what the client
// did not ask for.
type passing struct {
	model                    []byte // as JSON
	kind                     chat.Kind
	usage, timings, progress bool
	// hide takes from the choices what relay alone asked for; nil takes nothing.
	hide func(choices []byte) []byte
	// last is the latest event that told the usage.
	last  []byte
	began bool
}

// chatID begins the engine's ids, of text completions too.
var chatID = []byte(`"chatcmpl-`)

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
		case "id":
			if rest, ok := bytes.CutPrefix(v, chatID); ok && p.kind == chat.OfText {
				v = append([]byte(`"cmpl-`), rest...)
			}
		case "choices":
			switch {
			case usage != nil:
				v = []byte("[]")
			case p.hide != nil:
				v = p.hide(v)
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
