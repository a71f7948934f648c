package chat

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// FuzzQuote: what is written is what encoding/json reads back.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a\"b\\c\n\r\t\x00\x7f", "é€😀\u2028<&>", "\xff\xc3", "\xe2\x82"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(Quote(nil, s), &got); err != nil {
			t.Fatalf("%q: %v", Quote(nil, s), err)
		}
		// One U+FFFD for each byte that is none, as a range loop has it.
		if want := string([]rune(s)); got != want {
			t.Fatalf("%q became %q", want, got)
		}
		if string(Quote(nil, []byte(s))) != string(Quote(nil, s)) {
			t.Fatal("bytes are written otherwise than a string")
		}
	})
}

// FuzzMembers: of valid JSON, the members are those that encoding/json finds.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, ` { "a" : 1 , "b\n":[{},"}\\\""] } `, `{"a":{"b":[1,2,{"c":null}]},"a":-1e9}`, `{"a"`, `{"a":1,}`, `{]`, `[1,{"a":2}, "x" ]`, `{"a":"\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[string]string{}
		isObject := Members(b, func(name []byte, v json.RawMessage) { got[string(name)] = string(v) })
		var gotList []string
		isList := Elements(b, func(v json.RawMessage) { gotList = append(gotList, string(v)) })
		if !json.Valid(b) {
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(b, &want); (err == nil && strings.HasPrefix(strings.TrimSpace(string(b)), "{")) != isObject {
			t.Fatalf("%s: object %v", b, isObject)
		}
		var wantList []json.RawMessage
		if err := json.Unmarshal(b, &wantList); (err == nil && strings.HasPrefix(strings.TrimSpace(string(b)), "[")) != isList {
			t.Fatalf("%s: list %v", b, isList)
		}
		if isObject {
			if len(got) != len(want) {
				t.Fatalf("%s: %v", b, got)
			}
			for k, v := range want {
				if got[k] != string(v) {
					t.Fatalf("%s: %q is %q, not %q", b, k, got[k], v)
				}
			}
		}
		if isList && len(gotList) != len(wantList) {
			t.Fatalf("%s: %q", b, gotList)
		}
	})
}

func TestFieldsNameWhatIsWrong(t *testing.T) {
	read := func(body string) *FieldError {
		f := ReadFields([]byte(body))
		f.Needed("model")
		f.Whole("n", 1, 5)
		f.Number("t", 0, 2)
		f.Flag("b")
		f.OneOf("tier", "auto", "default")
		f.Refuse("store", "nothing is kept")
		for _, o := range f.Objects("list") {
			o.Text("name")
			if c := o.Object("in"); c != nil {
				c.Texts("words")
				c.Done()
			}
			o.Done()
		}
		f.Done()
		if f.OK() {
			return nil
		}
		return f.Err().(*FieldError)
	}
	for _, tc := range []struct{ body, param, says string }{
		{`{"model":"m"}`, "", ""},
		{`{"model":"m","n":null,"t":null,"b":null,"tier":null,"store":null,"list":null}`, "", ""},
		{`{"model":"m","n":5,"t":0.5,"b":true,"tier":"auto","list":[{"name":"x","in":{"words":["a"]}}]}`, "", ""},
		{`[]`, "", "not a JSON object"},
		{`{}`, "model", "missing"},
		{`{"model":1}`, "model", "string"},
		{`{"model":"m","n":6}`, "n", "from 1 to 5"},
		{`{"model":"m","n":1.5}`, "n", "whole number"},
		{`{"model":"m","t":"x"}`, "t", "number"},
		{`{"model":"m","t":tru}`, "t", "number"},
		{`{"model":"m","b":1}`, "b", "true or false"},
		{`{"model":"m","tier":"flex"}`, "tier", `"flex" is not a value of "tier" that relay takes; it takes auto and default`},
		{`{"model":"m","store":true}`, "store", "nothing is kept"},
		{`{"model":"m","list":{}}`, "list", "a list of objects"},
		{`{"model":"m","list":[{},1]}`, "list[1]", "a list of objects"},
		{`{"model":"m","list":[{},{"in":{"words":["a",2]}}]}`, "list[1].in.words[1]", "a list of strings"},
		{`{"model":"m","list":[{"in":{"x":1}}]}`, "list[0].in.x", `does not know the field "x"`},
		{`{"model":"m","more":1,"n":9}`, "n", "from 1"},
		{`{"model":"m","Model":1}`, "Model", "does not know"},
	} {
		no := read(tc.body)
		switch {
		case no == nil && tc.says != "":
			t.Errorf("%s: taken", tc.body)
		case no != nil && (tc.says == "" || no.Param != tc.param || !strings.Contains(no.Message, tc.says)):
			t.Errorf("%s: %q, %q", tc.body, no.Param, no.Message)
		}
	}
}

func TestRequestIsWritten(t *testing.T) {
	number, yes := int64(3), true
	call := ToolCall{ID: "c1"}
	call.Name, call.Arguments = "f", `{"a":1}`
	r := Request{
		Model: "m", Messages: []Message{
			{Role: "system", Parts: []Part{{Text: "be \"brief\""}}},
			{Role: "user", Parts: []Part{{Text: "what"}, {Image: "data:image/png;base64,AA=="}}},
			{Role: "assistant", Reasoning: "hm", ToolCalls: []ToolCall{call, call}},
			{Role: "tool", Parts: []Part{{Text: "1"}}, AnswerTo: "c1"},
		},
		Tools:      []Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "g"}},
		ToolChoice: "required", Parallel: &yes, Format: json.RawMessage(`{"type":"json_object"}`), MaxTokens: &number,
		Temperature: json.RawMessage("0.5"), TopP: json.RawMessage("1"), TopK: &number, Stop: []string{"a", "b"}, TopLogprobs: &number,
		Effort: "low", ThinkingBudget: &number, WhichStop: true,
	}
	const want = `{"model":"m","messages":[{"role":"system","content":"be \"brief\""},
		{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},
		{"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[
			{"type":"function","function":{"name":"f","arguments":"{\"a\":1}"},"id":"c1"},
			{"type":"function","function":{"name":"f","arguments":"{\"a\":1}"},"id":"c1"}]},
		{"role":"tool","content":"1","tool_call_id":"c1"}],
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},
			{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],
		"tool_choice":"required","parallel_tool_calls":true,"response_format":{"type":"json_object"},"max_tokens":3,"temperature":0.5,"top_p":1,
		"top_k":3,"stop":["a","b"],"logprobs":true,"top_logprobs":3,"reasoning_effort":"low","thinking_budget_tokens":3,
		"verbose":true,"response_fields":["stopping_word"]}`
	if got := r.Append(nil); !sameJSON(t, got, []byte(want)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}
