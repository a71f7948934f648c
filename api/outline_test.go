package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestOutline(t *testing.T) {
	for _, c := range []struct {
		in            string
		err           error
		model, stream string
		twice, remote string
	}{
		{in: ` {"model" : "a\"b" , "stream":true }` + "\n", model: `"a\"b"`, stream: `true`},
		{in: `{"a":{"model":"no"},"b":[{"model":"no"}],"model":"yes"}`, model: `"yes"`},
		{in: `{"\u006d\u006fdel":"x"}`, model: `"x"`},
		{in: `{"model":"a","x":1,"model":"b"}`, model: `"b"`, twice: "model"},
		{in: `{"stream":false,"model":"a","stream":true}`, model: `"a"`, stream: "true", twice: "stream"},
		{in: `{}`},
		{in: ``, err: errNotJSON},
		{in: `  `, err: errNotJSON},
		{in: `{`, err: errNotJSON},
		{in: `{"a"}`, err: errNotJSON},
		{in: `{"a":1,}`, err: errNotJSON},
		{in: `{"a":01}`, err: errNotJSON},
		{in: `{"a":1.}`, err: errNotJSON},
		{in: `{"a":-}`, err: errNotJSON},
		{in: `{"a":"\x"}`, err: errNotJSON},
		{in: `{"a":"\u12g4"}`, err: errNotJSON},
		{in: "{\"a\":\"\n\"}", err: errNotJSON},
		{in: `{"a":nul}`, err: errNotJSON},
		{in: `{"a":1} x`, err: errNotJSON},
		{in: "\ufeff{}", err: errNotJSON},
		{in: `"model"`, err: errNotObject},
		{in: `[{"model":"x"}]`, err: errNotObject},
		{in: `5`, err: errNotObject},
		{in: "{\"a\":\"\xc3\"}", err: errNotUTF8},
		{in: `{"a":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + `}`},
		{in: `{"a":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`, err: errTooDeep},
		{in: strings.Repeat(`{"a":`, 1_000_000), err: errTooDeep},
		{in: `{"a":"` + strings.Repeat("x", 8<<20), err: errNotJSON},

		{in: `{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,http"}}]}]}`},
		{in: `{"messages":[{"content":[{"image_url":{"url":"iVBORw0KGgo="}}]}]}`},
		{in: `{"messages":[{"content":"http://x"},{"content":[{"text":"http://x","type":"text"}]}]}`},
		{in: `{"tools":[{"url":"http://x"}],"messages":[{"tool_calls":[{"image_url":{"url":"http://x"}}]}]}`},
		{in: `{"messages":[{"content":[{"image_url":{"url":"http://x"}}]}]}`, remote: "http://x"},
		{in: `{"messages":[{"content":[{"image_url":{"url":"HTTPS://x"}}]}]}`, remote: "HTTPS://x"},
		{in: `{"messages":[{"content":[{"image_url":{"url":"file:///etc/passwd"}}]}]}`, remote: "file:///etc/passwd"},
		{in: `{"messages":[{"content":[{"image_url":{"u\u0072l":"\u0068ttp://x"}}]}]}`, remote: "http://x"},
		{in: `{"messages":[{"content":[{"image_url":"http://x"}]}]}`, remote: "http://x"},
		{in: `{"messages":[{"content":[{"input_audio":{"data":"http://x"}}]}]}`, remote: "http://x"},
		{in: `{"messages":[{"role":"user","content":"a"}],"messages":[{"content":[{"input_video":{"url":"http://x"}}]}]}`, remote: "http://x", twice: "messages"},
	} {
		out, err := outlineOf([]byte(c.in))
		if !errors.Is(err, c.err) || err != nil && c.err == nil {
			t.Errorf("%.80q: %v, want %v", c.in, err, c.err)
			continue
		}
		if err != nil {
			continue
		}
		got := func(s span) string { return string(s.of([]byte(c.in))) }
		model, stream := got(out.get("model")), got(out.get("stream"))
		if model != c.model || stream != c.stream || out.twice != c.twice || out.parts.remote != c.remote {
			t.Errorf("%.80q: model %q, stream %q, twice %q, remote %q", c.in, model, stream, out.twice, out.parts.remote)
		}
	}
}

// checkOutline holds the scanner to encoding/json, and what is sent on to its promise:
// the same values under the same names, but for the model's.
func checkOutline(t interface {
	Fatalf(string, ...any)
	Helper()
}, b []byte, name string) {
	t.Helper()
	out, err := outlineOf(b)
	valid := utf8.Valid(b) && json.Valid(b)
	var object map[string]json.RawMessage
	isObject := valid && json.Unmarshal(b, &object) == nil && object != nil
	if errors.Is(err, errTooDeep) || errors.Is(err, errTooMany) {
		return // encoding/json goes deeper, and takes more
	}
	if (err == nil) != isObject {
		t.Fatalf("%q: %v; encoding/json: valid %v, an object %v", b, err, valid, isObject)
	}
	var event outline
	if second := outlineInto(&event, b); (second == nil) != (err == nil) || len(event.members) != len(out.members) {
		t.Fatalf("%q: as a request %v, as an event %v", b, err, second)
	}
	if err != nil {
		return
	}
	// encoding/json takes the last of a repeated name, as the scanner.
	for key, want := range object {
		if at := out.get(key); utf8.ValidString(key) && !strings.Contains(key, "\ufffd") && (!at.found() || !bytes.Equal(bytes.TrimSpace(at.of(b)), want)) {
			t.Fatalf("%q: %q is %q, encoding/json says %q", b, key, at.of(b), want)
		}
	}
	if out.twice != "" {
		return
	}
	q := &request{body: b, members: out.members, edits: out.parts.refusals}
	var sent []byte
	for _, p := range q.calling(name) {
		sent = append(sent, p...)
	}
	var after map[string]json.RawMessage
	if err := json.Unmarshal(sent, &after); err != nil {
		t.Fatalf("%q became %q: %v", b, sent, err)
	}
	if want := encodeJSON(name); !bytes.Equal(after["model"], want) {
		t.Fatalf("%q became %q: the model is %q, want %q", b, sent, after["model"], want)
	}
	for key, want := range object {
		if key != "model" && len(q.edits) == 0 && !bytes.Equal(after[key], want) {
			t.Fatalf("%q became %q: %q is another", b, sent, key)
		}
	}
}

func FuzzOutline(f *testing.F) {
	for _, s := range []string{
		`{"model":"a","stream":true,"messages":[{"role":"user","content":"x"}]}`, `{"model":"a","model":"b"}`, `{"model" : null }`,
		`{"messages":[{"content":[{"type":"refusal","refusal":"no"},{"refusal":"x","type":"refusal"}]}]}`, `{"\u006dodel":{"a":[1,2.5e-3,"\ud83d\ude00"]}}`, `[]`, `{"a":"\ud800"}`, `{"model":1}x`, ` {} `, `{"":""}`, "{\"a\":\"\xff\"}", `nul`, `-0.0e+1`,
	} {
		f.Add([]byte(s), "new name")
	}
	f.Fuzz(func(t *testing.T, b []byte, name string) { checkOutline(t, b, name) })
}

func TestOutlineOfGeneratedJSON(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] { return genJSON(3) })
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"model", "stream", "messages"})), value).Draw(t, "object")
		b, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indented") {
			var in bytes.Buffer
			json.Indent(&in, b, " ", "\t")
			b = in.Bytes()
		}
		checkOutline(t, b, rapid.String().Draw(t, "name"))
	})
}

func genJSON(depth int) *rapid.Generator[any] {
	leaf := []*rapid.Generator[any]{
		rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Float64Range(-1e300, 1e300), func(f float64) any { return f }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Just[any](nil),
	}
	if depth > 0 {
		inner := rapid.Deferred(func() *rapid.Generator[any] { return genJSON(depth - 1) })
		leaf = append(leaf,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(s []any) any { return s }),
			rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), func(m map[string]any) any { return m }))
	}
	return rapid.OneOf(leaf...)
}

func BenchmarkOutline(b *testing.B) {
	event := []byte(`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" relay"}}],"created":1796013332,"id":"chatcmpl-lllqv3zTZ7lwE0NF83H3XPkz20OTfKBy","model":"tiny","system_fingerprint":"b1-80fb11a","object":"chat.completion.chunk"}`)
	image := []byte(`{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgo", 100_000) + `"}}]}]}`)
	for name, in := range map[string][]byte{"event": event, "image": image} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := outlineOf(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
