//go:build linux

package seam

import (
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

// shown is what a client is given of a chain: the text before a stop string, the tokens
// up to the one that completes the string, and whether there is one. Where there is none
// the engine never sends what it holds back at the end: all tokens from the first after
// which the text ended with the possible beginning of one each time.
func (c chain) shown(stop string) (text string, tokens int, stopped bool) {
	if stop == "" {
		return c.text(len(c.tokens)), len(c.tokens), false
	}
	sent := 0
	for i, t := range c.tokens {
		text += t.text
		if at := strings.Index(text, stop); at >= 0 {
			return text[:at], i + 1, true
		}
		if !beginsAtEnd(text, stop) {
			sent = len(text)
		}
	}
	return text[:sent], len(c.tokens), false
}

// beginsAtEnd says whether a text ends with a beginning of a stop string.
func beginsAtEnd(text, stop string) bool {
	for n := 1; n < len(stop); n++ {
		if strings.HasSuffix(text, stop[:n]) {
			return true
		}
	}
	return false
}
