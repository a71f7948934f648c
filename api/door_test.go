package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/llama/sim"
	"relay/scheduler"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden holds what people and programs read to what it was.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is not what it was (-update if it should not be):\n%s", path, got)
	}
}

func TestEveryReasonHasItsStatus(t *testing.T) {
	var b strings.Builder
	kinds := []string{typeInvalid, typeAuth, typePermission, typeRate, typeServer}
	for _, why := range scheduler.Reasons() {
		v, ok := verdictOf(why)
		if !ok || v.status < 400 || v.status > 599 || !slices.Contains(kinds, v.kind) || v.retry == "" {
			t.Errorf("%s: %+v, in the table: %v", why, v, ok)
		}
		if v.status == http.StatusServiceUnavailable && v.after == 0 {
			t.Errorf("%s: 503 without a Retry-After", why)
		}
		fmt.Fprintf(&b, "%-26s %d %-22s %-9s %v\n", why, v.status, v.kind, v.retry, v.after)
	}
	if _, ok := verdictOf("no such reason"); ok {
		t.Error("an unknown reason is in the table")
	}
	golden(t, "reasons.golden", b.String())
}

// TestErrorBodies is every refusal of the entrance's own, as it goes out.
func TestErrorBodies(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.MaxBody = 1000 })
	noKeys := newPeer(t, "two", sim.Options{}, func(o *DoorOptions) { o.Keys = testKeys("") })
	empty := newPeer(t, "three", sim.Options{}, nil)
	empty.sched.models = nil
	many := newPeer(t, "four", sim.Options{}, nil)
	for i := range 25 {
		many.sched.models = append(many.sched.models, scheduler.ServedModel{UID: fmt.Sprint("u", i), Name: fmt.Sprintf("model-%02d", i)})
	}
	const chat, models = "/v1/chat/completions", "/v1/models"
	deep := `{"model":"tiny","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`
	var b strings.Builder
	for _, c := range []struct {
		name, method string
		peer         *testPeer
		path, body   string
		header       []string
	}{
		{"no key", "GET", p, models, "", []string{"Authorization", ""}},
		{"key in another scheme", "GET", p, models, "", []string{"Authorization", "Basic abc"}},
		{"wrong key", "GET", p, models, "", []string{"Authorization", "Bearer rk-wrong"}},
		{"no key exists", "GET", noKeys, models, "", []string{"Authorization", ""}},
		{"no key exists, one given", "GET", noKeys, models, "", nil},
		{"no route", "GET", p, "/v1/nosuch", "", nil},
		{"no route, root", "GET", p, "/", "", nil},
		{"no route, two slashes", "GET", p, "//v1/models", "", nil},
		{"no route, slash behind", "GET", p, "/v1/models/", "", nil},
		{"wrong method", "GET", p, chat, "", nil},
		{"wrong method, models", "DELETE", p, models + "/tiny", "", nil},
		{"wrong method, health", "POST", p, "/healthz", "", nil},
		{"options", "OPTIONS", p, chat, "", nil},
		{"foreign host", "GET", p, models, "", []string{"Host", "evil.example"}},
		{"cross-site post", "POST", p, chat, "{}", []string{"Sec-Fetch-Site", "cross-site"}},
		{"foreign origin", "POST", p, chat, "{}", []string{"Origin", "https://evil.example"}},
		{"unknown model", "POST", p, chat, `{"model":"nosuch","messages":[{"role":"user","content":"a"}]}`, nil},
		{"unknown model, none there", "POST", empty, chat, `{"model":"nosuch","messages":[{"role":"user","content":"a"}]}`, nil},
		{"unknown model, many there", "POST", many, chat, `{"model":"nosuch","messages":[{"role":"user","content":"a"}]}`, nil},
		{"unknown model, shown", "GET", p, models + "/no/such", "", nil},
		{"unknown model, markup", "POST", p, chat, `{"model":"<b>\u0000\n","messages":[{"role":"user","content":"a"}]}`, nil},
		{"empty", "POST", p, chat, "", nil},
		{"not json", "POST", p, chat, "hello", nil},
		{"json with more behind", "POST", p, chat, `{"model":"tiny"}{}`, nil},
		{"a list", "POST", p, chat, `[1]`, nil},
		{"not utf-8", "POST", p, chat, "{\"model\":\"tiny\",\"x\":\"\xff\"}", nil},
		{"too deep", "POST", p, chat, deep, nil},
		{"no model", "POST", p, chat, `{"messages":[{"role":"user","content":"a"}]}`, nil},
		{"model is null", "POST", p, chat, `{"model":null}`, nil},
		{"model is a number", "POST", p, chat, `{"model":5}`, nil},
		{"model is empty", "POST", p, chat, `{"model":""}`, nil},
		{"model is long", "POST", p, chat, `{"model":"` + strings.Repeat("m", 600) + `"}`, nil},
		{"model twice", "POST", p, chat, `{"model":"tiny","model":"tiny"}`, nil},
		{"model twice, hidden", "POST", p, chat, `{"model":"tiny","\u006dodel":"other"}`, nil},
		{"stream twice", "POST", p, chat, `{"stream":true,"model":"tiny","stream":false}`, nil},
		{"too large", "POST", p, chat, `{"model":"tiny","x":"` + strings.Repeat("y", 2000) + `"}`, nil},
		{"compressed", "POST", p, chat, `{}`, []string{"Content-Encoding", "gzip"}},
		{"image from elsewhere", "POST", p, chat, `{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://10.0.0.1/x"}}]}]}`, nil},
	} {
		got := send(t, c.method, c.peer.url+c.path, c.body, append([]string{headerRequestID, "golden"}, c.header...)...)
		fmt.Fprintf(&b, "== %s\n%d", c.name, got.status)
		for _, k := range []string{"Content-Type", "Allow", "Retry-After", "Www-Authenticate", headerRequestID, headerAttempts, headerPeer} {
			if v := got.header.Get(k); v != "" {
				fmt.Fprintf(&b, " %s: %s;", k, v)
			}
		}
		fmt.Fprintf(&b, "\n%s", strings.ReplaceAll(got.body, strings.TrimPrefix(c.peer.url, "http://"), "ADDRESS"))
		for k := range got.header {
			if strings.HasPrefix(k, "Access-Control") {
				t.Errorf("%s: %s", c.name, k)
			}
		}
		var e struct{ Error *apiError }
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Error == nil || e.Error.Message == "" || got.err != nil {
			t.Errorf("%s: %v is not an error of OpenAI's shape", c.name, got)
		}
		if strings.Contains(got.body, testKey) {
			t.Errorf("%s: the key came back", c.name)
		}
	}
	golden(t, "errors.golden", b.String())
}

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		listen, method, host string
		header               []string
		ok                   bool
	}{
		{"127.0.0.1:8420", "GET", "127.0.0.1:8420", nil, true},
		{"127.0.0.1:8420", "GET", "localhost:8420", nil, true},
		{"127.0.0.1:8420", "GET", "LOCALHOST", nil, true},
		{"127.0.0.1:8420", "GET", "localhost.:9000", nil, true}, // through a tunnel
		{"127.0.0.1:8420", "GET", "127.8.9.1:1", nil, true},
		{"127.0.0.1:8420", "GET", "[::1]:8420", nil, true},
		{"127.0.0.1:8420", "GET", "[::1]", nil, true},
		{"[::1]:8420", "GET", "[::1]:8420", nil, true},
		{"localhost:8420", "GET", "localhost:8420", nil, true},
		{"", "GET", "localhost", nil, true},
		{"127.0.0.1:8420", "GET", "", nil, false},
		{"127.0.0.1:8420", "GET", "evil.example:8420", nil, false},
		{"127.0.0.1:8420", "GET", "localhost.evil.example", nil, false},
		{"127.0.0.1:8420", "GET", "127.0.0.1.evil.example", nil, false},
		{"127.0.0.1:8420", "GET", "evil.example@127.0.0.1", nil, false},
		{"127.0.0.1:8420", "GET", "192.168.1.2:8420", nil, false},
		{"127.0.0.1:8420", "GET", "[::2]:8420", nil, false},
		{"127.0.0.1:8420", "GET", "2130706433", nil, false},
		{"192.168.1.2:8420", "GET", "anything", nil, true}, // its keys are its guard
		{"0.0.0.0:8420", "POST", "anything", []string{"Origin", "https://evil.example"}, true},
		{":8420", "GET", "anything", nil, true},

		{"127.0.0.1:8420", "POST", "localhost:8420", nil, true},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", "http://localhost:8420"}, true},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Sec-Fetch-Site", "none"}, true},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", "http://localhost:3000"}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", "http://127.0.0.1:8420"}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", "https://evil.example"}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", "null"}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", ""}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Origin", "http://localhost:8420", "Origin", "https://evil.example"}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"127.0.0.1:8420", "POST", "localhost:8420", []string{"Sec-Fetch-Site", "same-site"}, false},
		{"127.0.0.1:8420", "DELETE", "localhost:8420", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"127.0.0.1:8420", "OPTIONS", "localhost:8420", []string{"Origin", "https://evil.example"}, false},
		// A page may load it, and read nothing of it.
		{"127.0.0.1:8420", "GET", "localhost:8420", []string{"Sec-Fetch-Site", "cross-site"}, true},
	} {
		r := httptest.NewRequest(c.method, "/v1/models", nil)
		r.Host = c.host
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Add(c.header[i], c.header[i+1])
		}
		no := newGuard(c.listen).check(r)
		if (no == nil) != c.ok || no != nil && no.reason != scheduler.ForbiddenOrigin {
			t.Errorf("%+v: %v", c, no)
		}
	}
}

func TestModels(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	p.sched.models = []scheduler.ServedModel{
		{UID: "u3", Name: "zeta", Created: 3, Kind: "embed", Aliases: []string{"z"}}, {UID: "u1", Name: "org/alpha", Context: 8192, Created: 1}, {UID: "u2", Name: "zeta~u2xx", Created: 2},
	}
	got := send(t, "GET", p.url+"/v1/models", "")
	const want = `{"object":"list","data":[` +
		`{"id":"org/alpha","object":"model","created":1,"owned_by":"relay","uid":"u1","kind":"chat","context_length":8192,"max_output_tokens":8192},` +
		`{"id":"zeta","object":"model","created":3,"owned_by":"relay","uid":"u3","aliases":["z"],"kind":"embed","tools":false,"images":false},` +
		`{"id":"zeta~u2xx","object":"model","created":2,"owned_by":"relay","uid":"u2","kind":"chat"}]}` + "\n"
	if got.status != 200 || got.body != want {
		t.Error(got)
	}
	for asked, id := range map[string]string{"zeta": "zeta", "org/alpha": "org/alpha", "org%2Falpha": "org/alpha", "u1": "org/alpha", "z": "zeta"} {
		if got := send(t, "GET", p.url+"/v1/models/"+asked, ""); got.status != 200 || !strings.HasPrefix(got.body, `{"id":"`+id+`"`) {
			t.Errorf("%s: %v", asked, got)
		}
	}
	p.sched.set(func() { p.sched.models = nil })
	if got := send(t, "GET", p.url+"/v1/models", ""); got.body != `{"object":"list","data":[]}`+"\n" {
		t.Error(got)
	}
	if got := send(t, "HEAD", p.url+"/v1/models", ""); got.status != 200 || got.body != "" {
		t.Error(got)
	}
}

func TestHealth(t *testing.T) {
	var notReady atomic.Pointer[error]
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.Ready = func() error { return *notReady.Load() } })
	for _, c := range []struct {
		err    error
		path   string
		status int
		body   string
	}{
		{nil, "/healthz", 200, `{"status":"ok"}`},
		{nil, "/readyz", 200, `{"status":"ready"}`},
		{errors.New("no peer is \"up\""), "/healthz", 200, `{"status":"ok"}`},
		{errors.New("no peer is \"up\""), "/readyz", 503, `{"message":"no peer is \"up\"","status":"not_ready"}`},
	} {
		notReady.Store(&c.err)
		got := send(t, "GET", p.url+c.path, "", "Authorization", "")
		if got.status != c.status || got.body != c.body+"\n" {
			t.Errorf("%v", got)
		}
	}
}

// The log has a line per request with what is needed to find it, and nothing
// that was said.
func TestAccessLog(t *testing.T) {
	var log logged
	entrance, serving := newMesh(t, []sim.Options{{Faults: []sim.Fault{{Kind: sim.FaultDrop}}}, {}}, func(o *DoorOptions) { o.Log = log.logger() })
	const secret = "what only the two know"
	body := `{"model":"tiny","stream":true,"messages":[{"role":"user","content":"` + secret + `"}],"max_tokens":5,"ignore_eos":true}`
	got := send(t, "POST", entrance.url+"/v1/chat/completions", body, headerRequestID, "find-me")
	answer := readAnswer(t, got.body)
	if !answer.done {
		t.Fatal(got)
	}
	send(t, "POST", entrance.url+"/v1/chat/completions", `{"model":"tiny", "`+secret+`"`, headerRequestID, "find-me-too")
	send(t, "GET", entrance.url+"/v1/models", "", "Authorization", "Bearer rk-"+secret)
	send(t, "GET", entrance.url+"/"+strings.Repeat("x", 10000), "")
	entrance.stopDoor()
	serving[1].stopHop()
	lines := map[string]map[string]any{}
	for line := range strings.Lines(log.String()) {
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes", len(line))
		}
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		lines[fmt.Sprint(l["msg"], " ", l["request_id"])] = l
	}
	for _, leak := range []string{secret, answer.text, testKey} {
		if strings.Contains(log.String(), leak) {
			t.Errorf("the log has %q", leak)
		}
	}
	check := func(which string, want map[string]any) {
		l := lines[which]
		for k, v := range want {
			if fmt.Sprint(l[k]) != fmt.Sprint(v) {
				t.Errorf("%s: %s is %v, want %v", which, k, l[k], v)
			}
		}
	}
	check("request find-me", map[string]any{
		"method": "POST", "route": "/v1/chat/completions", "status": 200, "key_id": "testkey0", "model": "tiny", "peer": "peer1", "served": "tiny", "attempts": 2, "events": 7, "level": "INFO", "completion_tokens": 5,
	})
	if l := lines["request find-me"]; l["total_ms"].(float64) <= 0 || l["first_ms"].(float64) <= 0 {
		t.Errorf("%v", l)
	}
	check("hop find-me", map[string]any{"from": "entrance", "key_id": "testkey0", "model": testUID, "status": 200})
	check("request find-me-too", map[string]any{"status": 400, "reason": "invalid_request"})
}

func TestRequestIDs(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	for _, c := range []struct {
		given string
		kept  bool
	}{
		{"a", true}, {"req_1:x-y.z", true}, {strings.Repeat("x", 128), true},
		{"", false}, {strings.Repeat("x", 129), false}, {"a b", false}, {"a\"b", false}, {"é", false}, {"a,b", false},
	} {
		got := send(t, "GET", p.url+"/v1/models", "", headerRequestID, c.given)
		id := got.header.Get(headerRequestID)
		if (id == c.given) != c.kept || !saneID(id) {
			t.Errorf("%q became %q", c.given, id)
		}
	}
}

// When relay itself fails there is still an answer, with a reference that the
// log has, and not what went wrong.
func TestPanic(t *testing.T) {
	var log logged
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) { o.Log = log.logger() })
	p.client = roundTripFunc(func(*http.Request) (*http.Response, error) { panic("a secret of the code") })
	got := send(t, "POST", p.url+"/v1/chat/completions", chatBody(testModel, false))
	a := readAnswer(t, got.body)
	if got.status != 500 || a.err == nil || a.err.Code != "internal" || !strings.Contains(a.err.Message, got.header.Get(headerRequestID)) {
		t.Error(got)
	}
	if strings.Contains(got.body, "secret") || !strings.Contains(log.String(), "a secret of the code") {
		t.Errorf("body %q, log %q", got.body, log.String())
	}
	if err := p.sched.lastEnd(); !errors.Is(err, errPanicked) {
		t.Errorf("the route ended with %v", err)
	}
}

// A body that is too slow is refused and holds nothing, whether it was wanted
// or not.
func TestSlowBodies(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
		o.Deadlines.ReadBody = 50 * time.Millisecond
		o.Deadlines.ReadHeader = 50 * time.Millisecond
	})
	for key, want := range map[string][2]string{
		testKey: {"HTTP/1.1 408 ", `"code":"timeout"`},
		"wrong": {"HTTP/1.1 401 ", `"code":"invalid_api_key"`},
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{\"mod", key)
		if b, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(b, []byte(want[0])) || !bytes.Contains(b, []byte(want[1])) {
			t.Errorf("%v %q", err, b)
		}
	}
	p.stopDoor()
	if held := p.door.held.used.Load(); held != 0 {
		t.Errorf("%d bytes are held for ever", held)
	}
}

// The bytes of all bodies together are bounded; who comes too late is told so.
func TestBodiesAreBoundedTogether(t *testing.T) {
	p := newPeer(t, "one", sim.Options{Slots: 8, Faults: []sim.Fault{{Kind: sim.FaultStall}}}, func(o *DoorOptions) { o.MaxHeld = 1 << 20 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := `{"model":"tiny","user":"` + strings.Repeat("y", 300<<10) + `","messages":[{"role":"user","content":"a"}]}`
	var got []chan received
	for range 4 {
		c := make(chan received, 1)
		got = append(got, c)
		go func() { c <- sendCtx(ctx, t, "POST", p.url+"/v1/chat/completions", body) }()
	}
	await(t, p.engine, func(st sim.State) bool { return st.Active >= 1 })
	full := func() received {
		for {
			select {
			case r := <-got[0]:
				return r
			case r := <-got[1]:
				return r
			case r := <-got[2]:
				return r
			case r := <-got[3]:
				return r
			}
		}
	}()
	if a := readAnswer(t, full.body); full.status != 503 || a.err.Code != "busy" || full.header.Get("Retry-After") == "" {
		t.Error(full)
	}
	cancel()
	p.stopDoor()
	if held := p.door.held.used.Load(); held != 0 {
		t.Errorf("%d bytes are held for ever", held)
	}
}

// A client that takes nothing is cut off.
func TestClientThatDoesNotRead(t *testing.T) {
	p := newPeer(t, "one", sim.Options{Context: 1 << 20}, func(o *DoorOptions) { o.Deadlines.Write = 100 * time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(1 << 10)
	body := `{"model":"tiny","stream":true,"ignore_eos":true,"messages":[{"role":"user","content":"a"}]}`
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", testKey, len(body), body)
	await(t, p.engine, func(st sim.State) bool { return st.Cancelled == 1 })
	p.stopDoor()
	if err := p.sched.lastEnd(); !errors.Is(err, context.Canceled) {
		t.Errorf("the route ended with %v", err)
	}
}

// Stopping lets requests finish, for a while.
func TestServeDrains(t *testing.T) {
	for _, patient := range []bool{true, false} {
		p := newPeer(t, "one", sim.Options{DecodeRate: 100}, func(o *DoorOptions) {
			if !patient {
				o.Deadlines.Drain = time.Millisecond
			}
		})
		got := stream(t, p.url, 1, func() { go p.stopDoor() })
		a := readAnswer(t, got.body)
		if patient && (!a.done || a.text != wantText()) || !patient && (got.err == nil || a.done) {
			t.Errorf("patient %v: %v", patient, got)
		}
		p.stopDoor()
	}
}

// Connections that never carried a request do not hold up the stop.
func TestServeStopsAtOnce(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send(t, "GET", p.url+"/healthz", "") // the other one was accepted before
	began := time.Now()
	p.stopDoor()
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestServeSaysWhyItEnds(t *testing.T) {
	d, err := NewDoor(DoorOptions{Scheduler: routeTo{}, Keys: testKeys("x")})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(t.Context(), l, d.Handler(), ServeOptions{}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	good := DoorOptions{Scheduler: routeTo{}, Keys: testKeys("x"), Listen: "127.0.0.1:8420"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*DoorOptions){
		"scheduler": func(o *DoorOptions) { o.Scheduler = nil },
		"keys":      func(o *DoorOptions) { o.Keys = nil },
		"max body":  func(o *DoorOptions) { o.MaxBody = -1 },
		"max held":  func(o *DoorOptions) { o.MaxHeld = -1 },
		"attempts":  func(o *DoorOptions) { o.Attempts = 11 },
		"listen":    func(o *DoorOptions) { o.Listen = "here" },
	} {
		o := good
		change(&o)
		if _, err := NewDoor(o); err == nil || !strings.HasPrefix(err.Error(), want+":") {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
