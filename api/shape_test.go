package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"relay/llama/sim"
	"relay/scheduler"
)

// TestEveryReasonInBothShapes is the whole table as clients see it: a line of each shape
// for each reason, with the headers that say whether to ask again.
func TestEveryReasonInBothShapes(t *testing.T) {
	var b strings.Builder
	line := func(name string, no *refusal) {
		t.Helper()
		for _, s := range []shape{shapeOpenAI{}, shapeAnthropic{}} {
			w := httptest.NewRecorder()
			no.write(w, s, "req-1")
			h := w.Header()
			fmt.Fprintf(&b, "%s %d", name, w.Code)
			for _, k := range []string{"Retry-After", headerShouldRetry, "Www-Authenticate"} {
				if v := h.Get(k); v != "" {
					fmt.Fprintf(&b, " %s=%s", strings.ToLower(k), v)
				}
			}
			fmt.Fprintf(&b, "\n    %s", w.Body)
			if h.Get("Content-Type") != "application/json; charset=utf-8" || !json.Valid(w.Body.Bytes()) || h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
				t.Errorf("%s: %v %s", name, h, w.Body)
			}
			event := string(s.event(no, "req-1"))
			if _, anthropic := s.(shapeAnthropic); anthropic != strings.HasPrefix(event, "event: error\ndata: ") || !strings.HasSuffix(event, "\n\n") {
				t.Errorf("%s: %q", name, event)
			}
		}
	}
	for _, why := range scheduler.Reasons() {
		line(string(why), refuse(why, "why"))
	}
	line("context, with figures", (&request{}).tooLong(200, 100))
	line("context, of prompt and answer", (&request{}).tooLong(90, 100))
	no := refuse(scheduler.QuotaExceeded, "why")
	no.retry = scheduler.RetryNever
	line("a quota that never comes back", no)
	no = refuse(scheduler.Busy, "why")
	no.retry, no.after = scheduler.RetryLater, 1
	line("busy for a moment", no)
	line("a fault of relay's own", internal(fmt.Errorf("secret"), "req-1"))
	line("a field", invalid("top_p", "why"))
	if strings.Contains(b.String(), "secret") {
		t.Error("the cause went out")
	}
	golden(t, "shapes.golden", b.String())
}

// Refusals at the door itself come in the shape of who asks.
func TestShapeOfTheAsker(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	const openai, anthropic = `{"error":{"message":`, `{"type":"error","error":{"type":`
	for _, c := range []struct {
		method, path, body, want string
		status                   int
		header                   []string
	}{
		{"POST", "/v1/messages", "{}", anthropic, 401, []string{"Authorization", ""}},
		{"POST", "/v1/messages/count_tokens", "{}", anthropic, 401, []string{"Authorization", "Bearer no"}},
		{"POST", "/v1/messages", "{}", anthropic, 401, []string{"Authorization", "", "X-Api-Key", "no"}},
		{"GET", "/v1/messages", "", anthropic, 405, nil},
		{"GET", "/v1/messages/nosuch", "", anthropic, 404, nil},
		{"GET", "/v1/models/nosuch", "", anthropic, 404, []string{"Anthropic-Version", "2023-06-01"}},
		{"GET", "/v1/models/nosuch", "", openai, 404, nil},
		{"POST", "/v1/messages", "{}", anthropic, 403, []string{"Host", "evil.example"}},
		{"POST", "/v1/responses", "{}", openai, 401, []string{"Authorization", ""}},
		{"POST", "/v1/messages", "{}", anthropic, 508, []string{headerHop, "1"}},
		{"POST", "/v1/chat/completions", "{}", openai, 508, []string{headerHop, "1"}},
	} {
		got := send(t, c.method, p.url+c.path, c.body, c.header...)
		if got.status != c.status || !strings.HasPrefix(got.body, c.want) {
			t.Errorf("%s %s %v: %v", c.method, c.path, c.header, got)
		}
		if (c.want == anthropic) != (got.header.Get("Request-Id") != "") {
			t.Errorf("%s %s: %v", c.method, c.path, got.header)
		}
	}
}

// TestHeaders of an answer say who gave it, and how long that took; none comes from
// upstream.
func TestHeaders(t *testing.T) {
	const answer = "data: {\"choices\":[{\"text\":\"a\",\"index\":0,\"finish_reason\":\"stop\"}],\"model\":\"x\"}\n\ndata: [DONE]\n\n"
	status, body := 200, answer
	p := newPeer(t, "one", sim.Options{}, func(o *DoorOptions) {
		o.Scheduler = routeTo(scheduler.Route{
			Model: scheduler.ServedModel{UID: testUID, Name: testModel}, Peer: "the-other", Path: "relay", Hardware: "cuda: RTX 4090", Done: func(error) {},
			Client: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				h := http.Header{"Content-Type": {"text/event-stream"}, "Server": {"llama.cpp"}, "Access-Control-Allow-Origin": {"*"}, "X-Ratelimit-Limit-Requests": {"1"}}
				h.Set(headerPeer, "liar")
				h.Set(headerAttempts, "7")
				h.Set(headerPath, "lie")
				h.Set("Server-Timing", "lie;dur=1")
				h.Set("Retry-After", "77")
				h.Set(headerQueue, "12.5")
				return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, ContentLength: -1}, nil
			}),
		})
	})
	rt := p.door.opt.Scheduler.(routeTo)
	inner := rt.Client
	rt.Client = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(r)
		resp.Body = readCloser{strings.NewReader(body)}
		return resp, err
	})
	p.door.opt.Scheduler = rt
	for _, stream := range []string{"true", "false"} {
		got := send(t, "POST", p.url+"/v1/completions", `{"model":"tiny","prompt":"x","stream":`+stream+`}`, headerRequestID, "mine")
		for k, want := range map[string]string{
			headerRequestID: "mine", headerPeer: "the-other", headerAttempts: "1", headerPath: "relay", headerHardware: "cuda: RTX 4090", headerServed: testModel,
			"Server": "", "Access-Control-Allow-Origin": "", "X-Ratelimit-Limit-Requests": "", "Retry-After": "",
		} {
			if v := got.header.Values(k); len(v) > 1 || got.header.Get(k) != want {
				t.Errorf("%s: %q, want %q", k, v, want)
			}
		}
		var route, queue, first, all float64
		if n, err := fmt.Sscanf(got.header.Get("Server-Timing"), "route;dur=%f, queue;dur=%f, first;dur=%f", &route, &queue, &first); n != 3 || err != nil || queue != 12.5 || first <= 0 {
			t.Errorf("%q", got.header.Get("Server-Timing"))
		}
		if _, err := fmt.Sscanf(got.header.Get(headerQueue), "%f", &all); err != nil || all < 12.5 {
			t.Errorf("%q", got.header.Get(headerQueue))
		}
		if want := map[string]string{"true": "text/event-stream; charset=utf-8", "false": "application/json; charset=utf-8"}[stream]; got.status != 200 || got.header.Get("Content-Type") != want {
			t.Errorf("%v", got)
		}
	}
	status, body = 400, `{"error":{"code":400,"message":"m"}}`
	got := send(t, "POST", p.url+"/v1/completions", `{"model":"tiny","prompt":"x"}`)
	if got.status != 400 || got.header.Get(headerPeer) != "the-other" || got.header.Get(headerPath) != "relay" || got.header.Get("Retry-After") != "" {
		t.Errorf("%v", got)
	}
	for name, want := range map[string]string{"größe": `gr\u00f6\u00dfe`, "a/b:c": "a/b:c", "x\r\nY: z": `x\r\nY: z`} {
		if got := headerText(name); got != want {
			t.Errorf("%q as a header is %q, want %q", name, got, want)
		}
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
