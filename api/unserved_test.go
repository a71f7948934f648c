package api

import (
	"net/http"
	"strings"
	"testing"

	"relay/llama/sim"
	"relay/scheduler"
)

// TestUnserved: what no mesh can have is refused by name, and nothing else is.
func TestUnserved(t *testing.T) {
	for _, tc := range []struct{ method, path, says string }{
		{http.MethodGet, "/v1/chat/completions", "POST a JSON body"},
		{http.MethodGet, "/v1/chat/completions/chatcmpl-1/messages", "keeps no answers"},
		{http.MethodDelete, "/v1/responses/resp_1", "keeps no answers"},
		{http.MethodPost, "/v1/responses/resp_1/cancel", "keeps no answers"},
		{http.MethodPost, "/v1/responses/compact", "shorter input"},
		{http.MethodPost, "/v1/messages/batches", "keeps no answers"},
		{http.MethodGet, "/v1/files/", "keeps no answers"},
		{http.MethodPost, "/v1/audio/speech", "read and write text"},
		{http.MethodDelete, "/v1/models/demo", "relay model rm"},
		{http.MethodGet, "/v1/models/files", ""},
		{http.MethodPost, "/v1/chat/completions", ""},
		{http.MethodPut, "/v1/chat/completions", ""},
		{http.MethodPost, "/v1/responses", ""},
		{http.MethodPost, "/v1/responses/input_tokens", ""},
		{http.MethodPost, "/v1/messages/count_tokens", ""},
		{http.MethodGet, "/v1/filesystem", ""},
		{http.MethodGet, "/files", ""},
	} {
		no := unservedRoute(tc.method, tc.path)
		switch {
		case (no == nil) != (tc.says == ""):
			t.Errorf("%s %s: %v", tc.method, tc.path, no)
		case no != nil && (no.reason != scheduler.InvalidRequest || no.verdict().status != 400 || !strings.Contains(no.message, tc.says) || !strings.Contains(no.message, tc.path)):
			t.Errorf("%s %s: %d %s", tc.method, tc.path, no.verdict().status, no.message)
		}
	}
}

// TestTwiceV1: who gives Anthropic's client a base URL for OpenAI's is told.
func TestTwiceV1(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	got := send(t, "POST", p.url+"/v1/v1/messages", `{}`)
	if got.status != 404 || !strings.Contains(got.body, "Anthropic's clients is written without /v1") || !strings.Contains(got.body, "route_not_found") {
		t.Error(got)
	}
	if got := send(t, "GET", p.url+"/v2", ""); got.status != 404 || !strings.Contains(got.body, "GET /metrics") {
		t.Error(got)
	}
}

// TestAnUnknownModelIsSaidFirst: whatever else is wrong with the request.
func TestAnUnknownModelIsSaidFirst(t *testing.T) {
	p := newPeer(t, "one", sim.Options{}, nil)
	for path, rest := range map[string]string{
		"/v1/chat/completions": `"messages":[]`, "/v1/completions": `"best_of":5`, "/v1/responses": `"store":true`, "/v1/messages": `"messages":[]`, "/v1/embeddings": `"input":""`,
	} {
		for model, want := range map[string]int{"nosuch": 404, testModel: 400} {
			if got := send(t, "POST", p.url+path, `{"model":"`+model+`",`+rest+`}`); got.status != want {
				t.Errorf("%s of %s: %v", path, model, got)
			}
		}
	}
}
