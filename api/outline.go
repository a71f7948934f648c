package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest. OpenAI's own schemas stay below 20; some
// parsers behind the door recurse.
const maxDepth = 128

// maxName bounds a name in JSON, and what a $ref refers to, in bytes: the engine makes the
// names of a grammar's rules of those in a schema, with a parser that recurses.
const maxName = 1 << 10

const (
	// maxValues bounds the values in a body, but for numbers in lists, of which there may
	// be maxNumbers: what they are decoded into is larger than they are.
	maxValues  = 100_000
	maxNumbers = 1_000_000
	// maxSchema bounds the values of the schema that an answer must follow: the engine
	// takes minutes over larger ones.
	maxSchema = 5_000
)

// span is a part of a body, from start to before end.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }
func (s span) found() bool        { return s.end > 0 }

// member is one of the values of a JSON object, with its name.
type member struct {
	// key is the name, unquoted; it may lie in the body.
	key []byte
	// all is from the name's quote to the value's end.
	all, value span
	// holds is how many values there are in it, itself included, as maxValues counts.
	holds int
}

// outline is what the door knows of a JSON object: where its top-level values lie, and
// of a chat's messages what their parts are. Everything else passes through unread.
type outline struct {
	members []member
	// twice is the first name that is there more than once; it is found in requests only.
	twice string
	parts parts
}

// get is where the value of a name lies, the last one's of several.
func (o *outline) get(key string) span {
	for i := len(o.members) - 1; i >= 0; i-- {
		if string(o.members[i].key) == key {
			return o.members[i].value
		}
	}
	return span{}
}

// parts are what the messages of a chat hold beside text.
type parts struct {
	// remote is the first media reference that is not in the body itself.
	remote string
	// strange is the first type of a part that no engine reads.
	strange string
	// images says that there are such parts, media that there are they or others that
	// are no text.
	images, media bool
	// wrong says what is wrong with the first message that is no object or has no role
	// that there is; a template would pass it over.
	wrong string
	// old is the first member of a message that OpenAI has given up or that relay does
	// not know how to pass on.
	old string
	// refusals are the changes that make texts of the refusals among the parts.
	refusals []edit
}

var (
	errNotJSON   = errors.New("not JSON")
	errNotObject = errors.New("JSON, but not an object")
	errTooDeep   = errors.New("nested too deep")
	errNotUTF8   = errors.New("not UTF-8")
	errTooMany   = errors.New("too many members")
	errTooManyOf = errors.New("too many values")
	errLongName  = errors.New("a name is too long")
)

// outlineOf checks that b is one JSON object, whole and valid, in UTF-8, and
// finds the values that the door must know. The engine reads the last of a
// repeated name, others the first: a repeated name is reported, not chosen from.
func outlineOf(b []byte) (outline, error) {
	s := scanner{b: b, deep: true}
	err := s.whole()
	for i, m := range s.out.members {
		for _, before := range s.out.members[:i] {
			if s.out.twice == "" && string(before.key) == string(m.key) {
				s.out.twice = string(m.key)
			}
		}
	}
	return s.out, err
}

// maxMembers bounds the members of one object that the door looks into.
const maxMembers = 256

// outlineInto is outlineOf for an engine's event: it looks at the top level alone, and
// uses o's memory again.
func outlineInto(o *outline, b []byte) error {
	s := scanner{b: b}
	s.out.members = o.members[:0]
	err := s.whole()
	*o = s.out
	return err
}

// whole scans what must be one object.
func (s *scanner) whole() error {
	if !utf8.Valid(s.b) {
		return errNotUTF8
	}
	s.space()
	if s.i < len(s.b) && s.b[s.i] != '{' {
		if err := s.value(0, placeOther); err != nil {
			return err
		}
		return errNotObject
	}
	if err := s.value(0, placeRoot); err != nil {
		return err
	}
	s.space()
	if s.i != len(s.b) {
		return errNotJSON
	}
	return nil
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
func (p place) child(key []byte) place {
	switch p {
	case placeRoot:
		if string(key) == "messages" {
			return placeMessages
		}
	case placeMessage:
		if string(key) == "content" {
			return placeContent
		}
	case placePart:
		switch string(key) {
		case "image_url", "input_audio", "input_video", "video_url", "audio_url":
			return placeMedia
		}
	case placeMedia:
		if string(key) == "url" || string(key) == "data" {
			return placeURL
		}
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
	// deep: what messages hold is looked at, and values are counted.
	deep            bool
	values, numbers int
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
	if s.values++; s.deep && s.values > maxValues {
		return errTooManyOf
	}
	if at == placeMessage && s.b[s.i] != '{' {
		s.wrong("a message must be an object with a role and a content")
	}
	switch c := s.b[s.i]; {
	case c == '{':
		return s.object(depth, at)
	case c == '[':
		return s.list(depth, at)
	case c == '"':
		v, err := s.str()
		if err == nil && (at == placeURL || at == placeMedia) && s.out.parts.remote == "" {
			if text := beginning(v.of(s.b)); isRemote(text) {
				s.out.parts.remote = text
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
	var p part
	if s.take('}') {
		s.ended(at, p)
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
		start, before := s.i, s.values
		var key []byte
		if at != placeOther {
			key = unquoteBytes(k.of(s.b))
		}
		inside := at.child(key)
		if !s.deep {
			inside = placeOther
		}
		if err := s.value(depth+1, inside); err != nil {
			return err
		}
		if s.deep && (k.end-k.start > maxName+2 || s.i-start > maxName+2 && s.b[start] == '"' && isRef(k.of(s.b))) {
			return errLongName
		}
		switch v := (span{start, s.i}); at {
		case placeRoot:
			if len(s.out.members) == maxMembers {
				return errTooMany
			}
			s.out.members = append(s.out.members, member{key, span{k.start, s.i}, v, s.values - before})
		case placeMessage:
			s.message(key, v)
			p.role = p.role || string(key) == "role"
		case placePart:
			p.note(s.b, k, key, v)
		}
		if s.take(',') {
			continue
		}
		if s.take('}') {
			s.ended(at, p)
			return nil
		}
		return errNotJSON
	}
}

// ended notes a message or a part that is read to its end.
func (s *scanner) ended(at place, p part) {
	switch {
	case at == placePart:
		s.part(p)
	case at == placeMessage && !p.role:
		s.wrong("a message has no role; there is: " + roles)
	}
}

// roles are those of messages.
const roles = "system, developer, user, assistant, tool"

// wrong notes what is wrong with a message.
func (s *scanner) wrong(what string) {
	if s.out.parts.wrong == "" {
		s.out.parts.wrong = what
	}
}

// role notes the role of a message.
func (s *scanner) role(v []byte) {
	switch string(v) {
	case `"user"`, `"assistant"`, `"tool"`, `"system"`, `"developer"`:
		return
	}
	role := string(v)
	if v[0] == '"' {
		role = unquote(v)
	}
	switch role {
	case "user", "assistant", "tool", "system", "developer":
	case "function":
		s.wrong("a message has the role \"function\", which OpenAI has given up; use tool_calls and messages of the role tool")
	default:
		s.wrong(fmt.Sprintf("a message has the role %q; there is: %s", clip(role, 40), roles))
	}
}

// isRef says of a name, in its quotes, that its value refers to a schema.
func isRef(name []byte) bool {
	const ref = "$ref"
	return string(name) == `"`+ref+`"` || len(name) <= 6*len(ref)+2 && string(unquoteBytes(name)) == ref
}

// message notes a member of a message.
func (s *scanner) message(key []byte, v span) {
	switch string(key) {
	case "role":
		s.role(v.of(s.b))
	case "function_call", "audio":
		if s.out.parts.old == "" && string(v.of(s.b)) != "null" {
			s.out.parts.old = string(key)
		}
	}
}

// part is one part of a message's content, as far as it was read, or the message itself.
type part struct {
	kind                   string
	typed, refusal, spoken span // the type's value; the name and value of a refusal
	role                   bool // a message has one
}

func (p *part) note(b []byte, name span, key []byte, v span) {
	switch string(key) {
	case "type":
		p.typed = v
		p.kind = "?"
		if b[v.start] == '"' && v.end-v.start < 64 {
			p.kind = unquote(v.of(b))
		}
	case "refusal":
		p.refusal, p.spoken = name, v
	}
}

// part notes a part that is read to its end.
func (s *scanner) part(p part) {
	found := &s.out.parts
	switch p.kind {
	case "text":
	case "image_url":
		found.images, found.media = true, true
	case "input_audio", "input_video": // The latter is llama-server's own.
		found.media = true
	case "refusal":
		// The engine knows no such part; it is text that the model gave before.
		if p.refusal.found() {
			found.refusals = append(found.refusals, edit{p.typed, []byte(`"text"`)}, edit{p.refusal, []byte(`"text"`)})
			return
		}
		fallthrough
	default:
		if found.strange == "" {
			found.strange = p.kind
			if p.kind == "" {
				found.strange = "none"
			}
		}
	}
}

func (s *scanner) list(depth int, at place) error {
	s.i++
	if s.take(']') {
		return nil
	}
	for {
		s.space()
		start := s.i
		if err := s.value(depth+1, at.element()); err != nil {
			return err
		}
		if c := s.b[start]; c == '-' || c >= '0' && c <= '9' {
			s.values--
			if s.numbers++; s.deep && s.numbers > maxNumbers {
				return errTooManyOf
			}
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

// unquoteBytes is unquote without a copy where none is needed.
func unquoteBytes(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(unquote(quoted))
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
