package chat

import "testing"

func TestPrefix(t *testing.T) {
	for _, tc := range []struct {
		text   string
		pieces []string
		want   string
	}{
		{"", []string{"a", "b"}, "ab"},
		{"ab", []string{"ab", "c"}, "c"},
		{"ab", []string{"a", "", "bc", "abd"}, "cabd"},
		{"ab", []string{"abc"}, "c"},
		{"ab", []string{"a", "c", "d"}, "acd"},
		{"ab", []string{"x", "ab"}, "xab"},
		{"ab", []string{"a"}, "a"}, // it ended within what was expected
		{"ab", nil, ""},
	} {
		p := NewPrefix(tc.text)
		got := ""
		for _, s := range tc.pieces {
			got += p.Strip(s)
		}
		if got += p.Flush(); got != tc.want {
			t.Errorf("%q of %q: %q, want %q", tc.text, tc.pieces, got, tc.want)
		}
	}
}
