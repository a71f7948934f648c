package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"relay/api/chat"
	"relay/api/continuation"
)

// chatDialect is POST /v1/chat/completions: OpenAI's, and the engine's own.
func chatDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(chatFields, body)
	if no != nil {
		return nil, no
	}
	q.path, q.kind = pathChat, kindChat
	if q.value("messages") == nil {
		return nil, invalid("messages", "the body has no messages")
	}
	if a, b := q.value("max_tokens"), q.value("max_completion_tokens"); a != nil && b != nil {
		if !bytes.Equal(a, b) {
			return nil, invalid("max_tokens", "max_tokens and max_completion_tokens mean the same; send one of them")
		}
		q.drop("max_tokens")
	}
	if no := q.chooseTools(); no != nil {
		return nil, no
	}
	q.formatJSON()
	logprobs := string(q.value("logprobs")) == "true"
	top, _ := whole(q.value("top_logprobs"))
	switch {
	case logprobs && q.tools:
		return nil, invalid("logprobs", "the engine tells no logprobs beside tools; leave one of them out")
	case !logprobs && top > 0:
		return nil, invalid("top_logprobs", "top_logprobs needs logprobs to be true")
	case !logprobs:
		q.drop("top_logprobs")
	case top == 0: // The engine would tell none at all.
		q.set("top_logprobs", "1")
	}
	var hide func([]byte) []byte
	if logprobs && top == 0 {
		hide = blankTop
	}
	return q, q.complete(chat.OfChat, logprobs, hide)
}

// maxAnswersAsked bounds the answers of one request: each has to wait for a slot, before
// the requests of other clients.
const maxAnswersAsked = 256

// textDialect is POST /v1/completions.
func textDialect(_ http.Header, body []byte) (*request, *refusal) {
	q, no := readRequest(textFields, body)
	if no != nil {
		return nil, no
	}
	q.path, q.kind, q.asks = pathText, kindChat, "prompt"
	prompt := q.value("prompt")
	if prompt == nil {
		return nil, invalid("prompt", "the body has no prompt")
	}
	q.prompts = prompts(prompt)
	q.ids, q.text = longest(prompt)
	v := q.value("logprobs")
	n, _ := whole(v)
	if v != nil && n == 0 {
		q.set("logprobs", "1")
	}
	if no := q.complete(chat.OfText, v != nil, nil); no != nil {
		return nil, no
	}
	if answers := q.prompts * max(q.answers, 1); answers > maxAnswersAsked {
		return nil, invalid("prompt", "its %d prompts with n: %d are %d answers, and one request gets at most %d; send several requests", q.prompts, max(q.answers, 1), answers, maxAnswersAsked)
	}
	if v != nil {
		q.reply = legacyLogprobs(q.reply, n)
	}
	return q, nil
}

// complete has a completion streamed by the engine, with all that relay wants to know of
// it, and makes its reply. probable says that the client wants logprobs, hide takes from
// them what it does not want.
func (q *request) complete(kind chat.Kind, probable bool, hide func([]byte) []byte) *refusal {
	q.stream = string(q.value("stream")) == "true"
	var options struct {
		Usage bool `json:"include_usage"`
	}
	if v := q.value("stream_options"); v != nil {
		if !q.stream {
			return invalid("stream_options", "stream_options is for streams; send stream: true, or leave it out")
		}
		json.Unmarshal(v, &options)
	}
	q.answers, _ = whole(q.value("n"))
	timings := string(q.value("timings_per_token")) == "true"
	q.progress = q.stream && string(q.value("return_progress")) == "true"
	q.streamed(kind, probable)
	if q.tracked && !probable {
		hide = func(choices []byte) []byte { return continuation.Without(kind, choices) }
	}
	choices := q.choices()
	if q.stream {
		q.reply = func(c *call, model string) reply {
			return &passing{model: encodeJSON(model), kind: kind, usage: options.Usage, timings: timings, progress: q.progress, hide: hide}
		}
		return nil
	}
	q.reply = func(c *call, model string) reply {
		return &collecting{hide: hide, Collector: chat.NewCollector(chat.Options{
			Kind: kind, Choices: choices, PerPrompt: q.answers, Model: model, Timings: timings, Grab: c.grab,
		})}
	}
	return nil
}

// streamed has the engine stream its answer, and tell with every event what it took. Of one
// answer it tells the tokens, from which another replica can go on; where it tells how
// probable they are, it does so anyway.
func (q *request) streamed(kind chat.Kind, probable bool) {
	q.set("stream", "true")
	q.set("stream_options", `{"include_usage":true}`)
	q.set("timings_per_token", "true")
	q.set("return_progress", "true")
	if q.tracked, q.completion = q.choices() == 1, kind; q.tracked && !probable {
		q.added = append(q.added, []byte(continuation.IDs))
	}
}

// formatJSON has an answer that must be JSON be an object, where the client does not say
// more of it: the engine holds a model to nothing without a schema, or with an empty one.
func (q *request) formatJSON() {
	var f struct {
		Type       string         `json:"type"`
		Schema     map[string]any `json:"schema"`
		JSONSchema struct {
			Schema map[string]any `json:"schema"`
		} `json:"json_schema"`
	}
	v := q.value("response_format")
	if v == nil || json.Unmarshal(v, &f) != nil {
		return
	}
	if f.Type == "json_object" && len(f.Schema) == 0 || f.Type == "json_schema" && len(f.JSONSchema.Schema) == 0 {
		q.set("response_format", `{"type":"json_object","schema":{"type":"object"}}`)
	}
}

// chooseTools puts a choice of tools into the engine's words: it knows none, auto and
// required, but not a choice among the tools, which is made by sending it those alone.
func (q *request) chooseTools() *refusal {
	v := q.value("tools")
	var tools []json.RawMessage
	if v != nil {
		json.Unmarshal(v, &tools)
	}
	choice := q.value("tool_choice")
	q.tools = len(tools) > 0 && string(choice) != `"none"`
	if len(tools) == 0 {
		switch string(choice) {
		case "", `"auto"`, `"none"`:
			return nil
		}
		return invalid("tool_choice", "there are no tools to choose from; send tools, or leave tool_choice out")
	}
	if choice == nil || choice[0] != '{' {
		return nil
	}
	type named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var chosen struct {
		named
		Allowed struct {
			Mode  string  `json:"mode"`
			Tools []named `json:"tools"`
		} `json:"allowed_tools"`
	}
	if json.Unmarshal(choice, &chosen) != nil {
		return invalid("tool_choice", "tool_choice is not what it must be: {\"type\":\"function\",\"function\":{\"name\":…}}")
	}
	mode, names := "required", []named{chosen.named}
	switch chosen.Type {
	case "function":
	case "allowed_tools":
		mode, names = chosen.Allowed.Mode, chosen.Allowed.Tools
		if mode != "auto" && mode != "required" {
			return invalid("tool_choice", "tool_choice: allowed_tools.mode must be one of: auto, required")
		}
	default:
		return invalid("tool_choice", "tool_choice is of the type %q; there is: function, allowed_tools", clip(chosen.Type, 40))
	}
	var kept []json.RawMessage
	for _, want := range names {
		at := slices.IndexFunc(tools, func(raw json.RawMessage) bool {
			var t named
			return json.Unmarshal(raw, &t) == nil && t.Function.Name == want.Function.Name
		})
		if at < 0 {
			return invalid("tool_choice", "tool_choice names %q, which is not among the tools", clip(want.Function.Name, 60))
		}
		kept = append(kept, tools[at])
	}
	if len(kept) == 0 {
		return invalid("tool_choice", "tool_choice allows no tool; name one, or send \"none\"")
	}
	q.set("tools", string(encodeJSON(kept)))
	q.set("tool_choice", `"`+mode+`"`)
	return nil
}
