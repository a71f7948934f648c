package api

import (
	"strings"
	"testing"
)

// TestGrammars: what would end an engine is refused, what the engine's parser bears is not.
func TestGrammars(t *testing.T) {
	nested := func(n int) string { return "root ::= " + strings.Repeat("(", n) + `"a"` + strings.Repeat(")", n) }
	for name, tc := range map[string]struct{ grammar, says string }{
		"plain":             {"root ::= (\"yes\" | \"no\") # or (\n", ""},
		"100 deep":          {nested(100), ""},
		"101 deep":          {nested(101), "100 deep"},
		"20,000 deep":       {nested(20000), "100 deep"},
		"side by side":      {"root ::= " + strings.Repeat(`("a") `, 500), ""},
		"in quotes":         {`root ::= "\"` + strings.Repeat("(", 500) + `"`, ""},
		"in a class":        {`root ::= [\]` + strings.Repeat("(", 500) + `]`, ""},
		"in a comment":      {"#" + strings.Repeat("(", 500) + "\nroot ::= \"a\"", ""},
		"after a comment":   {"# \" [\n" + nested(101), "100 deep"},
		"after \\ outside":  {`root ::= \"` + strings.Repeat("(", 101), ""},
		"closed too often":  {"root ::= " + strings.Repeat(")", 50) + nested(101), "100 deep"},
		"as large as it is": {"#" + strings.Repeat("a", maxGrammar), "bytes"},
	} {
		if got := isGrammar(encodeJSON(tc.grammar)); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
	if isGrammar([]byte(`["root"]`)) == "" {
		t.Error("a list is taken for a grammar")
	}
}

// TestNamesInSchemas: the engine ends over a name of some ten thousand bytes.
func TestNamesInSchemas(t *testing.T) {
	schema := func(name, ref string) string {
		return `{"type":"object","properties":{"` + name + `":{"` + ref + `"}}}`
	}
	long := strings.Repeat("!", maxName+1)
	for _, tc := range []struct {
		schema string
		taken  bool
	}{
		{schema(long[1:], `title":"`+long), true}, {schema(long, `type":"string`), false}, {schema("a", `$ref":"#`+long[2:]), true},
		{schema("a", `$ref":"#`+long), false}, {schema("a", `\u0024\u0072\u0065\u0066":"#`+long), false},
	} {
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + tc.schema + `}}}`,
			"/v1/messages":         `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","input_schema":` + tc.schema + `}]}`,
			"/v1/responses":        `{"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"n","schema":` + tc.schema + `}}}`,
		} {
			speak := map[string]dialect{"/v1/chat/completions": chatDialect, "/v1/messages": messagesDialect, "/v1/responses": responsesDialect}[path]
			if _, no := speak(nil, []byte(body)); (no == nil) != tc.taken || no != nil && no.verdict().status != 400 {
				t.Errorf("%s %.60s…: %v", path, tc.schema, no)
			}
		}
	}
}

// TestSamplersThatTakeTooMuch: one small number must not take an engine's memory or time.
func TestSamplersThatTakeTooMuch(t *testing.T) {
	many := string(encodeJSON(strings.Split(strings.Repeat("a ", maxBreakers), " ")))
	for _, tc := range []struct {
		field, value string
		taken        bool
	}{
		{"repeat_last_n", "0", true}, {"repeat_last_n", "-1", false}, {"repeat_last_n", "1048576", true}, {"repeat_last_n", "1048577", false}, {"repeat_last_n", "2147483647", false},
		{"dry_penalty_last_n", "0", true}, {"dry_penalty_last_n", "-1", false}, {"dry_penalty_last_n", "2147483647", false},
		{"dry_sequence_breakers", `["\n",":"]`, true}, {"dry_sequence_breakers", many, false}, {"dry_sequence_breakers", `"a"`, false},
	} {
		_, no := readRequest(chatFields, []byte(`{"model":"m","`+tc.field+`":`+tc.value+`}`))
		if (no == nil) != tc.taken || no != nil && no.param != tc.field {
			t.Errorf("%s %.40s: %v", tc.field, tc.value, no)
		}
	}
}
