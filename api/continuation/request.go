package continuation

import (
	"encoding/json"
	"slices"

	"relay/api/chat"
)

// request is the body that the first engine was sent.
type request struct {
	members []member
}

// member is one of its members; value is JSON, and part of the body.
type member struct {
	name  string
	value json.RawMessage
}

func readRequest(body []byte) (request, bool) {
	var q request
	ok := chat.Members(body, func(name []byte, v json.RawMessage) {
		q.members = append(q.members, member{string(name), v})
	})
	return q, ok
}

// value is the value of a member; nil where there is none, or null.
func (q *request) value(name string) json.RawMessage {
	for _, m := range q.members {
		if m.name == name && !isNull(m.value) {
			return m.value
		}
	}
	return nil
}

// with is the body without the members of some names, and with others, each of which has a
// comma before it.
func (q *request) with(without []string, added ...[]byte) []byte {
	size := 2
	for _, m := range q.members {
		size += len(m.name) + len(m.value) + 4
	}
	for _, a := range added {
		size += len(a)
	}
	b := append(make([]byte, 0, size), '{')
	for _, m := range q.members {
		if slices.Contains(without, m.name) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(chat.Quote(b, m.name), ':'), m.value...)
	}
	for _, a := range added {
		if len(b) == 1 {
			a = a[1:]
		}
		b = append(b, a...)
	}
	return append(b, '}')
}

// limit is how many tokens the answer may have; -1 is as many as fit. The names are in the
// order in which the engine looks for them.
func (q *request) limit() int {
	for _, name := range limits {
		if v := q.value(name); v != nil {
			n, ok := whole(v)
			if !ok || n < 0 || n > maxCount {
				return -1
			}
			return int(n)
		}
	}
	return -1
}

var limits = []string{"n_predict", "max_completion_tokens", "max_tokens"}

// stops says that strings may end the answer.
func (q *request) stops() bool {
	v := q.value("stop")
	return v != nil && string(v) != "[]"
}

// tools says that the engine looks for tool calls in the answer.
func (q *request) tools() bool {
	some := false
	if v := q.value("tools"); v != nil {
		chat.Elements(v, func(json.RawMessage) { some = true })
	}
	return some && text(q.value("tool_choice")) != "none"
}

// cannot says what of the request an engine cannot take up in the middle of an answer; "" is
// nothing.
func (q *request) cannot() string {
	format := q.value("response_format")
	kind := ""
	if format != nil {
		chat.Members(format, func(name []byte, v json.RawMessage) {
			if string(name) == "type" {
				kind = text(v)
			}
		})
	}
	mirostat := string(q.value("mirostat"))
	adaptive := false
	if v := q.value("samplers"); v != nil {
		chat.Elements(v, func(v json.RawMessage) { adaptive = adaptive || text(v) == "adaptive_p" })
	}
	switch {
	case format != nil && kind != "" && kind != "text":
		return "its response_format holds the engine to a grammar, which cannot be taken up in the middle"
	case q.value("json_schema") != nil:
		return "its json_schema holds the engine to a grammar, which cannot be taken up in the middle"
	case text(q.value("grammar")) != "":
		return "its grammar cannot be taken up in the middle"
	case mirostat != "" && mirostat != "0":
		return "mirostat remembers what was sampled, and cannot be taken up in the middle"
	case adaptive:
		return "the sampler adaptive_p remembers what was sampled, and cannot be taken up in the middle"
	case q.positive("n_indent"):
		return "its n_indent ends it by how its lines began, and cannot be taken up in the middle"
	case q.positive("t_max_predict_ms"):
		return "its t_max_predict_ms is of the time that its first engine took"
	}
	return ""
}

// positive says that a member is a number above 0; the engine takes any other for none.
func (q *request) positive(name string) bool {
	v := q.value(name)
	return isNumber(v) && v[0] != '-' && string(v) != "0"
}

// several says that more than one answer was asked for.
func (q *request) several() bool {
	if n, ok := whole(q.value("n")); ok && n > 1 {
		return true
	}
	v := q.value("prompt")
	if len(v) == 0 || v[0] != '[' {
		return false
	}
	prompts, ids := 0, false
	chat.Elements(v, func(v json.RawMessage) {
		prompts++
		ids = ids || isNumber(v)
	})
	return prompts > 1 && !ids
}

func isNumber(v json.RawMessage) bool {
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}

// text is a JSON string's, and "" for any other value.
func text(v json.RawMessage) string {
	s, _ := chat.Unquote(v)
	return string(s)
}
