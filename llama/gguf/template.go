package gguf

import (
	"fmt"
	"io"
	"strings"
)

// Where a file may have chat templates; the engine takes the second one for requests with
// tools where it is there.
const (
	templateKey     = "tokenizer.chat_template"
	toolTemplateKey = "tokenizer.chat_template.tool_use"
)

// template reads a chat template, keeps its beginning, and notes whether it has a place
// for tools. One that is longer than what is left of maxTemplates is passed over.
func (w *walk) template() (string, error) {
	n, err := w.uint64()
	switch {
	case err != nil:
		return "", err
	case n > maxString:
		return "", fmt.Errorf("it has a name or text of %d bytes", n)
	case n > uint64(w.budget.templates):
		return "", w.skip(n)
	}
	w.budget.templates -= int(n)
	if err := w.next(n); err != nil {
		return "", err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(w.r, b); err != nil {
		return "", ended(err)
	}
	w.tools = w.tools || placesTools(string(b))
	return string(b[:min(n, maxText)]), nil
}

// placesTools says whether a chat template reads the variable in which the engine hands
// it a request's tools. It looks for the name in Jinja's expressions and statements, not
// in the text around them, in comments, in quotes, behind a dot, or before the sign by
// which it is given a value.
func placesTools(template string) bool {
	for {
		at := strings.IndexByte(template, '{')
		if at < 0 || at+1 == len(template) {
			return false
		}
		kind := template[at+1]
		template = template[at+1:]
		switch kind {
		case '#':
			_, template, _ = strings.Cut(template, "#}")
		case '{', '%':
			found, rest := readsTools(template[1:], "}%"[strings.IndexByte("{%", kind)])
			if found {
				return true
			}
			template = rest
		}
	}
}

// readsTools looks into one expression or statement, which ends with that character and
// a brace, and returns what is behind it.
func readsTools(s string, end byte) (found bool, rest string) {
	const name = "tools"
	before := byte(0) // The last character that is no space.
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == end && i+1 < len(s) && s[i+1] == '}':
			return false, s[i+2:]
		case c == '"' || c == '\'':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		case isWord(c):
			from := i
			for i+1 < len(s) && isWord(s[i+1]) {
				i++
			}
			next := strings.TrimLeft(s[i+1:], " \t\r\n")
			given := strings.HasPrefix(next, "=") && !strings.HasPrefix(next, "==")
			if s[from:i+1] == name && before != '.' && !given {
				return true, ""
			}
			c = s[i]
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		}
		before = c
	}
	return false, ""
}

func isWord(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
