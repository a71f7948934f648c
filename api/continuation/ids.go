package continuation

import "relay/api/chat"

// IDs are the members, each with a comma before it, that have an engine tell the id of each
// token of a completion, where the client did not ask for logprobs itself: then it tells
// them anyway, and these must not be sent. They are for one answer to one prompt.
const IDs = `,"n_probs":1,"post_sampling_probs":true`

// Without gives the value of a chunk's "choices" as it is when no ids are asked for: for
// clients that did not ask for logprobs. The value is not changed; what is returned may be
// the value itself.
func Without(kind chat.Kind, choices []byte) []byte { return choices }
