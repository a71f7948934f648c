package chat

import "unicode/utf8"

const hex = "0123456789abcdef"

// plain says which bytes a JSON string may hold as they are.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// Quote appends s as a JSON string. What is not UTF-8 becomes U+FFFD, as
// encoding/json writes it; nothing is escaped for HTML.
func Quote[S string | []byte](dst []byte, s S) []byte {
	return append(quoted(append(dst, '"'), s), '"')
}

// quoted appends s as it stands between a JSON string's quotes.
func quoted[S string | []byte](dst []byte, s S) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		if r == utf8.RuneError && n == 1 {
			dst = append(append(dst, s[start:i]...), "\uFFFD"...)
			start = i + 1
		}
		i += n
	}
	return append(dst, s[start:]...)
}
