package api

import "strings"

// maxToken is how many bytes of JSON a token may take over a whole text: the longest of
// most vocabularies, where texts have four or five to a token.
const maxToken = 64

// overflows refuses what cannot fit into a context of so many tokens, 0 where that is not
// known: the engine would take seconds and much memory to find out.
func (q *request) overflows(context int) *refusal {
	switch {
	case context <= 0:
		return nil
	case q.ids > context:
		return q.tooLong(q.ids, context)
	case q.text/maxToken > context:
		no := q.tooLong(q.text/maxToken, context)
		no.message = strings.Replace(no.message, "resulted in", "resulted in at least", 1)
		return no
	}
	return nil
}

// longest is how many token ids the longest prompt of a valid one has, and how many bytes
// the longest text.
func longest(prompt []byte) (ids, text int) {
	if len(prompt) == 0 || prompt[0] != '[' {
		return 0, len(prompt)
	}
	own := 0 // The list may be a prompt itself, of ids and texts.
	each(prompt, func(v []byte) bool {
		switch {
		case v[0] == '[':
			n := 0
			each(v, func([]byte) bool { n++; return true })
			ids = max(ids, n)
		case v[0] == '-' || v[0] >= '0' && v[0] <= '9':
			own++
		default:
			text = max(text, len(v))
		}
		return true
	})
	return max(ids, own), text
}
