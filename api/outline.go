package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest. OpenAI's own schemas stay below 20; some
// parsers behind the door recurse.
const maxDepth = 128

// span is a part of a body, from start to before end.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }
func (s span) found() bool        { return s.end > 0 }

// outline is what the door knows of a JSON object: where a few of its top-level
// values lie. Everything else passes through unread.
type outline struct {
	model  span // with its quotes, if it is a string
	stream span
	err    span // "error", of answers
	// remote is the first media reference that is not in the body itself.
	remote string
	// twice is the first of the keys above that is there more than once.
	twice string
}

var (
	errNotJSON   = errors.New("not JSON")
	errNotObject = errors.New("JSON, but not an object")
	errTooDeep   = errors.New("nested too deep")
	errNotUTF8   = errors.New("not UTF-8")
)

// outlineOf checks that b is one JSON object, whole and valid, in UTF-8, and
// finds the values that the door must know. The engine reads the last of a
// repeated key, others the first: a repeated key is reported, not chosen from.
func outlineOf(b []byte) (outline, error) {
	if !utf8.Valid(b) {
		return outline{}, errNotUTF8
	}
	s := scanner{b: b}
	s.space()
	if s.i < len(b) && b[s.i] != '{' {
		if err := s.value(0, placeOther); err != nil {
			return outline{}, err
		}
		return outline{}, errNotObject
	}
	if err := s.value(0, placeRoot); err != nil {
		return outline{}, err
	}
	s.space()
	if s.i != len(b) {
		return outline{}, errNotJSON
	}
	return s.out, nil
}

// place is where in a request a value lies, as far as the door cares.
type place int

const (
	placeOther place = iota
	placeRoot
	placeMessages // messages
	placeMessage  // messages[]
	placeContent  // messages[].content
	placePart     // messages[].content[]
	placeMedia    // messages[].content[].image_url and its like
	placeURL      // messages[].content[].image_url.url
)

// child is the place of the value under a key.
func (p place) child(key string) place {
	switch {
	case p == placeRoot && key == "messages":
		return placeMessages
	case p == placeMessage && key == "content":
		return placeContent
	case p == placePart && (key == "image_url" || key == "input_audio" || key == "input_video" || key == "video_url" || key == "audio_url"):
		return placeMedia
	case p == placeMedia && (key == "url" || key == "data"):
		return placeURL
	}
	return placeOther
}

// element is the place of a list's values.
func (p place) element() place {
	switch p {
	case placeMessages:
		return placeMessage
	case placeContent:
		return placePart
	}
	return placeOther
}

// scanner walks JSON once, without building anything.
type scanner struct {
	b   []byte
	i   int
	out outline
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// take moves over c, after spaces.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) value(depth int, at place) error {
	if depth > maxDepth {
		return errTooDeep
	}
	s.space()
	if s.i == len(s.b) {
		return errNotJSON
	}
	switch c := s.b[s.i]; {
	case c == '{':
		return s.object(depth, at)
	case c == '[':
		return s.list(depth, at)
	case c == '"':
		v, err := s.str()
		if err == nil && (at == placeURL || at == placeMedia) && s.out.remote == "" {
			if text := beginning(v.of(s.b)); isRemote(text) {
				s.out.remote = text
			}
		}
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
			s.i += len(word)
			return nil
		}
	}
	return errNotJSON
}

func (s *scanner) object(depth int, at place) error {
	s.i++
	if s.take('}') {
		return nil
	}
	for {
		s.space()
		if s.i == len(s.b) || s.b[s.i] != '"' {
			return errNotJSON
		}
		k, err := s.str()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return errNotJSON
		}
		s.space()
		start := s.i
		var key string
		if at != placeOther {
			key = unquote(k.of(s.b))
		}
		if err := s.value(depth+1, at.child(key)); err != nil {
			return err
		}
		if at == placeRoot {
			s.note(key, span{start, s.i})
		}
		if s.take(',') {
			continue
		}
		if s.take('}') {
			return nil
		}
		return errNotJSON
	}
}

// note keeps the top-level values that the door wants.
func (s *scanner) note(key string, v span) {
	var at *span
	switch key {
	case "model":
		at = &s.out.model
	case "stream":
		at = &s.out.stream
	case "error":
		at = &s.out.err
	default:
		return
	}
	if at.found() && s.out.twice == "" {
		s.out.twice = key
	}
	*at = v
}

func (s *scanner) list(depth int, at place) error {
	s.i++
	if s.take(']') {
		return nil
	}
	for {
		if err := s.value(depth+1, at.element()); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take(']') {
			return nil
		}
		return errNotJSON
	}
}

// str moves over a string and returns its span with the quotes.
func (s *scanner) str() (span, error) {
	start := s.i
	for s.i++; s.i < len(s.b); s.i++ {
		// Most of a large body goes by here.
		for s.i < len(s.b) && s.b[s.i] >= 0x20 && s.b[s.i] != '"' && s.b[s.i] != '\\' {
			s.i++
		}
		if s.i == len(s.b) {
			break
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return span{start, s.i}, nil
		case c < 0x20:
			return span{}, errNotJSON
		case c == '\\':
			s.i++
			if s.i == len(s.b) {
				return span{}, errNotJSON
			}
			switch s.b[s.i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					s.i++
					if s.i == len(s.b) || !isHex(s.b[s.i]) {
						return span{}, errNotJSON
					}
				}
			default:
				return span{}, errNotJSON
			}
		}
	}
	return span{}, errNotJSON
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) number() error {
	digits := func() bool {
		start := s.i
		for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i > start
	}
	is := func(chars string) bool {
		if s.i < len(s.b) && strings.IndexByte(chars, s.b[s.i]) >= 0 {
			s.i++
			return true
		}
		return false
	}
	is("-")
	if !is("0") && !digits() {
		return errNotJSON
	}
	if is(".") && !digits() {
		return errNotJSON
	}
	if is("eE") {
		is("+-")
		if !digits() {
			return errNotJSON
		}
	}
	return nil
}

// unquote reads a valid JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	json.Unmarshal(quoted, &s)
	return s
}

// beginning is the text that a valid JSON string, which may hold an image,
// begins with.
func beginning(quoted []byte) string {
	const enough = 128
	if len(quoted) > enough && bytes.IndexByte(quoted[:enough], '\\') < 0 {
		return strings.ToValidUTF8(string(quoted[1:enough]), "")
	}
	return unquote(quoted)
}

// isRemote reports whether the engine would go and fetch what a media reference
// names. llama-server takes everything that begins with "http" for an address,
// "data:" for what it says, and the rest for base64, in which there is no colon.
func isRemote(ref string) bool {
	ref = strings.TrimSpace(ref)
	ref = strings.ToLower(ref[:min(len(ref), 32)])
	if strings.HasPrefix(ref, "data:") {
		return false
	}
	return strings.HasPrefix(ref, "http") || strings.Contains(ref, ":")
}

// replace is b with the value at s replaced by a JSON string; every other byte
// stays as it was.
func replace(b []byte, s span, text string) []byte {
	quoted := encodeJSON(text)
	out := make([]byte, 0, len(b)-(s.end-s.start)+len(quoted))
	out = append(out, b[:s.start]...)
	out = append(out, quoted...)
	return append(out, b[s.end:]...)
}
