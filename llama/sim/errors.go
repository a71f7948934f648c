package sim

import (
	"fmt"
	"net/http"
)

// engineError is an answer in llama-server's own error shape.
type engineError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Type    string `json:"type"`
	// Only where a prompt does not fit.
	PromptTokens int `json:"n_prompt_tokens,omitempty"`
	Context      int `json:"n_ctx,omitempty"`
}

func (e *engineError) Error() string { return e.Message }

// refuse is the engine's 400.
func refuse(format string, args ...any) error {
	return &engineError{Code: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: "invalid_request_error"}
}

// fail is the engine's 500.
func fail(format string, args ...any) error {
	return &engineError{Code: http.StatusInternalServerError, Message: fmt.Sprintf(format, args...), Type: "server_error"}
}

func loading() error {
	return &engineError{Code: http.StatusServiceUnavailable, Message: "Loading model", Type: "unavailable_error"}
}

func unsupported(what, flag string) error {
	return &engineError{Code: http.StatusNotImplemented, Type: "not_supported_error",
		Message: fmt.Sprintf("This server does not support %s. Start it with `%s`", what, flag)}
}

func tooLong(prompt, context int) error {
	return &engineError{Code: http.StatusBadRequest, Type: "exceed_context_size_error", PromptTokens: prompt, Context: context,
		Message: fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", prompt, context)}
}

func writeError(w http.ResponseWriter, err error) {
	e, ok := err.(*engineError)
	if !ok {
		e = fail("%v", err).(*engineError)
	}
	w.Header().Set("Connection", "close") // as the real one does
	writeJSON(w, e.Code, map[string]any{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := encode(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":500,"message":"cannot encode","type":"server_error"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}
