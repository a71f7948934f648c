package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"relay/scheduler"
)

// engineError reads an engine's answer that is not 200.
func (a *attempt) engineError(resp *http.Response) *refusal {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var shape struct {
		Error json.RawMessage `json:"error"`
	}
	if err != nil || json.Unmarshal(body, &shape) != nil {
		shape.Error = nil
	}
	return a.engineRefusal(resp.StatusCode, shape.Error)
}

// engineRefusal puts an error of llama-server's into relay's words. status 0
// means that the error itself says it.
func (a *attempt) engineRefusal(status int, raw json.RawMessage) *refusal {
	var e struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
		Type    string `json:"type"`
		Tokens  int    `json:"n_prompt_tokens"`
		Context int    `json:"n_ctx"`
	}
	if json.Unmarshal(raw, &e) != nil {
		json.Unmarshal(raw, &e.Message) // some say it in a string
	}
	if code, ok := e.Code.(float64); ok && status == 0 {
		status = int(code)
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	said := clip(e.Message, 2000)
	if said == "" {
		said = fmt.Sprintf("it answered %d without a word", status)
	}
	fault := func(why scheduler.Reason, as int) *refusal {
		a.turnedDown = true
		no := refuse(why, "%s", plain(said))
		no.status, no.retry, no.param = as, scheduler.RetryNever, a.request.paramOf(said)
		return no
	}
	switch {
	case e.Type == "exceed_context_size_error" || e.Message == "Context size has been exceeded.":
		a.turnedDown = true
		return a.request.tooLong(cmp.Or(e.Tokens, a.call.prompt), cmp.Or(e.Context, a.route.Model.Context))
	case overBatch.MatchString(e.Message):
		a.turnedDown = true
		figures := overBatch.FindStringSubmatch(e.Message)
		tokens, _ := strconv.Atoi(figures[1])
		most, _ := strconv.Atoi(figures[2])
		return a.request.tooLong(tokens, most)
	case a.request.path == pathDetokenize && status == http.StatusInternalServerError && strings.Contains(e.Message, "vector"):
		a.turnedDown = true // What the C++ library says of an index that is not there; the words differ.
		no := invalid("tokens", "tokens: there is an id in it that is no token of model %q", clip(a.shown, 100))
		no.retry = scheduler.RetryNever
		return no
	case status == http.StatusNotImplemented, status >= 500 && isRequestsFault(e.Message):
		return fault(scheduler.InvalidRequest, http.StatusBadRequest)
	case status == http.StatusServiceUnavailable:
		return a.failure(scheduler.ModelLoading, "%s is not ready: %s", a.who(), said)
	case status == http.StatusTooManyRequests:
		return a.answer(a.failure(scheduler.Busy, "%s is busy: %s", a.who(), said))
	case status >= 500:
		return a.answer(a.failure(scheduler.EngineFailed, "%s failed: %s", a.who(), said))
	case status < 400, slices.Contains([]int{401, 403, 404, 405, 408}, status):
		return a.answer(a.failure(scheduler.EngineFailed, "%s answered %d, which no fitting engine does: %s", a.who(), status, said))
	}
	return fault(scheduler.InvalidRequest, status)
}

// overBatch is what llama-server says, with 500, of a text that must be computed at one go,
// as for an embedding or a rank, and is longer than that.
var overBatch = regexp.MustCompile(`^input \((\d{1,9}) tokens\) is too large to process\..*batch size: (\d{1,9})\)`)

// isRequestsFault knows the errors that llama-server answers with 500 although
// the request is to blame: what its JSON library throws, and what it throws
// itself before it begins.
func isRequestsFault(message string) bool {
	for _, beginning := range []string{
		"Field '", "Failed to parse ", "Invalid base64 value", "Cannot use both json_schema and grammar", "Cannot specify grammar with tools",
		"Unknown reasoning format", "Multimodal data provided",
	} {
		if strings.HasPrefix(message, beginning) {
			return true
		}
	}
	return strings.Contains(message, "[json.exception.") || strings.Contains(message, "input is not supported")
}

// paramOf is the field of the client's that an error of llama-server's is about, or empty.
func (q *request) paramOf(message string) string {
	about := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(message, word) })
	}
	switch {
	case about("JSON schema conversion", "failed to parse grammar"):
		return q.named("response_format", "json_schema", "grammar", "tools")
	case about("grammar"):
		return q.named("grammar")
	case about("reasoning format"):
		return q.named("reasoning_format")
	case about("continue_final_message"):
		return q.named("continue_final_message")
	case about("enable_thinking"):
		return q.named("chat_template_kwargs")
	case about("invalid tokens", "\"prompt\"", "Input content"):
		return q.asks
	case about("messages", "content[]", "'content'", "assistant message", "input is not supported", "base64", "Invalid uri", "image or audio", "Jinja Exception"):
		return cmp.Or(q.asks, "messages")
	}
	for _, quote := range []string{"Field '", "'", "\""} {
		rest, ok := strings.CutPrefix(message, quote)
		if !ok {
			continue
		}
		name, _, ok := strings.Cut(rest, quote[len(quote)-1:])
		if ok && len(name) <= 60 && !strings.ContainsAny(name, " {}[]") {
			return name
		}
	}
	if about("Failed to parse tools") {
		return q.named("tools")
	}
	return ""
}

// named is the first of these fields that the client sent, as it is called there, or empty.
func (q *request) named(fields ...string) string {
	for _, name := range fields {
		switch {
		case q.value(name) == nil && !slices.ContainsFunc(q.added, func(b []byte) bool { return bytes.HasPrefix(b, []byte(`,"`+name+`":`)) }):
		case q.kind == kindChat && q.asks == "input" && name == "response_format": // A response's.
			return "text"
		default:
			return name
		}
	}
	return ""
}

// plain is an error of llama-server's without the marks of its libraries.
func plain(message string) string {
	if _, said, found := strings.Cut(message, "Error: Jinja Exception: "); found {
		return "the model's chat template refuses this: " + said
	}
	message = strings.TrimPrefix(message, "Unable to generate parser for this template. Automatic parser generation failed: ")
	before, rest, found := strings.Cut(message, "[json.exception.")
	if !found {
		return message
	}
	_, after, found := strings.Cut(rest, "] ")
	if !found {
		return message
	}
	return before + after
}
