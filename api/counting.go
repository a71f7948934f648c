package api

import (
	"fmt"

	"relay/api/chat"
)

// counting asks the engine how many tokens a request's prompt would take: for the prompt,
// then for its tokens. form is the answer, with the number.
func counting(asked *chat.Request, form string) (*request, *refusal) {
	q, no := asking(asked)
	if no != nil {
		return nil, no
	}
	if q.images {
		return nil, invalid("input", "what an image takes cannot be counted before it is read; leave images out")
	}
	q.path, q.text = pathTemplate, 0 // Of what does not fit it is told how much it is.
	q.then = func(answer []byte) (*request, error) {
		body, err := chat.TokenizeBody(asked.Model, answer)
		if err != nil {
			return nil, err
		}
		next, no := translated(body)
		if no != nil {
			return nil, no
		}
		next.path = pathTokenize
		return next, nil
	}
	q.whole = func(_ *call, _ string, answer []byte) ([]byte, error) {
		n, err := chat.CountTokens(answer)
		return fmt.Appendf(nil, form, n), err
	}
	return q, nil
}
