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

func TestMeter(t *testing.T) {
	var m Meter
	for _, tc := range []struct {
		payload string
		want    Usage
	}{
		{`{"choices":[],"timings":{"cache_n":2,"prompt_n":0,"predicted_n":0}}`, Usage{}},
		{`{"choices":[{"index":0,"delta":{"reasoning_content":"a"}}],"timings":{"cache_n":2,"prompt_n":7,"predicted_n":3}}`, Usage{Prompt: 9, Cached: 2, Completion: 3, Total: 12}},
		{`{"choices":[{"index":0,"delta":{"content":"a"}}],"timings":{"cache_n":2,"prompt_n":7,"predicted_n":5}}`, Usage{Prompt: 9, Cached: 2, Completion: 5, Total: 14}},
		{`{"choices":[{"index":0,"delta":{}}]}`, Usage{Prompt: 9, Cached: 2, Completion: 5, Total: 14}},
		{`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":2}},"timings":{"cache_n":2,"prompt_n":7,"predicted_n":1}}`, Usage{Prompt: 9, Cached: 2, Completion: 6, Total: 15}},
	} {
		var c Chunk
		if err := c.Read([]byte(tc.payload)); err != nil {
			t.Fatal(err)
		}
		m.Add(&c)
		if got := m.Usage(); got != tc.want {
			t.Errorf("after %s: %+v, want %+v", tc.payload, got, tc.want)
		}
	}
	if m.Reasoning() != 3 {
		t.Errorf("%d tokens of reasoning, want 3", m.Reasoning())
	}
}
