//go:build linux

package seam

import "testing"

func TestShown(t *testing.T) {
	of := func(texts ...string) (c chain) {
		for i, text := range texts {
			c.tokens = append(c.tokens, token{i, text})
		}
		return c
	}
	for _, tc := range []struct {
		chain   chain
		stop    string
		text    string
		tokens  int
		stopped bool
	}{
		{of("a", " and"), "", "a and", 2, false},
		{of("a", " and", " best", "c"), " and best", "a", 3, true},
		{of("a", " a", "nd bestow"), " and best", "a", 3, true},
		{of("a", " and", "c"), " and best", "a andc", 3, false},
		// What is held back goes as a whole, at the end as well.
		{of("a", " and"), " and best", "a", 2, false},
		{of("a", " and", " and"), " and best", "a", 3, false},
		{of("a", " and", "b and"), " and best", "a", 3, false},
	} {
		if text, tokens, stopped := tc.chain.shown(tc.stop); text != tc.text || tokens != tc.tokens || stopped != tc.stopped {
			t.Errorf("%v before %q: %q, %d, %t", tc.chain.tokens, tc.stop, text, tokens, stopped)
		}
	}
}
