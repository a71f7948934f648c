package api

import (
	"errors"
	"slices"

	"relay/scheduler"
)

// maxModelNamed bounds the name of a model that a client asks for, in bytes.
const maxModelNamed = 512

// readRequest checks what the door must of a body that a client sent for a route with these
// fields.
func readRequest(table fields, body []byte) (*request, *refusal) {
	if len(body) == 0 {
		return nil, invalid("", "the body is empty; send JSON")
	}
	out, err := outlineOf(body)
	if no := notJSON(err); no != nil {
		return nil, no
	}
	if out.twice != "" {
		return nil, invalid(clip(out.twice, 100), "%q is in the body more than once; send it once", clip(out.twice, 100))
	}
	q := &request{body: body, members: out.members}
	at := out.get("model")
	switch {
	case !at.found() || string(at.of(body)) == "null":
		return nil, invalid("model", "the body names no model; GET /v1/models lists what there is")
	case body[at.start] != '"':
		return nil, invalid("model", "the model's name must be a string")
	}
	switch q.model = unquote(at.of(body)); {
	case q.model == "":
		return nil, invalid("model", "the model's name is empty; GET /v1/models lists what there is")
	case len(q.model) > maxModelNamed:
		return nil, invalid("model", "the model's name is longer than %d bytes", maxModelNamed)
	}
	if no := table.check(q); no != nil {
		return nil, no
	}
	if no := q.readParts(out.parts); no != nil {
		return nil, no
	}
	return q, nil
}

// notJSON says what is wrong with a body.
func notJSON(err error) *refusal {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNotUTF8):
		return invalid("", "the body is not UTF-8; send JSON in UTF-8")
	case errors.Is(err, errTooDeep):
		return invalid("", "the body's JSON is nested more than %d deep", maxDepth)
	case errors.Is(err, errTooMany):
		return invalid("", "the body has more than %d fields", maxMembers)
	case errors.Is(err, errTooManyOf):
		return invalid("", "the body's JSON holds more than %d values, or more than %d numbers in lists; send less at a time", maxValues, maxNumbers)
	case errors.Is(err, errLongName):
		return invalid("", "a name in the body's JSON, or what a \"$ref\" in it refers to, is longer than %d bytes", maxName)
	case errors.Is(err, errNotObject):
		return invalid("", "the body is JSON, but not an object")
	}
	return invalid("", "the body is not JSON")
}

// readParts takes what counts of messages, and refuses what no engine reads.
func (q *request) readParts(p parts) *refusal {
	switch {
	case p.wrong != "":
		return invalid("messages", "%s", p.wrong)
	case p.old == "audio":
		return invalid("messages", "a message has \"audio\", which no model here speaks; send its text as content")
	case p.old != "":
		return invalid("messages", "a message has %q, which OpenAI has given up; use tool_calls and messages of the role tool", p.old)
	case p.remote != "":
		return invalid("messages", "media must be in the body as \"data:\" URLs: relay fetches nothing for a request, and this one names %q", clip(p.remote, 60))
	case p.strange == "file":
		return invalid("messages", "a message has a part of the type \"file\": files are not read here; send their text as a part of the type \"text\"")
	case p.strange != "":
		return invalid("messages", "a message has a part of the type %q; there is: text, image_url, input_audio, refusal", clip(p.strange, 40))
	}
	for _, m := range q.members {
		if name := string(m.key); m.holds > maxSchema && (name == "response_format" || name == "json_schema") {
			return invalid(name, "%s holds more than %d values; ask for a smaller schema", name, maxSchema)
		}
	}
	if q.text = len(q.value("messages")); p.media {
		q.text = 0
	}
	q.images, q.edits = p.images, append(q.edits, p.refusals...)
	q.single = string(q.value("parallel_tool_calls")) == "false"
	return nil
}

// translated is a request whose body relay itself wrote, for the engine's chat route.
// The body is one JSON object with a model. Its parts are those of the client.
func translated(body []byte) (*request, *refusal) {
	out, err := outlineOf(body)
	at := out.get("model")
	if errors.Is(err, errTooManyOf) || errors.Is(err, errTooDeep) { // What the client wrote was just within bounds.
		return nil, notJSON(err)
	}
	if err != nil || out.twice != "" || !at.found() || body[at.start] != '"' {
		return nil, refuse(scheduler.Internal, "relay itself failed to put this request into the engine's words")
	}
	q := &request{path: pathChat, kind: kindChat, body: body, members: out.members, model: unquote(at.of(body))}
	q.formatJSON()
	return q, q.readParts(out.parts)
}

// choices is how many answers a request gets in all.
func (q *request) choices() int { return max(q.answers, 1) * max(q.prompts, 1) }

// value is the value of a member, or nil where there is none, or null.
func (q *request) value(name string) []byte {
	for _, m := range q.members {
		if string(m.key) == name {
			if v := m.value.of(q.body); string(v) != "null" {
				return v
			}
		}
	}
	return nil
}

// drop leaves members out of what the engine gets.
func (q *request) drop(names ...string) {
	q.members = slices.DeleteFunc(slices.Clone(q.members), func(m member) bool { return slices.Contains(names, string(m.key)) })
}

// set gives the engine a value of relay's own under a name, in place of the client's.
func (q *request) set(name, value string) {
	q.drop(name)
	q.added = append(q.added, []byte(`,"`+name+`":`+value))
}

// calling is the body with the model called uid: all members that were not dropped as
// they came, but for the edits, and what was added. Nothing of it is copied.
func (q *request) calling(uid string) payload {
	p := payload{[]byte(`{"model":`), encodeJSON(uid)}
	edits := slices.SortedFunc(slices.Values(q.edits), func(a, b edit) int { return a.at.start - b.at.start })
	for _, m := range q.members {
		if string(m.key) == "model" {
			continue
		}
		p = append(p, []byte(","))
		at := m.all.start
		for _, e := range edits {
			if e.at.start >= at && e.at.end <= m.all.end {
				p = append(p, q.body[at:e.at.start], e.text)
				at = e.at.end
			}
		}
		p = append(p, q.body[at:m.all.end])
	}
	p = append(p, q.added...)
	return append(p, []byte("}"))
}
