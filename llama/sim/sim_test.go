package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestTextSurvivesItsIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for _, part := range rapid.SliceOf(rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom(append(controls[:], marks[:]...)),
			rapid.Map(rapid.IntRange(firstWord, VocabSize-1), Piece),
		)).Draw(t, "parts") {
			b.WriteString(part)
		}
		text := b.String()
		for _, control := range []bool{false, true} {
			if got := Detokenize(Tokenize(text, false, control)); got != text {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}

func TestVocabulary(t *testing.T) {
	for id := range VocabSize {
		p := Piece(id)
		if p == "" {
			t.Fatalf("token %d has no text", id)
		}
		if id >= firstWord {
			if ids := Tokenize(p, false, true); len(ids) != 1 || ids[0] != id {
				t.Errorf("token %d is %q, which is read as %v", id, p, ids)
			}
		}
	}
}

// What is answered is what is computed token by token, and can be gone on with
// from any place in it.
func TestAnswerGoesOnFromAnyPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := rapid.SliceOfN(rapid.IntRange(0, VocabSize-1), 0, 40).Draw(t, "prompt")
		seed := rapid.Uint64().Draw(t, "seed")
		whole, _ := Answer(prompt, seed, 50, true)
		if len(whole) != 50 {
			t.Fatalf("%d tokens", len(whole))
		}
		cut := rapid.IntRange(0, 50).Draw(t, "cut")
		rest, _ := Answer(append(append([]int{}, prompt...), whole[:cut]...), seed, 50-cut, true)
		for i, id := range append(append([]int{}, whole[:cut]...), rest...) {
			if id != whole[i] || id == tokenEOS || id < firstWord {
				t.Fatalf("token %d is %d, was %d", i, id, whole[i])
			}
		}
		if cut < 50 && Next(append(append([]int{}, prompt...), whole[:cut]...), seed, true) != whole[cut] {
			t.Fatal("Next and Answer differ")
		}
	})
}

func TestSeedAndPromptMatter(t *testing.T) {
	ids := Tokenize("hello", true, true)
	a, _ := Answer(ids, 1, 20, true)
	b, _ := Answer(ids, 2, 20, true)
	c, _ := Answer(append(ids, firstWord), 1, 20, true)
	if Detokenize(a) == Detokenize(b) || Detokenize(a) == Detokenize(c) {
		t.Fatalf("the same answer to different questions: %q", Detokenize(a))
	}
	ended := 0
	for seed := range uint64(200) {
		if _, eos := Answer(ids, seed, 100, false); eos {
			ended++
		}
	}
	if ended < 100 || ended == 200 {
		t.Errorf("%d of 200 answers end by themselves within 100 tokens", ended)
	}
}

func start(t *testing.T, opt Options) (*Server, string) {
	t.Helper()
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("Run: %v", err)
	}
	return s, "http://" + s.Addr().String()
}

func post(t *testing.T, url, body string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true // see TestConnectionEndsAfterAStream
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// content is the text of an answer of any of the routes, streamed or not.
func content(t *testing.T, answer string) (text string, done bool) {
	t.Helper()
	type shape struct {
		Content *string
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Delta   struct{ Content string }
		}
	}
	read := func(s string) {
		var a shape
		if err := json.Unmarshal([]byte(s), &a); err != nil {
			t.Fatalf("%v in %q", err, s)
		}
		if a.Content != nil {
			text += *a.Content
		}
		for _, c := range a.Choices {
			text += c.Text + c.Message.Content + c.Delta.Content
		}
	}
	if !strings.HasPrefix(answer, "data: ") {
		read(answer)
		return text, true
	}
	for e := range strings.SplitSeq(answer, "\n\n") {
		switch payload := strings.TrimPrefix(e, "data: "); payload {
		case "", ":":
		case "[DONE]":
			done = true
		default:
			read(payload)
		}
	}
	return text, done
}

func TestEveryRouteSaysTheSame(t *testing.T) {
	_, url := start(t, Options{Seed: 7, Slots: 2})
	ids := Tokenize("<|user|>hello<|assistant|>", true, true)
	answer, _ := Answer(ids, 7, 12, true)
	want := Detokenize(answer)
	asIDs, _ := json.Marshal(ids)
	const rest = `,"max_tokens":12,"temperature":0,"ignore_eos":true`
	for name, q := range map[string][2]string{
		"chat":       {"/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}]` + rest},
		"completion": {"/v1/completions", `{"prompt":"<|user|>hello<|assistant|>"` + rest},
		"ids":        {"/v1/completions", `{"prompt":` + string(asIDs) + rest},
		"native":     {"/completion", `{"prompt":` + string(asIDs) + rest},
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			status, body, err := post(t, url+q[0], q[1]+stream+"}")
			if err != nil || status != 200 {
				t.Fatalf("%s%s: %d %q %v", name, stream, status, body, err)
			}
			got, done := content(t, body)
			if got != want || !done && name != "native" {
				t.Errorf("%s%s: %q, want %q (done %v)", name, stream, got, want, done)
			}
		}
	}
}

func TestPrefillIsRepeated(t *testing.T) {
	_, url := start(t, Options{})
	const q = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"So it"}],"max_tokens":3,"ignore_eos":true`
	answer, _ := Answer(Tokenize("<|user|>a<|assistant|>So it", true, true), 0, 3, true)
	want := "So it" + Detokenize(answer)
	for _, end := range []string{"}", `,"stream":true}`} {
		_, body, err := post(t, url+"/v1/chat/completions", q+end)
		if got, _ := content(t, body); got != want || err != nil {
			t.Errorf("%q, want %q (%v)", got, want, err)
		}
	}
}

func TestStopStrings(t *testing.T) {
	_, url := start(t, Options{})
	ids := Tokenize("go", true, true)
	answer, _ := Answer(ids, 0, 10, true)
	whole := Detokenize(answer)
	for _, stop := range []string{whole[3:9], whole[len(whole)-4:], "nowhere", whole[:1]} {
		quoted, _ := json.Marshal(stop)
		q := `{"prompt":"go","max_tokens":10,"ignore_eos":true,"stop":` + string(quoted)
		want, _, _ := strings.Cut(whole, stop)
		for _, end := range []string{"}", `,"stream":true}`} {
			_, body, err := post(t, url+"/v1/completions", q+end)
			if got, _ := content(t, body); got != want || err != nil {
				t.Errorf("stop %q: %q, want %q (%v)", stop, got, want, err)
			}
		}
	}
}

func TestContextIsTheLimit(t *testing.T) {
	_, url := start(t, Options{Context: 16})
	status, body, _ := post(t, url+"/completion", `{"prompt":[1,20,21,22],"ignore_eos":true}`)
	var a struct {
		Predicted int    `json:"tokens_predicted"`
		Stop      string `json:"stop_type"`
	}
	json.Unmarshal([]byte(body), &a)
	if status != 200 || a.Predicted != 12 || a.Stop != "limit" {
		t.Errorf("%d %+v", status, a)
	}
}

func TestFaults(t *testing.T) {
	s, url := start(t, Options{Slots: 4})
	const q = `{"messages":[{"role":"user","content":"hello"}],"max_tokens":9,"ignore_eos":true`
	events := func(body string) int {
		return strings.Count(body, `"content":" `) + strings.Count(body, `"content":"`+".")
	}
	for _, c := range []struct {
		fault  string
		stream bool
		check  func(status int, body string, err error) bool
	}{
		{"refuse", false, func(status int, body string, err error) bool {
			return status == 503 && strings.Contains(body, "Loading model")
		}},
		{"refuse", true, func(status int, body string, err error) bool { return status == 503 }},
		{"error", true, func(status int, body string, err error) bool {
			return status == 500 && strings.Contains(body, "server_error")
		}},
		{"drop", false, func(status int, body string, err error) bool { return status == 0 && err != nil }},
		{"die:3", true, func(status int, body string, err error) bool {
			return status == 200 && err != nil && !strings.Contains(body, "[DONE]") && events(body) <= 3
		}},
		{"die", false, func(status int, body string, err error) bool { return status == 200 && err != nil }},
		{"end:3", true, func(status int, body string, err error) bool {
			return status == 200 && err == nil && body != "" && !strings.Contains(body, "[DONE]")
		}},
		{"end", false, func(status int, body string, err error) bool { return status == 200 && err == nil && body == "" }},
		{"wrong:2", true, func(status int, body string, err error) bool {
			return status == 200 && strings.Contains(body, "\x00\xff")
		}},
		{"error:3", true, func(status int, body string, err error) bool {
			return status == 200 && err == nil && strings.HasSuffix(body, `data: {"error":{"code":500,"message":"Compute error.","type":"server_error"}}`+"\n\n") && events(body) <= 3
		}},
		{"error:3", false, func(status int, body string, err error) bool {
			return status == 500 && strings.Contains(body, "server_error")
		}},
		{"wrong", false, func(status int, body string, err error) bool {
			return status == 200 && !json.Valid([]byte(body))
		}},
	} {
		set, _ := json.Marshal([]string{c.fault + "*1"})
		if status, body, err := post(t, url+"/sim/faults", string(set)); status != 200 || err != nil {
			t.Fatalf("%s: %d %q %v", c.fault, status, body, err)
		}
		end := "}"
		if c.stream {
			end = `,"stream":true}`
		}
		status, body, err := post(t, url+"/v1/chat/completions", q+end)
		if !c.check(status, body, err) {
			t.Errorf("%s, stream %v: %d %q %v", c.fault, c.stream, status, body, err)
		}
		// It struck once; the next one is whole.
		status, body, err = post(t, url+"/v1/chat/completions", q+end)
		if status != 200 || err != nil {
			t.Errorf("after %s: %d %q %v", c.fault, status, body, err)
		}
	}
	st := s.State()
	if st.Struck != 12 || st.Finished != 12 || st.Active != 0 || st.Waiting != 0 || len(st.Faults) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestStallAndLeave(t *testing.T) {
	s, url := start(t, Options{Faults: []Fault{{Kind: FaultStall, After: 2}}})
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		body := `{"prompt":"hi","ignore_eos":true}`
		if stream {
			body = `{"prompt":"hi","ignore_eos":true,"stream":true}`
		}
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
		answered := make(chan error, 1)
		if stream {
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for range 4 { // two events and their blank lines
				if _, err := lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			close(answered)
		} else {
			go func() { _, err := http.DefaultClient.Do(r); answered <- err }()
		}
		await(t, s, func(st State) bool { return st.Active == 1 })
		left, before := time.Now(), s.State().Cancelled
		cancel()
		await(t, s, func(st State) bool { return st.Cancelled > before })
		if st := s.State(); st.Active != 0 || st.CancelledAt.Before(left) {
			t.Errorf("left at %v: %+v", left, st)
		}
		<-answered
	}
	if st := s.State(); st.Cancelled != 2 {
		t.Errorf("%+v", st)
	}
}

func await(t *testing.T, s *Server, ok func(State) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Wait(ctx, ok); err != nil {
		t.Fatal(err)
	}
}

// Time is as the rates say, slots are shared out in the order of asking, and a
// silent stream is pinged.
func TestSpeedSlotsAndPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Slots: 2, PrefillRate: 100, DecodeRate: 10})
		if err != nil {
			t.Fatal(err)
		}
		h := s.Handler()
		prompt := strings.Repeat("x", 199) // with <s> 200 ids: 2 s, then 10 tokens: 1 s
		run := func(extra string) (time.Duration, string) {
			began := time.Now()
			w := httptest.NewRecorder()
			body := `{"prompt":"` + prompt + `","max_tokens":10,"ignore_eos":true,"cache_prompt":false` + extra + `}`
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body)).WithContext(t.Context()))
			return time.Since(began), w.Body.String()
		}
		var wg sync.WaitGroup
		took := make([]time.Duration, 4)
		for i := range took {
			wg.Add(1)
			go func() { defer wg.Done(); took[i], _ = run("") }()
			synctest.Wait()
		}
		wg.Wait()
		for i, want := range []time.Duration{3 * time.Second, 3 * time.Second, 6 * time.Second, 6 * time.Second} {
			if took[i] != want {
				t.Errorf("request %d took %v, want %v", i, took[i], want)
			}
		}
		// Two answers take a slot each.
		if long, body := run(`,"n":2`); long != 3*time.Second || strings.Count(body, `"text":`) != 2 {
			t.Errorf("two answers took %v: %s", long, body)
		}
		if _, body := run(`,"stream":true,"sse_ping_interval":1`); !strings.HasPrefix(body, ":\n\n") {
			t.Errorf("no ping in two seconds of prefill: %.100q", body)
		}
	})
}

// Each slot that is busy slows the others, in reading and in writing.
func TestSlowdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Slots: 4, PrefillRate: 100, DecodeRate: 10, Batch: 100, Slowdown: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		// 100 ids: 1 s alone, then 10 tokens: 1 s.
		body := `{"prompt":"` + strings.Repeat("x", 99) + `","max_tokens":10,"ignore_eos":true,"cache_prompt":false}`
		for _, c := range []struct {
			busy int
			want time.Duration
		}{{1, 2 * time.Second}, {2, 3 * time.Second}, {4, 5 * time.Second}} {
			// The last one begins beside all the others, and outlasts them a little.
			var wg sync.WaitGroup
			var last time.Duration
			for i := range c.busy {
				wg.Go(func() {
					began := time.Now()
					s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body)).WithContext(t.Context()))
					if i == c.busy-1 {
						last = time.Since(began)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			if last > c.want || last < c.want*3/4 {
				t.Errorf("%d busy: the last took %v, want %v less what it had to itself", c.busy, last, c.want)
			}
		}
	})
}

// A prompt is told of batch by batch, also when it is read slowly.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{PrefillRate: 100, Batch: 64})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		body := `{"prompt":"` + strings.Repeat("x", 149) + `","max_tokens":1,"stream":true,"return_progress":true,"timings_per_token":true}`
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body)).WithContext(t.Context()))
		var got []int
		for e := range strings.SplitSeq(w.Body.String(), "\n\n") {
			var a struct {
				Progress *struct {
					Total, Processed int
					TimeMS           int `json:"time_ms"`
				} `json:"prompt_progress"`
				Timings struct {
					PromptN int `json:"prompt_n"`
				}
			}
			if json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &a) != nil || a.Progress == nil {
				continue
			}
			p := a.Progress
			if p.Total != 150 || p.TimeMS != 10*p.Processed || a.Timings.PromptN != p.Processed {
				t.Errorf("%s", e)
			}
			got = append(got, p.Processed)
		}
		if !slices.Equal(got, []int{0, 64, 128, 150}) {
			t.Errorf("%v of %s", got, w.Body)
		}
	})
}

func TestImagesCostAndMatter(t *testing.T) {
	_, url := start(t, Options{Images: true})
	ask := func(image string) (tokens int, text string) {
		status, body, err := post(t, url+"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"see"}`+image+`]}],"max_tokens":8,"ignore_eos":true}`)
		if err != nil || status != 200 {
			t.Fatal(status, body, err)
		}
		var a struct {
			Usage struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		json.Unmarshal([]byte(body), &a)
		text, _ = content(t, body)
		return a.Usage.Prompt, text
	}
	image := func(data string) string {
		return `,{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}`
	}
	without, _ := ask("")
	one, text := ask(image(seen))
	two, _ := ask(image(seen) + image(seen))
	_, other := ask(image(base64.StdEncoding.EncodeToString([]byte("GIF89a"))))
	if one != without+ImageTokens || two != one+ImageTokens || text == other {
		t.Errorf("%d tokens without, %d with one, %d with two; %q and %q", without, one, two, text, other)
	}
}

// Texts with words in common are near each other, and ranks go by that.
func TestEmbeddings(t *testing.T) {
	words := func(s string) []float64 { return Embed(Tokenize(s, true, false), 64) }
	dot := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	a, b, c := words(" baba bebe bibi"), words(" baba bebe bobo"), words(" zuzu zozo zizi")
	if d := dot(a, a); d < 0.999 || d > 1.001 {
		t.Errorf("a vector of length %v", d)
	}
	if dot(a, b) < dot(a, c)+0.2 {
		t.Errorf("near %v, far %v", dot(a, b), dot(a, c))
	}
	_, url := start(t, Options{Reranking: true, Width: 32})
	_, body, err := post(t, url+"/v1/rerank", `{"query":" baba bebe","documents":[" zuzu zozo"," baba bebe bobo"," baba zuzu"]}`)
	var got struct{ Results []struct{ Index int } }
	if json.Unmarshal([]byte(body), &got) != nil || err != nil || len(got.Results) != 3 || got.Results[0].Index != 1 || got.Results[2].Index != 0 {
		t.Errorf("%s %v", body, err)
	}
	_, floats, _ := post(t, url+"/v1/embeddings", `{"input":"hello"}`)
	_, packed, _ := post(t, url+"/v1/embeddings", `{"input":"hello","encoding_format":"base64"}`)
	var f struct {
		Data []struct{ Embedding []float32 }
	}
	var p struct{ Data []struct{ Embedding []byte } }
	if json.Unmarshal([]byte(floats), &f) != nil || json.Unmarshal([]byte(packed), &p) != nil || len(f.Data[0].Embedding) != 32 {
		t.Fatalf("%s %s", floats, packed)
	}
	values := make([]float32, 32)
	if err := binary.Read(bytes.NewReader(p.Data[0].Embedding), binary.LittleEndian, values); err != nil || !slices.Equal(values, f.Data[0].Embedding) {
		t.Errorf("%v as floats, %v packed (%v)", f.Data[0].Embedding, values, err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.sock")
	for range 2 { // the second finds the first one's socket
		l, err := net.Listen("unix", path)
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		}
		s, err := New(Options{Listen: path})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-s.Ready()
		client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}}}
		resp, err := client.Get("http://engine/health")
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// As llama-server, it closes a connection after a stream without a word.
func TestConnectionEndsAfterAStream(t *testing.T) {
	_, url := start(t, Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	const body = `{"prompt":"hi","max_tokens":2,"stream":true}`
	io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: e\r\nContent-Length: 44\r\n\r\n"+body)
	all, err := io.ReadAll(c)
	if err != nil || !bytes.HasSuffix(all, []byte("data: [DONE]\n\n\r\n0\r\n\r\n")) || bytes.Contains(all, []byte("Connection: close")) {
		t.Errorf("%v %q", err, all)
	}
}

func TestValidate(t *testing.T) {
	for want, o := range map[string]Options{
		"slots":   {Slots: -1},
		"context": {Context: 3},
		"prefill": {PrefillRate: -1},
		"decode":  {DecodeRate: -2},
		"model":   {Model: "a\nb"},
		"batch":   {Batch: -1},
		"width":   {Width: 1 << 20},
		"max inp": {MaxInput: -1},
		"scripts": {Scripts: []Script{{}}},
		"fault":   {Faults: []Fault{{Kind: "explode"}}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not name %q", o, err, want)
		}
	}
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestPortTaken(t *testing.T) {
	s, _ := start(t, Options{})
	other, err := New(Options{Listen: s.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); err == nil {
		t.Error("two engines at one port")
	}
}

func FuzzParseFault(f *testing.F) {
	for _, s := range []string{"refuse", "drop*2", "die:5", "stall:0*1", "wrong:-1", "end:", "*", "die:5*0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fault, err := ParseFault(s)
		if err != nil {
			return
		}
		again, err := ParseFault(fault.String())
		if err != nil || again != fault {
			t.Fatalf("%q is %+v, written %q, read %+v, %v", s, fault, fault.String(), again, err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	s, err := New(Options{Context: 64, Slots: 2, Width: 4, Embeddings: true, Reranking: true, Images: true})
	if err != nil {
		f.Fatal(err)
	}
	h := s.Handler()
	for _, q := range questions() {
		if q.Body != "" && len(q.Body) < 1000 {
			f.Add(q.Path, q.Body)
		}
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " ?#%\x00\r\n\x7f") || path == "/sim/faults" {
			return
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.URL.Path = path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Body.Len() == 0 {
			t.Fatalf("%s %q: %d and nothing else", path, body, w.Code)
		}
		if w.Header().Get("Content-Type") != "text/event-stream" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %q: %q is not JSON", path, body, w.Body)
		}
	})
}
