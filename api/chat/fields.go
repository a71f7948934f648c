package chat

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Fields reads one JSON object of a request. What is wanted of it is taken by
// name, and what nobody took is refused at the end. The first thing that is
// wrong is kept, in it and in everything that it was taken out of; what is read
// after that is of no use. A member that is null counts as one that is not
// there. Nothing is copied but the strings that are asked for.
type Fields struct {
	path  string
	list  []member
	fault **FieldError
}

type member struct {
	name  string
	value json.RawMessage
	taken bool
}

// ReadFields begins with a whole body.
func ReadFields(body []byte) *Fields {
	f := &Fields{fault: new(*FieldError)}
	if !f.fill(body) {
		f.Fail("", "the body is not a JSON object")
	}
	return f
}

// maxMembers bounds an object that is read, maxElements a list of objects or strings.
const (
	maxMembers  = 1_000
	maxElements = 10_000
)

func (f *Fields) fill(raw []byte) bool {
	return Members(raw, func(name []byte, value json.RawMessage) {
		if len(f.list) == maxMembers {
			f.Fail("", "an object has more than %d fields; send less of them", maxMembers)
			return
		}
		f.list = append(f.list, member{name: string(name), value: value})
	})
}

// Err is the first thing that was wrong; nil is none.
func (f *Fields) Err() error {
	if *f.fault == nil {
		return nil
	}
	return *f.fault
}

// OK reports whether nothing was wrong so far.
func (f *Fields) OK() bool { return *f.fault == nil }

// Fail notes what is wrong with a member, "" being the object itself.
func (f *Fields) Fail(name, format string, args ...any) {
	if *f.fault == nil {
		*f.fault = fieldError(f.at(name), format, args...)
	}
}

// at is the path of a member.
func (f *Fields) at(name string) string {
	switch {
	case name == "":
		return f.path
	case f.path == "":
		return clip(name)
	}
	return f.path + "." + clip(name)
}

// clip bounds a name that a client chose.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Raw takes a member as it stands there; nil is none. It is checked to be JSON.
func (f *Fields) Raw(name string) json.RawMessage {
	v := f.take(name)
	if v != nil && !json.Valid(v) {
		f.Fail(name, "%q is not JSON", clip(name))
		return nil
	}
	return v
}

func (f *Fields) take(name string) json.RawMessage {
	var found json.RawMessage
	for i := range f.list {
		if m := &f.list[i]; m.name == name {
			m.taken = true
			found = m.value // as encoding/json, the last one counts
		}
	}
	if string(found) == "null" {
		return nil
	}
	return found
}

// Has reports whether a member is there, and is not null. It does not take it.
func (f *Fields) Has(name string) bool {
	return slices.ContainsFunc(f.list, func(m member) bool { return m.name == name && string(m.value) != "null" })
}

// IsText reports whether a member is a string. It does not take it.
func (f *Fields) IsText(name string) bool {
	return slices.ContainsFunc(f.list, func(m member) bool { return m.name == name && len(m.value) > 0 && m.value[0] == '"' })
}

// Text takes a string; "" where there is none.
func (f *Fields) Text(name string) string {
	v := f.take(name)
	if v == nil {
		return ""
	}
	s, ok := unquote(v)
	if !ok {
		f.Fail(name, "%q must be a string", clip(name))
	}
	return s
}

// Needed takes a string that must be there and not be empty.
func (f *Fields) Needed(name string) string {
	s := f.Text(name)
	if s == "" {
		f.Fail(name, "%q is missing; it must be a string that is not empty", name)
	}
	return s
}

// Flag takes a boolean; nil where there is none.
func (f *Fields) Flag(name string) *bool {
	v := f.take(name)
	if v == nil {
		return nil
	}
	b := string(v) == "true"
	if !b && string(v) != "false" {
		f.Fail(name, "%q must be true or false", name)
	}
	return &b
}

// Whole takes a whole number within bounds; nil where there is none.
func (f *Fields) Whole(name string, least, most int64) *int64 {
	v := f.take(name)
	if v == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < least || n > most {
		written := ""
		if (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && bytes.ContainsAny(v, ".eE") {
			written = ", written without a point and without an exponent"
		}
		if most == math.MaxInt32 {
			f.Fail(name, "%q must be a whole number of at least %d%s", name, least, written)
		} else {
			f.Fail(name, "%q must be a whole number from %d to %d%s", name, least, most, written)
		}
		return nil
	}
	return &n
}

// Number takes a number within bounds, as it stands there; nil where there is
// none.
func (f *Fields) Number(name string, least, most float64) json.RawMessage {
	v := f.take(name)
	if v == nil {
		return nil
	}
	var x float64
	if err := json.Unmarshal(v, &x); err != nil || x < least || x > most {
		f.Fail(name, "%q must be a number from %v to %v", name, least, most)
		return nil
	}
	return v
}

// OneOf takes a string that is one of those; "" where there is none.
func (f *Fields) OneOf(name string, those ...string) string {
	s := f.Text(name)
	if f.Has(name) && !slices.Contains(those, s) {
		f.Fail(name, "%q is not a value of %q that relay takes; it takes %s", clip(s), name, listed(those))
	}
	return s
}

func listed(those []string) string {
	if len(those) < 2 {
		return strings.Join(those, "")
	}
	last := len(those) - 1
	return strings.Join(those[:last], ", ") + " and " + those[last]
}

// Object takes an object; nil where there is none.
func (f *Fields) Object(name string) *Fields {
	v := f.take(name)
	if v == nil {
		return nil
	}
	o := &Fields{path: f.at(name), fault: f.fault}
	if !o.fill(v) {
		o.Fail("", "%q must be an object", clip(name))
	}
	return o
}

// Objects takes a list of objects.
func (f *Fields) Objects(name string) (list []*Fields) {
	f.each(name, "objects", func(path string, v json.RawMessage) bool {
		o := &Fields{path: path, fault: f.fault}
		list = append(list, o)
		return o.fill(v)
	})
	return list
}

// Texts takes a list of strings.
func (f *Fields) Texts(name string) (list []string) {
	f.each(name, "strings", func(_ string, v json.RawMessage) bool {
		s, ok := unquote(v)
		list = append(list, s)
		return ok
	})
	return list
}

func (f *Fields) each(name, what string, add func(path string, v json.RawMessage) bool) {
	v := f.take(name)
	if v == nil {
		return
	}
	i := 0
	ok := Elements(v, func(v json.RawMessage) {
		if i == maxElements {
			f.Fail(name, "%q holds more than %d %s; send less at a time", clip(name), maxElements, what)
		}
		if *f.fault != nil {
			return
		}
		path := f.at(name) + "[" + strconv.Itoa(i) + "]"
		if !add(path, v) && *f.fault == nil {
			*f.fault = fieldError(path, "%q must be a list of %s", clip(name), what)
		}
		i++
	})
	if !ok {
		f.Fail(name, "%q must be a list of %s", clip(name), what)
	}
}

// Names are those of all members.
func (f *Fields) Names() []string {
	names := make([]string, len(f.list))
	for i, m := range f.list {
		names[i] = m.name
	}
	return names
}

// Skip takes members that have no effect here.
func (f *Fields) Skip(names ...string) {
	for _, n := range names {
		f.take(n)
	}
}

// Refuse takes a member that cannot be honoured: where it is there, why says so.
func (f *Fields) Refuse(name, why string) {
	if f.take(name) != nil {
		f.Fail(name, "%q is not supported: %s", name, why)
	}
}

// Done refuses what nobody took.
func (f *Fields) Done() {
	for _, m := range f.list {
		if !m.taken {
			f.Fail(m.name, "relay does not know the field %q; leave it out", clip(m.name))
			return
		}
	}
}
