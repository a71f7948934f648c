//go:build linux

package seam

import (
	"slices"
	"strings"
	"time"
)

// token is one that an engine wrote, and the text with which it came.
type token struct {
	id   int
	text string
}

// chain is what an engine wrote after some prompt and tokens.
type chain struct {
	tokens []token
	prompt int // Its tokens, and those that were given with it.
	// first is how long it took until the first token: the prefill of all that was
	// given, and one step.
	first time.Duration
}

// text is that of the first n tokens.
func (c chain) text(n int) string {
	var text strings.Builder
	for _, t := range c.tokens[:min(n, len(c.tokens))] {
		text.WriteString(t.text)
	}
	return text.String()
}

// ids are those of the first n tokens.
func (c chain) ids(n int) []int {
	var ids []int
	for _, t := range c.tokens[:min(n, len(c.tokens))] {
		ids = append(ids, t.id)
	}
	return ids
}

// ended is what is left of a chain where the question's stop string ends it, and
// whether it does. The token that completes the string counts; the string is cut off.
func (c chain) ended(q Question) (chain, bool) {
	text := ""
	for i, t := range c.tokens {
		text += t.text
		at := strings.Index(text, q.Stop)
		if q.Stop == "" || at < 0 {
			continue
		}
		c.tokens = slices.Clone(c.tokens[:i+1])
		for j, cut := i, len(text)-at; cut > 0; j-- { // It may have begun tokens before.
			t := &c.tokens[j]
			n := min(cut, len(t.text))
			t.text, cut = t.text[:len(t.text)-n], cut-n
		}
		return c, true
	}
	return c, false
}
