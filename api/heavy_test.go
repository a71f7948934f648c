package api

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"relay/llama/sim"
)

// allocated is what f allocates, whatever becomes of it.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// filled is a body with as much of one thing repeated between two others as makes size.
func filled(size int, before, each, after string) []byte {
	n := (size - len(before) - len(after)) / len(each)
	var b bytes.Buffer
	b.WriteString(before)
	b.WriteString(strings.Repeat(each, n-1))
	b.WriteString(strings.TrimSuffix(each, ","))
	b.WriteString(after)
	return b.Bytes()
}

// TestHeavyBodies: what a body is read into is not many times larger than it, be it taken
// or refused, as large as a body may be or just within the bounds of what it holds.
func TestHeavyBodies(t *testing.T) {
	const largest = 31 << 20
	for _, tc := range []struct {
		name                string
		speak               dialect
		before, each, after string
	}{
		{"responses input", responsesDialect, `{"model":"m","input":[`, `{},`, `]}`},
		{"responses texts", responsesDialect, `{"model":"m","input":[`, `{"role":"user","content":"a"},`, `]}`},
		{"responses metadata", responsesDialect, `{"model":"m","input":"a","metadata":{`, `"":0,`, `}}`},
		{"responses include", responsesDialect, `{"model":"m","input":"a","include":[`, `"",`, `]}`},
		{"responses numbers", responsesDialect, `{"model":"m","input":"a","include":[`, `1,`, `]}`},
		{"messages", messagesDialect, `{"model":"m","max_tokens":1,"messages":[`, `{},`, `]}`},
		{"messages blocks", messagesDialect, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[`, `{"type":"text","text":"a"},`, `]}]}`},
		{"count", countDialect, `{"model":"m","messages":[`, `0,`, `]}`},
		{"chat messages", chatDialect, `{"model":"m","messages":[`, `{},`, `]}`},
		{"chat metadata", chatDialect, `{"model":"m","messages":[],"metadata":{`, `"":0,`, `}}`},
		{"chat bias", chatDialect, `{"model":"m","messages":[],"logit_bias":{`, `"":0,`, `}}`},
		{"chat stop", chatDialect, `{"model":"m","messages":[],"stop":[`, `"",`, `]}`},
		{"chat tools", chatDialect, `{"model":"m","messages":[],"tools":[`, `{},`, `]}`},
		{"chat schema", chatDialect, `{"model":"m","messages":[],"response_format":{"type":"json_object","schema":{`, `"":0,`, `}}}`},
		{"prompts", textDialect, `{"model":"m","prompt":[`, `"",`, `]}`},
		{"prompt ids", textDialect, `{"model":"m","prompt":[`, `1,`, `]}`},
		{"embeddings ids", embeddingsDialect, `{"model":"m","input":[`, `1,`, `]}`},
		{"embeddings texts", embeddingsDialect, `{"model":"m","input":[`, `[1],`, `]}`},
		{"documents", rerankDialect, `{"model":"m","query":"a","documents":[`, `1,`, `]}`},
		{"documents of objects", rerankDialect, `{"model":"m","query":"a","documents":[`, `{"text":""},`, `]}`},
		{"tokens", detokenizeDialect, `{"model":"m","tokens":[`, `1,`, `]}`},
	} {
		within := min(largest, len(tc.before)+len(tc.after)+len(tc.each)*maxValues/(1+strings.Count(tc.each, ":"))*9/10)
		if !strings.ContainsAny(tc.each, `{"[`) {
			within = len(tc.each) * maxNumbers * 9 / 10
		}
		for _, size := range []int{within, largest} {
			body := filled(size, tc.before, tc.each, tc.after)
			var no *refusal
			took := allocated(func() { _, no = tc.speak(nil, body) })
			if took > 4*len(body)+4<<20 {
				t.Errorf("%s: a body of %d bytes has %d bytes allocated: %v", tc.name, len(body), took, no)
			}
			if size == largest && (no == nil || no.verdict().status != 400) {
				t.Errorf("%s: %d bytes: %v", tc.name, len(body), no)
			}
		}
	}
	text := strings.Repeat("once upon a time ", 1<<20)
	for name, tc := range map[string]struct {
		speak dialect
		body  string
	}{
		"responses": {responsesDialect, `{"model":"m","input":"` + text + `"}`},
		"messages":  {messagesDialect, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + text + `"}]}`},
		"rerank":    {rerankDialect, `{"model":"m","query":"a","documents":["` + text + `"]}`},
	} {
		body, before := []byte(tc.body), heap()
		q, no := tc.speak(nil, body)
		if no != nil {
			t.Fatalf("%s: %v", name, no)
		}
		runtime.GC() // What encoding/json keeps for its next use outlives one.
		if kept := heap() - before; kept > copiesOfTranslated*int64(len(body))*5/4 {
			t.Errorf("%s: of a body of %d bytes %d more are kept", name, len(body), kept)
		}
		runtime.KeepAlive(q)
	}
}

// TestCopiesAreHeld: what is written anew for the engine counts among what may be held.
func TestCopiesAreHeld(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.MaxHeld = 150 << 10 })
	text := strings.Repeat("a ", 30<<10)
	for path, want := range map[string]int{"/v1/chat/completions": 200, "/v1/messages": 503} {
		got := send(t, "POST", p.url+path, `{"model":"`+testModel+`","max_tokens":1,"messages":[{"role":"user","content":"`+text+`"}]}`)
		if got.status != want && !(want == 200 && strings.Contains(got.body, "context_length_exceeded")) {
			t.Errorf("%s: %v", path, got)
		}
	}
}
