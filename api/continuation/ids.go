package continuation

import (
	"bytes"

	"relay/api/chat"
)

// IDs are the members, each with a comma before it, that have an engine tell the id of each
// token of a completion. They are for requests with one answer, in which the client did not
// ask for logprobs itself: with those the engine tells the ids anyway.
const IDs = `,"n_probs":1,"post_sampling_probs":true`

// name begins the logprobs of a choice; it cannot be within a string, whose quotes are escaped.
var name = []byte(`"logprobs":`)

// Without gives the value of a chunk's "choices", which is JSON, as it would be if no ids had
// been asked for. The value is not changed; what is returned may be the value itself.
func Without(kind chat.Kind, choices []byte) []byte {
	rest, out := choices, []byte(nil)
	for {
		at := bytes.Index(rest, name)
		if at < 0 {
			break
		}
		end := valueEnd(rest, at+len(name))
		if out == nil {
			out = make([]byte, 0, len(choices))
		}
		if kind == chat.OfText {
			out = append(append(out, rest[:at+len(name)]...), "null"...)
			rest = rest[end:]
			continue
		}
		out = append(out, rest[:at]...)
		rest = rest[end:]
		switch {
		case len(out) > 0 && out[len(out)-1] == ',':
			out = out[:len(out)-1]
		case len(rest) > 0 && rest[0] == ',':
			rest = rest[1:]
		}
	}
	if out == nil {
		return choices
	}
	return append(out, rest...)
}

// valueEnd is where the JSON value ends that begins at i.
func valueEnd(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
		case ',':
			if depth == 0 {
				return i
			}
		case ']', '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return len(b)
}
