package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/p2p/keys"
	"relay/scheduler"
	"relay/store/audit"
)

// kindsOfModels are one model of each kind.
func kindsOfModels() []scheduler.ServedModel {
	return []scheduler.ServedModel{
		{UID: testUID, Name: testModel, Context: 4096, Created: 1700000000, Kind: kindChat, Tools: true},
		{UID: "01uidofvectors", Name: "vectors", Context: 512, Created: 1700000001, Kind: kindEmbed},
		{UID: "01uidofranks", Name: "ranks", Context: 512, Created: 1700000002, Kind: kindRerank},
	}
}

func newKinds(t *testing.T, change func(*DoorOptions)) *testPeer {
	t.Helper()
	p := newPeer(t, "one", sim.Options{Embeddings: true, Reranking: true, Width: 8, Slots: 4}, change)
	p.sched.models = kindsOfModels()
	return p
}

type embeddingsAnswer struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

func TestEmbeddings(t *testing.T) {
	p := newKinds(t, nil)
	ask := func(more string) (a embeddingsAnswer, vectors [][]float32) {
		t.Helper()
		got := send(t, "POST", p.url+"/v1/embeddings", `{"model":"vectors",`+more+`}`)
		if got.status != 200 || json.Unmarshal([]byte(got.body), &a) != nil || a.Object != "list" || a.Model != "vectors" || a.Usage.Prompt == 0 || a.Usage.Total != a.Usage.Prompt {
			t.Fatalf("%s: %v", more, got)
		}
		for i, d := range a.Data {
			var v []float32
			var text string
			if json.Unmarshal(d.Embedding, &text) == nil {
				b, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					t.Fatal(err)
				}
				for ; len(b) > 0; b = b[4:] {
					v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
				}
			} else if err := json.Unmarshal(d.Embedding, &v); err != nil {
				t.Fatal(err)
			}
			if d.Object != "embedding" || d.Index != i {
				t.Errorf("%s: %+v", more, d)
			}
			vectors = append(vectors, v)
		}
		return a, vectors
	}
	_, whole := ask(`"input":"a text"`)
	if len(whole) != 1 || len(whole[0]) != 8 {
		t.Fatalf("%v", whole)
	}
	if _, v := ask(`"input":["a text","another"],"encoding_format":"base64"`); len(v) != 2 || !slices.Equal(v[0], whole[0]) || slices.Equal(v[1], whole[0]) {
		t.Errorf("base64 %v, floats %v", v, whole)
	}
	if _, v := ask(`"input":[5,6,7]`); len(v) != 1 {
		t.Errorf("ids are %d texts", len(v))
	}
	if _, v := ask(`"input":[[5,6],[7]]`); len(v) != 2 {
		t.Errorf("two lists of ids are %d texts", len(v))
	}
	for _, n := range []int{1, 3, 8} {
		_, v := ask(fmt.Sprintf(`"input":"a text","dimensions":%d`, n))
		var sum float64
		for i, x := range v[0] {
			sum += float64(x) * float64(x)
			// The same direction as before.
			if i > 0 && math.Abs(float64(v[0][i])*float64(whole[0][0])-float64(v[0][0])*float64(whole[0][i])) > 1e-5 {
				t.Errorf("%d dimensions: %v of %v", n, v[0], whole[0])
			}
		}
		if len(v[0]) != n || math.Abs(sum-1) > 1e-5 {
			t.Errorf("%d dimensions: %v, of length %v", n, v[0], math.Sqrt(sum))
		}
	}
	got := send(t, "POST", p.url+"/v1/embeddings", `{"model":"vectors","input":"a","dimensions":9}`)
	if a := readAnswer(t, got.body); got.status != 400 || a.err.param() != "dimensions" || !strings.Contains(a.err.Message, "of 8 dimensions, not of 9") {
		t.Error(got)
	}
	if got.header.Get(headerServed) != "vectors" || got.header.Get(headerAttempts) != "1" {
		t.Error(got)
	}
	if err := p.sched.lastEnd(); err != nil {
		t.Errorf("the route ended with %v", err)
	}
}

func TestRerank(t *testing.T) {
	p := newKinds(t, nil)
	type ranks struct {
		Model, Object string
		Results       []struct {
			Index    int
			Score    float64 `json:"relevance_score"`
			Document *struct{ Text string }
		}
	}
	ask := func(more string) (a ranks) {
		t.Helper()
		got := send(t, "POST", p.url+"/v1/rerank", `{"model":"ranks","query":"what",`+more+`}`)
		if got.status != 200 || json.Unmarshal([]byte(got.body), &a) != nil || a.Model != "ranks" {
			t.Fatalf("%s: %v", more, got)
		}
		for i, r := range a.Results {
			if i > 0 && r.Score > a.Results[i-1].Score {
				t.Errorf("%s: %+v", more, a)
			}
		}
		return a
	}
	all := ask(`"documents":["a","b",{"text":"c"}]`)
	if len(all.Results) != 3 || all.Results[0].Document != nil {
		t.Errorf("%+v", all)
	}
	best := ask(`"documents":["a","b",{"text":"c"}],"top_n":1,"return_documents":true`)
	if len(best.Results) != 1 || best.Results[0].Index != all.Results[0].Index || best.Results[0].Document == nil ||
		best.Results[0].Document.Text != []string{"a", "b", "c"}[best.Results[0].Index] {
		t.Errorf("%+v, of all %+v", best, all)
	}
	if got := ask(`"documents":["a"],"top_n":9`); len(got.Results) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestTokens(t *testing.T) {
	p := newKinds(t, nil)
	for _, model := range []string{"tiny", "vectors", "ranks"} {
		got := send(t, "POST", p.url+"/v1/tokenize", `{"model":"`+model+`","content":"hello there"}`)
		var a struct {
			Model  string
			Count  int
			Tokens []int
		}
		if got.status != 200 || json.Unmarshal([]byte(got.body), &a) != nil || a.Model != model || a.Count == 0 || a.Count != len(a.Tokens) {
			t.Fatal(got)
		}
		ids, _ := json.Marshal(a.Tokens)
		got = send(t, "POST", p.url+"/v1/detokenize", `{"model":"`+model+`","tokens":`+string(ids)+`}`)
		if want := `{"model":"` + model + `","content":"hello there"}` + "\n"; got.status != 200 || strings.TrimSpace(got.body) != strings.TrimSpace(want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
	got := send(t, "POST", p.url+"/v1/tokenize", `{"model":"tiny","content":"hello","with_pieces":true}`)
	if got.status != 200 || !strings.Contains(got.body, `"piece":`) {
		t.Error(got)
	}
}

// An id that a model has no token for is the client's mistake; the engine says 500.
func TestDetokenizeStrangeIDs(t *testing.T) {
	for where, p := range places(t, sim.Options{}, func(o *DoorOptions) { o.Deadlines.Retry = time.Minute }) {
		got := send(t, "POST", p.url+"/v1/detokenize", `{"model":"tiny","tokens":[1,99999999]}`)
		a := readAnswer(t, got.body)
		if got.status != 400 || a.err == nil || a.err.param() != "tokens" || a.err.Code != "invalid_request" || !strings.Contains(a.err.Message, "no token of model") || got.header.Get(headerAttempts) != "1" {
			t.Errorf("%s: %v", where, got)
		}
		if err := p.sched.lastEnd(); err != nil {
			t.Errorf("%s: the route ended with %v", where, err)
		}
	}
}

// A model of another kind is refused with where it is asked.
func TestWrongKinds(t *testing.T) {
	p := newKinds(t, nil)
	const messages = `"messages":[{"role":"user","content":"a"}]`
	for _, c := range []struct{ path, body, says string }{
		{"/v1/chat/completions", `{"model":"vectors",` + messages + `}`, "an embedding model; ask it at POST /v1/embeddings"},
		{"/v1/completions", `{"model":"ranks","prompt":"a"}`, "a reranking model; ask it at POST /v1/rerank"},
		{"/v1/embeddings", `{"model":"tiny","input":"a"}`, "a chat model; ask it at POST /v1/chat/completions"},
		{"/v1/embeddings", `{"model":"ranks","input":"a"}`, "POST /v1/rerank"},
		{"/v1/rerank", `{"model":"tiny","query":"a","documents":["b"]}`, "a chat model"},
		{"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`, "cannot read images"},
	} {
		got := send(t, "POST", p.url+c.path, c.body)
		if a := readAnswer(t, got.body); got.status != 400 || a.err == nil || !strings.Contains(a.err.Message, c.says) || a.err.param() == "" {
			t.Errorf("%s %s: %v", c.path, c.body, got)
		}
	}
	p.sched.set(func() { p.sched.models[0].Tools = false })
	tools := `,"tools":[{"type":"function","function":{"name":"f"}}]`
	got := send(t, "POST", p.url+"/v1/chat/completions", `{"model":"tiny",`+messages+tools+`}`)
	if a := readAnswer(t, got.body); got.status != 400 || a.err == nil || a.err.param() != "tools" {
		t.Error(got)
	}
	// Tools that may not be called do no harm, and where nobody looked the engine says.
	if got := send(t, "POST", p.url+"/v1/chat/completions", `{"model":"tiny",`+messages+tools+`,"tool_choice":"none","max_tokens":2}`); got.status != 200 {
		t.Error(got)
	}
}

// grants is a door's keys of which each may do something else.
type grants map[string]keys.Grant

func (g grants) Check(secret string) (keys.Grant, error) {
	grant, ok := g[secret]
	if !ok {
		return grant, keys.ErrUnknown
	}
	return grant, nil
}
func (g grants) Any() bool { return true }

// A door that has just started does not call a key unknown that others may know.
func TestUnknownKeyAtTheStart(t *testing.T) {
	var heard atomic.Bool
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
		o.Keys, o.Heard = grants{testKey: {ID: "k1", Name: "known"}}, heard.Load
	})
	ask := func(status int, header ...string) received {
		t.Helper()
		got := send(t, "GET", p.url+"/v1/models", "", header...)
		if got.status != status {
			t.Errorf("%v, want %d", got, status)
		}
		return got
	}
	ask(200)
	ask(401, "Authorization", "")
	got := ask(503, "Authorization", "Bearer new")
	if a := readAnswer(t, got.body); got.header.Get("Retry-After") != "1" || got.header.Get(headerShouldRetry) != "" || !strings.Contains(a.err.Message, "just started") {
		t.Error(got)
	}
	heard.Store(true)
	ask(401, "Authorization", "Bearer new")
}

// A key that is for some models sees no others, and is told so.
func TestModelsOfAKey(t *testing.T) {
	p := newKinds(t, func(o *DoorOptions) {
		o.Keys = grants{testKey: {ID: "k1", Name: "narrow", Models: []string{"vectors"}}, "other": {ID: "k2", Name: "wide"}}
	})
	got := send(t, "GET", p.url+"/v1/models", "")
	if got.status != 200 || strings.Contains(got.body, "tiny") || !strings.Contains(got.body, "vectors") {
		t.Error(got)
	}
	if got := send(t, "GET", p.url+"/v1/models", "", "Authorization", "Bearer other"); !strings.Contains(got.body, "tiny") {
		t.Error(got)
	}
	if got := send(t, "GET", p.url+"/v1/models/tiny", ""); got.status != 404 || strings.Contains(got.body, "tiny, ") {
		t.Error(got)
	}
	got = send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, false))
	if a := readAnswer(t, got.body); got.status != 403 || a.err.Code != "not_allowed" || a.err.Type != "permission_error" || !strings.Contains(a.err.Message, `the key "narrow" may not use model "tiny"`) {
		t.Error(got)
	}
	if got := send(t, "POST", p.url+"/v1/embeddings", `{"model":"vectors","input":"a"}`); got.status != 200 {
		t.Error(got)
	}
	// As Anthropic's clients send it.
	if got := send(t, "GET", p.url+"/v1/models", "", "Authorization", "", "X-Api-Key", "other"); got.status != 200 {
		t.Error(got)
	}
}

func TestModelsInAnthropicsShape(t *testing.T) {
	p := newKinds(t, nil)
	list := func(query string) (ids []string, more bool) {
		t.Helper()
		got := send(t, "GET", p.url+"/v1/models"+query, "", "Anthropic-Version", "2023-06-01")
		var a struct {
			Data []struct {
				ID, Type, DisplayName string
				CreatedAt             time.Time `json:"created_at"`
			}
			HasMore bool    `json:"has_more"`
			First   *string `json:"first_id"`
			Last    *string `json:"last_id"`
		}
		if got.status != 200 || json.Unmarshal([]byte(got.body), &a) != nil {
			t.Fatal(got)
		}
		for _, m := range a.Data {
			if m.Type != "model" || m.CreatedAt.IsZero() {
				t.Errorf("%+v", m)
			}
			ids = append(ids, m.ID)
		}
		if len(ids) > 0 && (*a.First != ids[0] || *a.Last != ids[len(ids)-1]) {
			t.Error(got)
		}
		return ids, a.HasMore
	}
	for query, want := range map[string]string{
		"": "[ranks tiny vectors] false", "?limit=2": "[ranks tiny] true", "?after_id=tiny": "[vectors] false",
		"?before_id=vectors&limit=1": "[tiny] true", "?before_id=vectors&limit=2": "[ranks tiny] false",
	} {
		ids, more := list(query)
		if got := fmt.Sprint(ids, more); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	got := send(t, "GET", p.url+"/v1/models/nosuch", "", "Anthropic-Version", "2023-06-01")
	if got.status != 404 || !strings.HasPrefix(got.body, `{"type":"error","error":{"type":"not_found_error","message":"no model is named`) || got.header.Get("Request-Id") != got.header.Get(headerRequestID) {
		t.Error(got)
	}
}

// An alias is another name of its model, and the answer calls the model so.
func TestAliases(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	p.sched.models[0].Aliases = []string{"gpt-4"}
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody("gpt-4", true))
	if a := readAnswer(t, got.body); got.status != 200 || a.text != wantText() || fmt.Sprint(a.models) != "[gpt-4]" || got.header.Get(headerServed) != testModel {
		t.Errorf("%v", got)
	}
	if got := send(t, "GET", p.url+"/v1/models/gpt-4", ""); got.status != 200 || !strings.Contains(got.body, `"id":"tiny"`) || !strings.Contains(got.body, `"aliases":["gpt-4"]`) {
		t.Error(got)
	}
}

// A model that cannot be served is answered for by its fallback, once, where the key may
// use that, and the answer says so.
func TestFallback(t *testing.T) {
	for _, c := range []struct {
		name     string
		why      scheduler.Reason
		fallback string
		models   []string // of the key
		served   bool
	}{
		{"no capacity", scheduler.NoCapacity, "spare", nil, true},
		{"parked", scheduler.Parked, "spare", nil, true},
		{"by alias", scheduler.NoHolder, "extra", nil, true},
		{"of the key's", scheduler.NoEngine, "spare", []string{"tiny", "spare"}, true},
		{"not of the key's", scheduler.NoCapacity, "spare", []string{"tiny"}, false},
		{"none", scheduler.NoCapacity, "", nil, false},
		{"gone", scheduler.NoCapacity, "nosuch", nil, false},
		{"of another kind", scheduler.NoCapacity, "vectors", nil, false},
		{"itself", scheduler.NoCapacity, "tiny", nil, false},
		{"only loading", scheduler.ModelLoading, "spare", nil, false},
		{"not a second step", scheduler.NoCapacity, "second", nil, false},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, " stream=", stream), func(t *testing.T) {
				p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
					o.Keys = grants{testKey: {ID: "k", Name: "k", Models: c.models}}
				})
				p.sched.models = append(kindsOfModels(),
					scheduler.ServedModel{UID: "u2", Name: "spare", Kind: kindChat, Aliases: []string{"extra"}},
					scheduler.ServedModel{UID: "u3", Name: "second", Kind: kindChat, Fallback: "spare"})
				p.sched.models[0].Fallback = c.fallback
				p.sched.failing = map[string]error{testUID: scheduler.Errorf(c.why, "it runs nowhere"), "u3": scheduler.Errorf(c.why, "it runs nowhere")}
				got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, stream))
				a := readAnswer(t, got.body)
				if c.served && (got.status != 200 || a.text != wantText() || fmt.Sprint(a.models) != "[spare]" || got.header.Get(headerServed) != "spare") {
					t.Errorf("%+v: %v", a, got)
				}
				if !c.served && (got.status == 200 || a.err == nil || a.err.Code != string(c.why)) {
					t.Errorf("%v", got)
				}
			})
		}
	}
	// Not after data went out.
	f, err := sim.ParseFault("die:3")
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, "one", sim.Options{Faults: []sim.Fault{f}}, func(o *DoorOptions) { o.Attempts, o.Deadlines.BetweenTokens = 1, 200*time.Millisecond })
	p.sched.models = append(kindsOfModels(), scheduler.ServedModel{UID: "u2", Name: "spare", Kind: kindChat})
	p.sched.models[0].Fallback = "spare"
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); a.err == nil || fmt.Sprint(a.models) != "[tiny]" || len(p.sched.settled()) != 1 {
		t.Errorf("%v", got)
	}
}

// gate is a quota that counts what it is told.
type gate struct {
	standing keys.Standing
	err      error
	told     chan [2]int
}

type gateTicket struct {
	g    *gate
	last [2]int
}

func (g *gate) Admit(keys.Grant) (keys.Ticket, keys.Standing, error) {
	if g.err != nil {
		return nil, g.standing, g.err
	}
	return &gateTicket{g: g}, g.standing, nil
}
func (k *gateTicket) Used(prompt, completion int) { k.last = [2]int{prompt, completion} }
func (k *gateTicket) Done()                       { k.g.told <- k.last }

// How a key stands is in the headers; what it used is told in the end, also where the
// client did not ask for it, and where it left.
func TestQuotas(t *testing.T) {
	g := &gate{told: make(chan [2]int, 9), standing: keys.Standing{
		Requests: &keys.Allowance{Limit: 60, Remaining: 59, Reset: time.Second}, Tokens: &keys.Allowance{Limit: 1000, Remaining: 900, Reset: 6 * time.Minute},
	}}
	p := newKinds(t, func(o *DoorOptions) { o.Quota = g })
	for _, c := range []struct {
		path, body string
		completion int
	}{
		{"/v1/chat/completions", chatBody(testModel, true), 12}, {"/v1/chat/completions", chatBody(testModel, false), 12},
		{"/v1/completions", `{"model":"tiny","prompt":["a","b"],"n":2,"max_tokens":3,"ignore_eos":true,"stream":true}`, 12},
		{"/v1/embeddings", `{"model":"vectors","input":"a text"}`, 0},
	} {
		got := send(t, "POST", p.url+c.path, c.body)
		if got.status != 200 {
			t.Fatal(got)
		}
		if used := <-g.told; used[0] == 0 || used[1] != c.completion {
			t.Errorf("%s: used %v, want %d of completion", c.body, used, c.completion)
		}
		for k, want := range map[string]string{
			"X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Remaining-Requests": "59", "X-Ratelimit-Reset-Requests": "1s",
			"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "900", "X-Ratelimit-Reset-Tokens": "6m0s",
		} {
			if v := got.header.Get(k); v != want {
				t.Errorf("%s: %q, want %q", k, v, want)
			}
		}
	}
	g.err, g.standing.Tokens = &keys.QuotaError{Text: "the key has used its 60 requests of this minute", After: 1500 * time.Millisecond}, nil
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, true))
	if a := readAnswer(t, got.body); got.status != 429 || a.err.Type != "rate_limit_error" || a.err.Code != "quota_exceeded" || got.header.Get("Retry-After") != "2" ||
		got.header.Get("X-Ratelimit-Limit-Tokens") != "" || got.header.Get(headerShouldRetry) != "" {
		t.Error(got)
	}
}

// What a client that leaves in the middle has taken is told all the same.
func TestUsageOfClientsThatLeave(t *testing.T) {
	f, err := sim.ParseFault("stall:3")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{told: make(chan [2]int, 1)}
	rows := make(chan audit.Row, 1)
	p := newPeer(t, "one", sim.Options{Faults: []sim.Fault{f}}, func(o *DoorOptions) {
		o.Quota, o.Audit, o.Self = g, func(r audit.Row) { rows <- r }, "me"
	})
	r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url+"/v1/chat/completions", strings.NewReader(chatBody(testModel, true)))
	r.Header.Set("Authorization", "Bearer "+testKey)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	events := newEventReader(resp.Body, maxEvent)
	for range 4 { // the role, and three tokens
		if _, err := events.next(); err != nil {
			t.Fatal(err)
		}
	}
	resp.Body.Close()
	used := <-g.told
	if used[0] == 0 || used[1] != 3 {
		t.Errorf("used %v", used)
	}
	if row := <-rows; row.Status != 499 || row.Prompt != used[0] || row.Completion != 3 || row.Reason != "" || row.Served != testModel || row.Entrance != "me" || row.FirstMS <= 0 {
		t.Errorf("%+v", row)
	}
}

// What the engine waits with before its answer is not there for an embedding: the client
// that leaves frees it all the same, and what it used is reckoned.
func TestClientLeavesAnEmbedding(t *testing.T) {
	g := &gate{told: make(chan [2]int, 1)}
	p := newKinds(t, func(o *DoorOptions) { o.Quota = g })
	asked, closed := make(chan struct{}), make(chan time.Time, 1)
	p.client = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		close(asked)
		<-r.Context().Done()
		closed <- time.Now()
		return nil, r.Context().Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", p.url+"/v1/embeddings", strings.NewReader(`{"model":"vectors","input":"a"}`))
	r.Header.Set("Authorization", "Bearer "+testKey)
	go http.DefaultTransport.RoundTrip(r)
	<-asked
	began := time.Now()
	leave()
	if took := (<-closed).Sub(began); took > 100*time.Millisecond {
		t.Errorf("the engine's request was closed after %v", took)
	}
	if used := <-g.told; used != [2]int{len(`{"model":"vectors","input":"a"}`) / 4, 0} {
		t.Errorf("used %v", used)
	}
}
