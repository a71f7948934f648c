package api

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"relay/api/chat"
)

// TestTokensAheadOfTheirText: a token that the engine holds the text of back is told when the
// text comes, and not twice where another replica has it anew.
func TestTokensAheadOfTheirText(t *testing.T) {
	token := func(n int, token, text string) string {
		return fmt.Sprintf(`{"choices":[{"text":%q,"index":0,"logprobs":{"content":[{"id":1,"token":%q,"logprob":-0.5,"top_logprobs":[]}]},"finish_reason":null}],"id":"chatcmpl-1","timings":{"predicted_n":%d}}`, text, token, n)
	}
	const finish = `{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"stop"}],"id":"chatcmpl-1","usage":{"completion_tokens":3},"timings":{"predicted_n":3}}`
	told := regexp.MustCompile(`"tokens":\["([^"]*)"\]`)
	for _, tc := range []struct {
		name   string
		events []string
		want   string // the tokens that were told, with a bar behind those of each event
	}{
		{"their text comes", []string{token(1, "a", "a"), token(2, "b", ""), token(3, "c", "bc"), finish}, "a||b c||"},
		{"a stop string takes it", []string{token(1, "a", "a"), token(2, "b", ""), token(3, "c", ""), finish}, "a|||b c|"},
		{"another replica has it", []string{token(1, "a", "a"), token(2, "b", ""), token(3, "c", ""), token(2, "b", ""), token(3, "x", "bx"), finish}, "a||||b x||"},
		{"and has it at once", []string{token(1, "a", "a"), token(2, "b", ""), token(2, "by", "by"), finish}, "a||by||"},
		{"too much of it", []string{token(1, strings.Repeat("z", maxAhead), ""), finish}, strings.Repeat("z", maxAhead) + "||"},
	} {
		r := legacyLogprobs(func(*call, string) reply {
			return &passing{model: []byte(`"m"`), kind: chat.OfText}
		}, 1)(nil, "")
		got := ""
		for _, data := range tc.events {
			ev := chunk{data: []byte(data)}
			if err := outlineInto(&ev.out, ev.data); err != nil {
				t.Fatal(err)
			}
			out, err := r.event(&ev)
			if err != nil {
				t.Fatal(err)
			}
			var tokens []string
			for _, m := range told.FindAllSubmatch(out, -1) {
				tokens = append(tokens, string(m[1]))
			}
			got += strings.Join(tokens, " ") + "|"
		}
		if got != tc.want {
			t.Errorf("%s: %.200s, not %.200s", tc.name, got, tc.want)
		}
	}
}
