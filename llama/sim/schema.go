package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of making a value for a schema: how deep it goes, how many schemas are
// looked at on the way, and the bytes of the value.
const (
	maxSchemaDepth = 64
	maxSchemaSteps = 10_000
	maxValueBytes  = 64 << 10
)

// maker makes a value for a JSON schema: required properties only, the first
// way that works where there are several, and small. Every choice follows from c.
type maker struct {
	root  any
	c     chain
	steps int
	size  int
}

// valueFor is a JSON value that a schema allows; which, follows from c. The
// error says what it cannot make a value for.
func valueFor(schema json.RawMessage, c chain) (string, error) {
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	m := maker{c: c}
	if err := d.Decode(&m.root); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	v, err := m.make(m.root, 0)
	if err != nil {
		return "", err
	}
	b, err := encode(v)
	if err == nil && len(b) > maxValueBytes {
		err = errTooMuch
	}
	return string(b), err
}

var errTooMuch = errors.New("the value would be too large or too deep")

// pick is a number from 0 to n-1.
func (m *maker) pick(n int) int {
	m.c = m.c.add(n)
	return int(m.c.mix() % uint64(n))
}

func (m *maker) words(n int) string {
	var list []string
	for range n {
		list = append(list, word(m.pick(wordCount)))
	}
	return strings.Join(list, " ")
}

// make makes a value for s, a schema as encoding/json reads it.
func (m *maker) make(s any, depth int) (any, error) {
	if m.steps++; depth > maxSchemaDepth || m.steps > maxSchemaSteps || m.size > maxValueBytes {
		return nil, errTooMuch
	}
	if s == true {
		return m.words(1), nil
	}
	o, ok := s.(map[string]any)
	if !ok {
		return nil, unrecognized(s)
	}
	if ref, ok := o["$ref"].(string); ok {
		target, err := m.resolve(ref)
		if err != nil {
			return nil, err
		}
		return m.make(target, depth+1)
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if list, ok := o[key].([]any); ok {
			return m.firstOf(list, s, depth)
		}
	}
	if list, ok := o["allOf"].([]any); ok {
		merged, err := m.merge(o, list, depth)
		if err != nil {
			return nil, err
		}
		return m.make(merged, depth+1)
	}
	if v, ok := o["const"]; ok {
		return m.given(v)
	}
	if list, ok := o["enum"].([]any); ok && len(list) > 0 {
		return m.given(list[m.pick(len(list))])
	}
	if types, ok := o["type"].([]any); ok && len(types) < 16 {
		var list []any
		for _, t := range types {
			one := maps.Clone(o)
			one["type"] = t
			list = append(list, one)
		}
		return m.firstOf(list, s, depth)
	}
	switch kindOf(o) {
	case "object":
		return m.object(o, depth)
	case "array":
		return m.array(o, depth)
	case "string":
		return m.text(o)
	case "integer":
		return m.number(o, true)
	case "number":
		return m.number(o, false)
	case "boolean":
		return m.pick(2) == 1, nil
	case "null":
		return nil, nil
	default:
		return nil, unrecognized(s)
	}
}

// kindOf is the type of a schema, or what its other words are about.
func kindOf(o map[string]any) string {
	if t, ok := o["type"]; ok {
		s, _ := t.(string)
		return s
	}
	for _, w := range []struct {
		kind string
		keys []string
	}{
		{"object", []string{"properties", "required", "additionalProperties"}}, {"array", []string{"items", "prefixItems", "minItems"}},
		{"number", []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
	} {
		for _, k := range w.keys {
			if _, ok := o[k]; ok {
				return w.kind
			}
		}
	}
	return "string"
}

// schemaError says what is wrong with a schema in the engine's words.
type schemaError string

func (e schemaError) Error() string { return string(e) }

func unrecognized(s any) error {
	b, err := encode(s)
	if err != nil || len(b) > 1000 {
		b = []byte("(too large to show)")
	}
	return schemaError("Unrecognized schema: " + string(b))
}

// given is a value that the schema names.
func (m *maker) given(v any) (any, error) {
	b, err := encode(v)
	m.size += len(b)
	return v, err
}

// resolve finds what a reference inside the document means.
func (m *maker) resolve(ref string) (any, error) {
	at := m.root
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, schemaError("Unsupported ref: " + ref)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		o, _ := at.(map[string]any)
		next, ok := o[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		if !ok {
			return nil, schemaError("Error resolving ref " + ref + ": " + part + " not in it")
		}
		at = next
	}
	return at, nil
}

func (m *maker) firstOf(list []any, s any, depth int) (any, error) {
	err := unrecognized(s)
	for _, one := range list {
		var v any
		if v, err = m.make(one, depth+1); err == nil || m.steps > maxSchemaSteps {
			return v, err
		}
	}
	return nil, err
}

// merge is one schema for all of a list and what stands beside it.
func (m *maker) merge(o map[string]any, list []any, depth int) (map[string]any, error) {
	all := map[string]any{}
	properties := map[string]any{}
	var required []any
	add := func(one map[string]any) {
		for k, v := range one {
			switch k {
			case "allOf", "$ref":
			case "properties":
				p, _ := v.(map[string]any)
				for name, s := range p {
					properties[name] = s
				}
			case "required":
				r, _ := v.([]any)
				required = append(required, r...)
			default:
				all[k] = v
			}
		}
	}
	add(o)
	for _, one := range list {
		part, ok := one.(map[string]any)
		for hops := 0; ok && part["$ref"] != nil; hops++ {
			ref, _ := part["$ref"].(string)
			target, err := m.resolve(ref)
			if err != nil {
				return nil, err
			}
			if part, ok = target.(map[string]any); hops > maxSchemaDepth {
				return nil, errTooMuch
			}
		}
		if !ok {
			return nil, unrecognized(one)
		}
		if m.steps++; depth > maxSchemaDepth || m.steps > maxSchemaSteps {
			return nil, errTooMuch
		}
		if inner, ok := part["allOf"].([]any); ok {
			var err error
			if part, err = m.merge(part, inner, depth+1); err != nil {
				return nil, err
			}
		}
		add(part)
	}
	if len(properties) > 0 {
		all["properties"] = properties
	}
	if len(required) > 0 {
		all["required"] = required
	}
	return all, nil
}

func (m *maker) object(o map[string]any, depth int) (any, error) {
	out := object{}
	required, _ := o["required"].([]any)
	properties, _ := o["properties"].(map[string]any)
	if len(required) > maxSchemaSteps {
		return nil, errTooMuch
	}
	for _, r := range required {
		name, ok := r.(string)
		if !ok || slices.ContainsFunc(out, func(f field) bool { return f.key == name }) {
			continue
		}
		s, ok := properties[name]
		if !ok {
			s = true
			if more, ok := o["additionalProperties"]; ok {
				s = more
			}
		}
		v, err := m.make(s, depth+1)
		if err != nil {
			return nil, err
		}
		m.size += len(name)
		out = append(out, field{name, v})
	}
	if n, ok := number(o, "minProperties"); ok && float64(len(out)) < n {
		return nil, fmt.Errorf("minProperties is more than the required ones")
	}
	return out, nil
}

func (m *maker) array(o map[string]any, depth int) (any, error) {
	heads, _ := o["prefixItems"].([]any)
	rest, ok := o["items"]
	if list, tuple := rest.([]any); tuple {
		heads, ok = list, false
	}
	if !ok {
		rest = true
	}
	n := float64(max(1, len(heads)))
	if low, ok := number(o, "minItems"); ok {
		n = max(n, low)
	}
	if high, ok := number(o, "maxItems"); ok {
		n = min(n, high)
	}
	if rest == false {
		n = min(n, float64(len(heads)))
	}
	list := []any{}
	seen := map[string]bool{}
	for tries := 0; float64(len(list)) < n; tries++ {
		s := rest
		if len(list) < len(heads) {
			s = heads[len(list)]
		}
		v, err := m.make(s, depth+1)
		if err != nil {
			return nil, err
		}
		if o["uniqueItems"] == true {
			b, err := encode(v)
			if err != nil {
				return nil, err
			}
			if seen[string(b)] {
				continue // the steps are counted
			}
			seen[string(b)] = true
		}
		list = append(list, v)
	}
	return list, nil
}

// number reads one of a schema's own numbers.
func number(o map[string]any, key string) (float64, bool) {
	n, ok := o[key].(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// number is a whole one where there is one; within 100 of a bound.
func (m *maker) number(o map[string]any, whole bool) (any, error) {
	low, high := math.Inf(-1), math.Inf(1)
	const gap = 1e-3 // between an exclusive bound and the next number
	for _, b := range []struct {
		key  string
		edge *float64
		pick func(float64, float64) float64
		by   float64
	}{
		{"minimum", &low, math.Max, 0}, {"maximum", &high, math.Min, 0},
		{"exclusiveMinimum", &low, math.Max, gap}, {"exclusiveMaximum", &high, math.Min, -gap},
	} {
		if v, ok := number(o, b.key); ok {
			*b.edge = b.pick(*b.edge, v+b.by*max(1, math.Abs(v)*1e-6))
		}
	}
	switch {
	case math.IsInf(low, -1) && math.IsInf(high, 1):
		low, high = 0, 100
	case math.IsInf(low, -1):
		low = high - 100
	case math.IsInf(high, 1):
		high = low + 100
	}
	unit := 1.0
	if v, ok := number(o, "multipleOf"); ok && v > 0 {
		if unit = v; whole && unit != math.Trunc(unit) {
			unit = math.Ceil(1/unit) * unit
		}
	}
	first := math.Ceil(low / unit)
	if count := math.Floor(high/unit) - first + 1; count >= 1 {
		v := (first + float64(m.pick(int(min(count, 100))))) * unit
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return v, nil
		}
		return int64(v), nil
	}
	if whole || low > high || unit != 1 {
		return nil, fmt.Errorf("no number is from %v to %v", low, high)
	}
	return low + (high-low)/2, nil
}

// formats are those that have a form; others say nothing of the text.
var formats = map[string]string{
	"date": "2026-01-02", "time": "03:04:05Z", "date-time": "2026-01-02T03:04:05Z", "duration": "P1D", "uuid": "123e4567-e89b-42d3-a456-426614174000",
	"email": "someone@example.com", "uri": "https://example.com/", "url": "https://example.com/", "hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
}

func (m *maker) text(o map[string]any) (any, error) {
	least, _ := number(o, "minLength")
	most, bounded := number(o, "maxLength")
	if !bounded {
		most = math.Max(least, 40)
	}
	if least > maxValueBytes || least > most {
		return nil, fmt.Errorf("no text is from %v to %v characters long", least, most)
	}
	format, _ := o["format"].(string)
	s, fixed := formats[format]
	if pattern, ok := o["pattern"].(string); ok && !fixed {
		var err error
		if s, err = m.matching(pattern); err != nil {
			return nil, err
		}
		fixed = true
	}
	if !fixed {
		s = m.words(2)
		for utf8.RuneCountInString(s) < int(least) {
			s += " " + m.words(1)
		}
		if float64(len(s)) > most {
			s = s[:int(most)]
		}
	}
	if n := float64(utf8.RuneCountInString(s)); n < least || n > most {
		return nil, fmt.Errorf("pattern or format leave no text from %v to %v characters long", least, most)
	}
	m.size += len(s)
	return s, nil
}

// matching is a text that a pattern finds something in.
func (m *maker) matching(pattern string) (string, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", fmt.Errorf("pattern %.100q is not supported", pattern)
	}
	var b strings.Builder
	spell(&b, re)
	found, err := regexp.Compile(pattern)
	if err != nil || b.Len() > maxValueBytes || !found.MatchString(b.String()) {
		return "", fmt.Errorf("pattern %.100q is not supported", pattern)
	}
	return b.String(), nil
}

// spell writes the shortest text that it finds easily.
func spell(b *strings.Builder, re *syntax.Regexp) {
	if b.Len() > maxValueBytes {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			b.WriteRune(classRune(re.Rune))
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		spell(b, re.Sub[0])
	case syntax.OpRepeat:
		for range re.Min {
			spell(b, re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			spell(b, sub)
		}
	}
}

// classRune is a letter or digit of a class where it has one.
func classRune(ranges []rune) rune {
	for _, want := range []rune{'a', 'A', '0', '_', '-', ' '} {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	return ranges[0]
}
