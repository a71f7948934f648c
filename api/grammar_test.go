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

// TestSamplersThatTakeTooMuch: one small number must not take an engine's memory or time.
func TestSamplersThatTakeTooMuch(t *testing.T) {
	many := string(encodeJSON(strings.Split(strings.Repeat("a ", maxBreakers), " ")))
	for _, tc := range []struct {
		field, value string
		taken        bool
	}{
		{"repeat_last_n", "-1", true}, {"repeat_last_n", "1048576", true}, {"repeat_last_n", "1048577", false}, {"repeat_last_n", "2147483647", false},
		{"dry_penalty_last_n", "-1", true}, {"dry_penalty_last_n", "2147483647", false},
		{"dry_sequence_breakers", `["\n",":"]`, true}, {"dry_sequence_breakers", many, false}, {"dry_sequence_breakers", `"a"`, false},
	} {
		_, no := readRequest(chatFields, []byte(`{"model":"m","`+tc.field+`":`+tc.value+`}`))
		if (no == nil) != tc.taken || no != nil && no.param != tc.field {
			t.Errorf("%s %.40s: %v", tc.field, tc.value, no)
		}
	}
}
