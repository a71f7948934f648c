package llama

import (
	"strings"
	"unicode"
)

// printable is s as one line of at most limit runes, with nothing in it that
// could steer a terminal.
func printable(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == limit {
			return b.String() + "…"
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
