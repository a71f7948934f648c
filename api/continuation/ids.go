package continuation

import (
	"bytes"
	"encoding/json"

	"relay/api/chat"
)

// IDs are the members, each with a comma before it, that have an engine tell the id of each
// token of a completion. They are for requests with one answer, in which the client did not
// ask for logprobs itself: with those the engine tells the ids anyway.
const IDs = `,"n_probs":1,"post_sampling_probs":true`

// Without gives the value of a chunk's "choices" as it would be if no ids had been asked for.
// The value is not changed; what is returned may be the value itself.
func Without(kind chat.Kind, choices []byte) []byte {
	if !bytes.Contains(choices, []byte(`"logprobs"`)) {
		return choices
	}
	out := append(make([]byte, 0, len(choices)), '[')
	ok := chat.Elements(choices, func(choice json.RawMessage) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '{')
		first := true
		chat.Members(choice, func(name []byte, v json.RawMessage) {
			if string(name) == "logprobs" {
				if kind == chat.OfChat {
					return
				}
				v = json.RawMessage("null")
			}
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(append(chat.Quote(out, name), ':'), v...)
		})
		out = append(out, '}')
	})
	if !ok {
		return choices
	}
	return append(out, ']')
}
