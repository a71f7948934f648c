package api

import (
	"net/http"
	"strings"

	"relay/scheduler"
)

// shapeFor is how refusals look to whoever asks for this: as Anthropic's where it is one
// of its routes, or a client of its own.
func shapeFor(r *http.Request) shape {
	if r.URL.Path == "/v1/messages" || strings.HasPrefix(r.URL.Path, "/v1/messages/") || r.Header.Get("Anthropic-Version") != "" {
		return shapeAnthropic{}
	}
	return shapeOpenAI{}
}

// shapeOpenAI is OpenAI's.
type shapeOpenAI struct{}

func (shapeOpenAI) body(no *refusal, _ string) []byte {
	var param any
	if no.param != "" {
		param = no.param
	}
	type shape struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   any    `json:"param"`
		Code    string `json:"code"`
	}
	return encodeJSON(map[string]shape{"error": {no.message, no.verdict().kind, param, string(no.reason)}})
}

func (s shapeOpenAI) event(no *refusal, id string) []byte {
	return append(append([]byte("data: "), s.body(no, id)...), "\n\n"...)
}

func (shapeOpenAI) header(http.Header, string) {}

// shapeAnthropic is Anthropic's, in which errors have no param and no code.
type shapeAnthropic struct{}

func (shapeAnthropic) body(no *refusal, id string) []byte {
	message := no.message
	if no.reason == scheduler.ContextLength && no.tokens > no.context && no.context > 0 {
		message = tooLongAnthropic(no.tokens, no.context)
	}
	type shape struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	return encodeJSON(struct {
		Type      string `json:"type"`
		Error     shape  `json:"error"`
		RequestID string `json:"request_id"`
	}{"error", shape{anthropicType(no.verdict()), message}, id})
}

func (s shapeAnthropic) event(no *refusal, id string) []byte {
	return append(append([]byte("event: error\ndata: "), s.body(no, id)...), "\n\n"...)
}

func (shapeAnthropic) header(h http.Header, id string) { h.Set("Request-Id", id) }

// anthropicType is Anthropic's word for a kind of error, as its SDKs know them.
func anthropicType(v verdict) string {
	switch v.status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if v.status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}
