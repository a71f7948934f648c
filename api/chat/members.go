package chat

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Members calls each for every member of the JSON object b, in order, with its
// value as it stands there. It copies nothing and reports whether b is an object;
// values are not looked into.
func Members(b []byte, each func(name []byte, value json.RawMessage)) bool {
	return items(b, '{', '}', func(i int) int {
		end := skip(b, i)
		if end < 0 || b[i] != '"' {
			return -1
		}
		name, ok := Unquote(b[i:end])
		if end = space(b, end); !ok || end == len(b) || b[end] != ':' {
			return -1
		}
		start := space(b, end+1)
		if end = skip(b, start); end > 0 {
			each(name, json.RawMessage(b[start:end]))
		}
		return end
	})
}

// Elements is Members for a list.
func Elements(b []byte, each func(value json.RawMessage)) bool {
	return items(b, '[', ']', func(i int) int {
		end := skip(b, i)
		if end > 0 {
			each(json.RawMessage(b[i:end]))
		}
		return end
	})
}

// items walks what is between open and close, parted by commas. item takes the
// place where one begins and gives that where it ends, or -1.
func items(b []byte, open, close byte, item func(i int) int) bool {
	i := space(b, 0)
	if i == len(b) || b[i] != open {
		return false
	}
	if i = space(b, i+1); i < len(b) && b[i] == close {
		return space(b, i+1) == len(b)
	}
	for i < len(b) {
		if i = item(i); i < 0 {
			return false
		}
		i = space(b, i)
		switch {
		case i == len(b):
			return false
		case b[i] == close:
			return space(b, i+1) == len(b)
		case b[i] != ',':
			return false
		}
		i = space(b, i+1)
	}
	return false
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skip is where the value that begins at i ends, or -1.
func skip(b []byte, i int) int {
	depth := 0
	for start := i; i < len(b); {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth--; depth < 0 {
				return -1
			}
			i++
		default:
			i++
			if depth > 0 {
				continue
			}
			for i < len(b) && strings.IndexByte(",:]}[{\" \n\r\t", b[i]) < 0 {
				i++
			}
			if b[start] == ',' || b[start] == ':' {
				return -1
			}
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

func skipString(b []byte, i int) int {
	i++
	for quote := -1; i <= len(b); {
		if quote < i {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return -1
			}
			quote = i + n
		}
		escape := bytes.IndexByte(b[i:quote], '\\')
		if escape < 0 {
			return quote + 1
		}
		i += escape + 2
	}
	return -1
}

// unquote is Unquote as a string.
func unquote(b []byte) (string, bool) {
	text, ok := Unquote(b)
	return string(text), ok
}

// Unquote reads a JSON string. It is a part of b where there is nothing to unquote.
func Unquote(b []byte) ([]byte, bool) {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return nil, false
	}
	text := b[1 : len(b)-1]
	odd := func(c rune) bool { return c < ' ' || c == '\\' || c == '"' || c == utf8.RuneError }
	if bytes.ContainsFunc(text, odd) {
		var s string
		err := json.Unmarshal(b, &s)
		return []byte(s), err == nil
	}
	return text, true
}
