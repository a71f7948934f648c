package sim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// allows says whether a schema of the words that it knows allows a value.
func allows(s, v any) bool {
	if s == true {
		return true
	}
	o, ok := s.(map[string]any)
	if !ok {
		return false
	}
	same := func(a any) bool { return fmt.Sprint(a) == fmt.Sprint(v) }
	if list, ok := o["enum"].([]any); ok {
		for _, one := range list {
			if same(one) {
				return true
			}
		}
		return false
	}
	if c, ok := o["const"]; ok {
		return same(c)
	}
	if list, ok := o["anyOf"].([]any); ok {
		for _, one := range list {
			if allows(one, v) {
				return true
			}
		}
		return false
	}
	bound := func(key string, ok func(bound float64) bool) bool {
		b, there := o[key].(float64)
		return !there || ok(b)
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := o["properties"].(map[string]any)
		required, _ := o["required"].([]any)
		for _, r := range required {
			if _, ok := v[r.(string)]; !ok {
				return false
			}
		}
		for name, one := range v {
			if p, ok := properties[name]; ok && !allows(p, one) {
				return false
			}
		}
		return o["type"] == "object"
	case []any:
		for _, one := range v {
			if !allows(o["items"], one) {
				return false
			}
		}
		n := float64(len(v))
		return o["type"] == "array" && bound("minItems", func(b float64) bool { return n >= b }) && bound("maxItems", func(b float64) bool { return n <= b })
	case string:
		n := float64(utf8.RuneCountInString(v))
		pattern, _ := o["pattern"].(string)
		return o["type"] == "string" && regexp.MustCompile(pattern).MatchString(v) &&
			bound("minLength", func(b float64) bool { return n >= b }) && bound("maxLength", func(b float64) bool { return n <= b })
	case float64:
		return (o["type"] == "number" || o["type"] == "integer" && v == float64(int64(v))) &&
			bound("minimum", func(b float64) bool { return v >= b }) && bound("maximum", func(b float64) bool { return v <= b }) &&
			bound("exclusiveMinimum", func(b float64) bool { return v > b }) && bound("exclusiveMaximum", func(b float64) bool { return v < b })
	case bool:
		return o["type"] == "boolean"
	default:
		return o["type"] == "null"
	}
}

func schemas(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "const"}
		if depth > 0 {
			kinds = append(kinds, "object", "array", "anyOf", "object", "array")
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		s := map[string]any{"type": kind}
		low := rapid.IntRange(-1000, 1000).Draw(t, "low")
		span := rapid.IntRange(2, 50).Draw(t, "span")
		maybe := func(key string, v any) {
			if rapid.Bool().Draw(t, key) {
				s[key] = v
			}
		}
		switch kind {
		case "string":
			maybe("minLength", span)
			maybe("maxLength", span+rapid.IntRange(0, 20).Draw(t, "more"))
		case "integer", "number":
			maybe("minimum", low)
			maybe("maximum", low+span)
			maybe("exclusiveMinimum", low)
			maybe("exclusiveMaximum", low+span)
		case "enum":
			return map[string]any{"enum": []any{"a", low, nil, true}}
		case "const":
			return map[string]any{"const": low}
		case "object":
			properties := map[string]any{}
			var required []any
			for i := range rapid.IntRange(0, 3).Draw(t, "properties") {
				name := fmt.Sprint("p", i)
				properties[name] = schemas(depth-1).Draw(t, name)
				if rapid.Bool().Draw(t, "required") {
					required = append(required, name)
				}
			}
			s["properties"], s["required"] = properties, required
		case "array":
			s["items"] = schemas(depth-1).Draw(t, "items")
			maybe("minItems", 3)
			maybe("maxItems", 3)
		case "anyOf":
			return map[string]any{"anyOf": []any{schemas(depth-1).Draw(t, "first"), schemas(depth-1).Draw(t, "second")}}
		}
		return s
	})
}

func TestValueFitsItsSchema(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := json.Marshal(schemas(3).Draw(t, "schema"))
		if err != nil {
			t.Fatal(err)
		}
		c := chain(rapid.Uint64().Draw(t, "chain"))
		text, err := valueFor(b, c)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		var s, v any
		if json.Unmarshal(b, &s) != nil || json.Unmarshal([]byte(text), &v) != nil || !allows(s, v) {
			t.Fatalf("%s does not allow %s", b, text)
		}
		if again, _ := valueFor(b, c); again != text {
			t.Fatalf("%s, then %s", text, again)
		}
	})
}

func TestValueFor(t *testing.T) {
	for schema, want := range map[string]string{
		`{"$ref":"#/$defs/a","$defs":{"a":{"const":[1,"x"]}}}`: `[1,"x"]`,
		`{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"const":1}}}`:  `1`,
		`{"allOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"$ref":"#/$defs/b"}],"$defs":{"b":{"properties":{"b":{"const":2}},"required":["b"]}}}`: `{"a":1,"b":2}`,
		`{"properties":{"b":{"const":2},"a":{"const":1}},"required":["b","a"]}`:                                                                              `{"b":2,"a":1}`,
		`{"type":["null","string"]}`:                                                            `null`,
		`{"oneOf":[{"type":"nosuch"},{"const":5}]}`:                                             `5`,
		`{"type":"string","format":"date-time"}`:                                                `"2026-01-02T03:04:05Z"`,
		`{"type":"string","format":"email","pattern":"^(?!x).*@"}`:                              `"someone@example.com"`,
		`{"type":"string","pattern":"^[A-Z]{3}-\\d{2,4}(x|y)+$"}`:                               `"AAA-00x"`,
		`{"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false}`:                `[1,2]`,
		`{"type":"array","items":{"enum":[1,2]},"minItems":2,"uniqueItems":true,"contains":{}}`: ``, // either order
		`{"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":5}`:                          `4`,
		`{"type":"integer","minimum":10,"maximum":20,"multipleOf":9}`:                           `18`,
		`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1}`:                           `0.5`,
		// A tree whose first way has no end is made the second way.
		`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"}]}},"required":["next"]}}}`: `{"next":null}`,
	} {
		got, err := valueFor(json.RawMessage(schema), 1)
		if err != nil || got != want && want != "" {
			t.Errorf("%s: %s %v, want %s", schema, got, err, want)
		}
	}
	for schema, want := range map[string]string{
		`{"type":"nosuch"}`:               `Unrecognized schema: {"type":"nosuch"}`,
		`false`:                           "Unrecognized schema: false",
		`{"$ref":"#"}`:                    errTooMuch.Error(),
		`{"$ref":"#/a"}`:                  "not in it",
		`{"$ref":"http://example.com/x"}`: "Unsupported ref",
		`{"allOf":[{"$ref":"#"}]}`:        errTooMuch.Error(),
		`{"type":"array","minItems":1e18,"items":{"type":"null"}}`:             errTooMuch.Error(),
		`{"type":"array","minItems":2,"items":{"const":1},"uniqueItems":true}`: errTooMuch.Error(),
		`{"type":"string","minLength":1e9}`:                                    "no text",
		`{"type":"string","minLength":5,"pattern":"^a$"}`:                      "leave no text",
		`{"type":"string","pattern":"^(?=a)b"}`:                                "not supported",
		`{"type":"integer","minimum":5,"maximum":4}`:                           "no number",
		`{"type":"object","minProperties":2}`:                                  "minProperties",
		strings.Repeat(`{"anyOf":[`, 500) + `{}` + strings.Repeat(`]}`, 500):   errTooMuch.Error(),
	} {
		if got, err := valueFor(json.RawMessage(schema), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %.80s %v, want %s", schema, got, err, want)
		}
	}
}

func FuzzValueFor(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"},"b":{"pattern":"(a|b){2,9}","maxLength":7}},"required":["b","a"]}`), uint64(1))
	f.Add([]byte(`{"allOf":[{"allOf":[{"$ref":"#/allOf/0"}]}],"enum":[1e400]}`), uint64(2))
	f.Add([]byte(`{"type":["array","null"],"minItems":3,"items":{"type":"number","multipleOf":1e-300,"minimum":1e308}}`), uint64(3))
	f.Fuzz(func(t *testing.T, schema []byte, c uint64) {
		began := time.Now()
		text, err := valueFor(schema, chain(c))
		if err == nil && (!json.Valid([]byte(text)) || len(text) > maxValueBytes) {
			t.Fatalf("%.200q is no value of a bounded size", text)
		}
		if took := time.Since(began); len(schema) < 10_000 && took > 5*time.Second {
			t.Fatalf("it took %v", took)
		}
	})
}
