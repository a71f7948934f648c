package api

import (
	"fmt"
	"strings"
	"testing"
)

// TestOverflowsAtTheEntrance: what cannot fit reaches no engine, and what might does.
func TestOverflowsAtTheEntrance(t *testing.T) {
	p := newKinds(t, nil)
	for i := range p.sched.models {
		p.sched.models[i].Context = 100
	}
	ids := func(n int) string { return "[1" + strings.Repeat(",1", n-1) + "]" }
	text := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	most := 100*maxToken + maxToken - 1
	for _, tc := range []struct {
		path, model, body string
		param             string // of the refusal; empty is none
		says              string
	}{
		{"/v1/completions", "tiny", `"prompt":` + ids(101), "prompt", "101 tokens"},
		{"/v1/completions", "tiny", `"prompt":[[1,2],` + ids(150) + `]`, "prompt", "150 tokens"},
		{"/v1/completions", "tiny", `"prompt":[[1,2],` + ids(100) + `]`, "", ""},
		{"/v1/completions", "tiny", `"prompt":` + text(most), "", ""},
		{"/v1/completions", "tiny", `"prompt":` + text(most+1), "prompt", "at least 101 tokens"},
		{"/v1/completions", "tiny", `"prompt":["a",` + text(most+1) + `]`, "prompt", "at least 101 tokens"},
		{"/v1/chat/completions", "tiny", `"messages":[{"role":"user","content":` + text(most+1) + `}]`, "messages", "at least 101 tokens"},
		{"/v1/messages", "tiny", `"max_tokens":1,"messages":[{"role":"user","content":` + text(most+1) + `}]`, "-", "> 100 maximum"},
		{"/v1/responses", "tiny", `"input":` + text(most+1), "input", "at least 101 tokens"},
		{"/v1/embeddings", "vectors", `"input":[` + ids(101) + `]`, "input", "101 tokens"},
		{"/v1/embeddings", "vectors", `"input":["a",` + text(most+1) + `]`, "input", "at least 101 tokens"},
	} {
		before := p.engine.State().Requests
		got := send(t, "POST", p.url+tc.path, `{"model":"`+tc.model+`",`+tc.body+`}`)
		asked := p.engine.State().Requests > before
		if asked != (tc.param == "") {
			t.Errorf("%s %.60s: the engine was asked: %v: %v", tc.path, tc.body, asked, got)
		}
		if tc.param != "" && (got.status != 400 || !strings.Contains(got.body, tc.says) || !strings.Contains(got.body, "100") ||
			tc.param != "-" && !strings.Contains(got.body, fmt.Sprintf(`"param":%q,"code":"context_length_exceeded"`, tc.param))) {
			t.Errorf("%s %.60s: %v", tc.path, tc.body, got)
		}
	}
	// An image is not what its bytes are, a count is of what does not fit too, and of a
	// context that is not known the engine says what does.
	for path, body := range map[string]string{
		"chat":  `{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", most) + `"}}]}]}`,
		"count": `{"model":"tiny","messages":[{"role":"user","content":` + text(most+1) + `}]}`,
	} {
		q, no := map[string]dialect{"chat": chatDialect, "count": countDialect}[path](nil, []byte(body))
		if no == nil {
			no = q.overflows(100)
		}
		if no != nil {
			t.Errorf("%s: %v", path, no)
		}
	}
	if no := (&request{ids: 1 << 20, text: 1 << 30}).overflows(0); no != nil {
		t.Error(no)
	}
}
