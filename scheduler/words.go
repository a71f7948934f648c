package scheduler

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// bounded makes a text that came from elsewhere (an engine, the system, a file)
// fit for a record: valid UTF-8 of at most max bytes.
func bounded(text string, max int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= max {
		return text
	}
	const more = "…"
	end := max - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// told leaves of another peer's sentence what a terminal may show.
func told(text string) string {
	return bounded(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text), maxSentence)
}
