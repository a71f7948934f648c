//go:build unix

package llama

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// counters is what llama-server says at /metrics, shortened.
const counters = `# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1.23457e+06
llamacpp:prompt_seconds_total 0.5
llamacpp:tokens_predicted_total 40
llamacpp:tokens_predicted_seconds_total 2.25
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 1
llamacpp:predicted_tokens_seconds nan
`

func TestParseTimings(t *testing.T) {
	got, err := parseTimings(counters)
	want := Timings{PromptTokens: 1234570, PromptTime: 500 * time.Millisecond, Tokens: 40, TokenTime: 2250 * time.Millisecond}
	if got != want || err != nil {
		t.Errorf("%+v %v", got, err)
	}
	for _, c := range []struct{ old, new, text string }{
		{"prompt_tokens_total 1.23457e+06", "prompt_tokens_total -1", "prompt_tokens_total"},
		{"prompt_tokens_total 1.23457e+06", "prompt_tokens_total NaN", "prompt_tokens_total"},
		{"prompt_tokens_total 1.23457e+06", "prompt_tokens_total 1e300", "prompt_tokens_total"},
		{"prompt_tokens_total 1.23457e+06", "prompt_tokens_total lots", "prompt_tokens_total"},
		{"prompt_seconds_total 0.5", "prompt_seconds_total +Inf", "prompt_seconds_total"},
		{"llamacpp:tokens_predicted_total 40\n", "", "tokens_predicted_total"},
		{"llamacpp:tokens_predicted_total 40\n", "llamacpp:tokens_predicted_total 40\nllamacpp:tokens_predicted_total 41\n", "twice"},
		{"# HELP", strings.Repeat("x", 1<<20) + "\n# HELP", "cannot be read"},
	} {
		text := strings.Replace(counters, c.old, c.new, 1)
		if got, err := parseTimings(text); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %+v %v", c.new[:min(len(c.new), 60)], got, err)
		}
	}
}

func FuzzTimings(f *testing.F) {
	f.Add(counters)
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parseTimings(text); err == nil && (got.PromptTime < 0 || got.TokenTime < 0 || got.Tokens > 1<<52 || got.PromptTokens > 1<<52) {
			t.Errorf("%+v", got)
		}
	})
}

func TestTimings(t *testing.T) {
	p := start(t, engine(t), demoSpec(t))
	before, err := p.Timings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := post(t, p, "/completion", `{"prompt":"What is relay?","n_predict":12,"ignore_eos":true,"cache_prompt":false}`); status != 200 {
		t.Fatal(status, answer)
	}
	after, err := p.Timings(t.Context())
	if err != nil || after.Tokens-before.Tokens != 12 || after.PromptTokens-before.PromptTokens < 3 || after.TokenTime <= before.TokenTime || after.PromptTime <= before.PromptTime {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
}

func TestTimingsOfOthers(t *testing.T) {
	e := fakeServer(t)
	if _, err := start(t, e, fakeSpec(t, "old")).Timings(t.Context()); !errors.Is(err, ErrNoTimings) {
		t.Errorf("a build without counters: %v", err)
	}
	e.flags["--metrics"] = true
	if got, err := start(t, e, fakeSpec(t, "new")).Timings(t.Context()); err != nil || got.Tokens != 40 {
		t.Errorf("%+v %v", got, err)
	}
	p := start(t, e, fakeSpec(t, "slow counters"))
	began := time.Now()
	if _, err := p.Timings(t.Context()); err == nil || time.Since(began) < timingsTime {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
