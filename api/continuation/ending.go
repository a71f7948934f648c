package continuation

import "relay/api/chat"

// opening appends the members that all chunks have, but for their choices.
func (t *Track) opening(b []byte) []byte {
	add := func(name string, v []byte) {
		if v != nil {
			b = append(append(append(b, name...), v...), ',')
		}
	}
	add(`"created":`, t.head.created)
	add(`"id":`, t.head.id)
	add(`"model":`, t.head.model)
	add(`"system_fingerprint":`, t.head.fingerprint)
	if t.kind == chat.OfText {
		return append(b, `"object":"text_completion"`...)
	}
	return append(b, `"object":"chat.completion.chunk"`...)
}

// ending are the last chunks of the answer, as far as they were not delivered. finish is why
// it ends, in quotes; nil where that was delivered.
func (t *Track) ending(finish []byte) (chunks [][]byte) {
	chunks = [][]byte{}
	usage := func(b []byte) []byte {
		u := chat.Usage{Prompt: t.prompt.Prompt + t.prompt.Cached, Completion: t.kept, Cached: t.prompt.Cached}
		if finish == nil {
			u.Completion = t.seen
		}
		u.Total = u.Prompt + u.Completion
		b = u.Append(append(b, `,"usage":`...))
		if len(t.timings) > 0 {
			b = append(append(b, `,"timings":`...), t.timings...)
		}
		return append(b, '}')
	}
	switch {
	case finish == nil && t.usage:
	case finish == nil:
		chunks = append(chunks, usage(t.opening([]byte(`{"choices":[],`))))
	case t.kind == chat.OfText:
		b := append([]byte(`{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":`), finish...)
		chunks = append(chunks, usage(t.opening(append(b, "}],"...))))
	default:
		b := append([]byte(`{"choices":[{"finish_reason":`), finish...)
		chunks = append(chunks,
			append(t.opening(append(b, `,"index":0,"delta":{}}],`...)), '}'),
			usage(t.opening([]byte(`{"choices":[],`))))
	}
	return chunks
}
