package responses

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"relay/api/chat"
)

// Request is a request to create a response. It refers to the body that it was
// read from.
type Request struct {
	// Chat is what the engine is asked.
	Chat   chat.Request
	Stream bool

	// echo is what the response repeats of the request, from a comma on.
	echo []byte
	// alone: the probabilities of tokens are wanted, but none of alternatives.
	alone bool
	// prefill is the text of a last message of the assistant.
	prefill string
}

const (
	includeLogprobs  = "message.output_text.logprobs"
	includeReasoning = "reasoning.encrypted_content"
)

// stateful are the fields that rest on something that was kept, or that relay
// has no part for; each with why it is not there.
var stateful = []struct{ name, why string }{
	{"previous_response_id", "relay keeps no responses; send the conversation in \"input\""},
	{"conversation", "relay keeps no conversations; send the conversation in \"input\""},
	{"prompt", "relay keeps no prompt templates; send \"instructions\" and \"input\""},
	{"max_tool_calls", "it bounds built-in tools, and relay has none"},
	{"context_management", "relay does not shorten conversations; send what fits"},
	{"moderation", "relay moderates nothing"},
}

// Parse reads a body that is one JSON object. The error is a *chat.FieldError.
//
// Without effect are metadata, user, safety_identifier, prompt_cache_key,
// prompt_cache_retention, client_metadata, and the service_tier auto or default. Reasoning that comes back in input is handed to
// the model's template where it is there in full (content of type
// reasoning_text, as relay's own responses have it); summaries and encrypted
// content are passed over, as no engine here can read them. For that reason
// include reasoning.encrypted_content is taken: what it is for, relay's
// reasoning items do without it.
func Parse(body []byte) (*Request, error) {
	f := chat.ReadFields(body)
	q := &Request{}
	q.Chat.Model = f.Needed("model")
	q.instructions(f)
	q.input(f)
	tools := f.Raw("tools")
	q.tools(f)
	choice := q.toolChoice(f)
	q.Chat.Parallel = f.Flag("parallel_tool_calls")
	text := q.text(f)
	effort := q.reasoning(f)
	q.Chat.MaxTokens = f.Whole("max_output_tokens", 1, math.MaxInt32)
	q.Chat.Temperature = f.Number("temperature", 0, 2)
	q.Chat.TopP = f.Number("top_p", 0, 1)
	top := q.include(f)
	for _, s := range stateful {
		f.Refuse(s.name, s.why)
	}
	if on := f.Flag("store"); on != nil && *on {
		f.Fail("store", "\"store\": true is not supported: relay keeps no responses; leave it out or send false")
	}
	if on := f.Flag("background"); on != nil && *on {
		f.Fail("background", "\"background\": true is not supported: relay answers while you wait; leave it out or send false")
	}
	if f.Text("truncation") == "auto" {
		f.Fail("truncation", "\"truncation\": \"auto\" is not supported: relay does not shorten conversations; leave it out or send \"disabled\"")
	}
	f.OneOf("truncation", "disabled")
	f.OneOf("service_tier", "auto", "default")
	if on := f.Flag("stream"); on != nil {
		q.Stream = *on
	}
	if o := f.Object("stream_options"); o != nil {
		if on := o.Flag("include_obfuscation"); on != nil && *on {
			o.Fail("include_obfuscation", "relay sends no obfuscation; leave it out or send false")
		}
		o.Done()
	}
	q.metadata(f)
	f.Object("client_metadata") // an agent's own, for its maker
	for _, name := range []string{"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"} {
		f.Text(name)
	}
	f.Done()
	if err := f.Err(); err != nil {
		return nil, err
	}
	q.remember(f, tools, choice, text, effort, top)
	return q, nil
}

// instructions go before everything else.
func (q *Request) instructions(f *chat.Fields) {
	if s := f.Text("instructions"); s != "" {
		q.Chat.Messages = append(q.Chat.Messages, chat.Message{Role: "system", Parts: []chat.Part{{Text: s}}})
	}
}

// tools reads the functions that the model may call.
func (q *Request) tools(f *chat.Fields) {
	for _, t := range f.Objects("tools") {
		if kind := t.Needed("type"); kind != "function" {
			t.Fail("type", "tools of type %q are not supported: relay runs no tools itself; use tools of type \"function\"", clip(kind))
			return
		}
		tool := chat.Tool{Name: t.Needed("name"), Description: t.Text("description")}
		if t.Object("parameters") != nil {
			tool.Parameters = t.Raw("parameters")
		}
		t.Flag("strict") // arguments follow the schema in any case
		t.Done()
		q.Chat.Tools = append(q.Chat.Tools, tool)
	}
}

// toolChoice reads which of the tools are to be called, and gives it as the
// response repeats it. The engine knows auto, none and required: a choice of
// some functions is one of these with no other tools.
func (q *Request) toolChoice(f *chat.Fields) json.RawMessage {
	const name = "tool_choice"
	raw := f.Raw(name)
	if raw == nil {
		return json.RawMessage(`"auto"`)
	}
	if raw[0] == '"' {
		q.Chat.ToolChoice = f.OneOf(name, "none", "auto", "required")
		if q.Chat.ToolChoice == "required" && len(q.Chat.Tools) == 0 {
			f.Fail(name, "a tool is required, but there are no \"tools\"")
		}
		return raw
	}
	c := f.Object(name)
	switch kind := c.Needed("type"); kind {
	case "function":
		q.only(c, "name", c.Needed("name"))
		q.Chat.ToolChoice = "required"
	case "allowed_tools":
		q.Chat.ToolChoice = c.OneOf("mode", "auto", "required")
		var names []string
		for _, t := range c.Objects("tools") {
			if kind := t.Needed("type"); kind != "function" {
				t.Fail("type", "tools of type %q are not supported; use tools of type \"function\"", clip(kind))
			}
			names = append(names, t.Needed("name"))
			t.Done()
		}
		q.only(c, "tools", names...)
	default:
		c.Fail("type", "a tool choice of type %q is not supported; use \"function\", \"allowed_tools\", or none, auto and required", clip(kind))
	}
	c.Done()
	return raw
}

// only leaves no tools but those.
func (q *Request) only(c *chat.Fields, field string, names ...string) {
	for _, n := range names {
		if !slices.ContainsFunc(q.Chat.Tools, func(t chat.Tool) bool { return t.Name == n }) {
			c.Fail(field, "there is no function %q in \"tools\"", clip(n))
		}
	}
	if len(names) == 0 {
		c.Fail(field, "no function is named")
	}
	q.Chat.Tools = slices.DeleteFunc(q.Chat.Tools, func(t chat.Tool) bool { return !slices.Contains(names, t.Name) })
}

// text reads the form of the answer, and gives it as the response repeats it.
func (q *Request) text(f *chat.Fields) json.RawMessage {
	format := json.RawMessage(`{"type":"text"}`)
	t := f.Object("text")
	if t == nil {
		return format
	}
	if v := t.OneOf("verbosity", "medium", "low", "high"); v == "low" || v == "high" {
		t.Fail("verbosity", "\"verbosity\": %q is not supported: the models here have no such setting; say in \"instructions\" how long the answer should be", v)
	}
	if o := t.Object("format"); o != nil {
		format = t.Raw("format")
		switch kind := o.Needed("type"); kind {
		case "text":
		case "json_object":
			q.Chat.Format = json.RawMessage(`{"type":"json_object"}`)
		case "json_schema":
			name := o.Needed("name")
			if o.Object("schema") == nil {
				o.Fail("schema", "\"schema\" is missing; it must be a JSON schema")
			}
			b := chat.Quote([]byte(`{"type":"json_schema","json_schema":{"name":`), name)
			b = append(append(b, `,"schema":`...), o.Raw("schema")...)
			q.Chat.Format = append(b, "}}"...)
			o.Flag("strict") // it is followed in any case
			o.Text("description")
		default:
			o.Fail("type", "a format of type %q is not supported; use \"text\", \"json_object\" or \"json_schema\"", clip(kind))
		}
		o.Done()
	}
	t.Done()
	return format
}

// reasoning reads how much the model should reason. It is handed to the model's
// template, which may know it or not: "none" turns reasoning off where it can
// be. A summary is asked of no model here: "auto" is none.
func (q *Request) reasoning(f *chat.Fields) string {
	o := f.Object("reasoning")
	if o == nil {
		return ""
	}
	q.Chat.Effort = o.OneOf("effort", "none", "minimal", "low", "medium", "high", "xhigh")
	for _, name := range []string{"summary", "generate_summary"} {
		if s := o.OneOf(name, "auto", "concise", "detailed"); s == "concise" || s == "detailed" {
			o.Fail(name, "%q: %q is not supported: reasoning is not summarised here, it comes in full; leave it out or send \"auto\"", name, s)
		}
	}
	o.Done()
	return q.Chat.Effort
}

// include reads what else the answer should have, and gives the alternatives per
// token that it has.
func (q *Request) include(f *chat.Fields) int64 {
	top := f.Whole("top_logprobs", 0, 20)
	for i, s := range f.Texts("include") {
		switch s {
		case includeLogprobs:
			q.Chat.TopLogprobs = new(int64(1)) // without others the engine would tell none at all
			q.alone = top == nil || *top == 0
			if len(q.Chat.Tools) > 0 {
				f.Fail("include["+strconv.Itoa(i)+"]", "%q is not supported together with \"tools\": the engine tells no probabilities then", s)
			}
		case includeReasoning:
		default:
			f.Fail("include["+strconv.Itoa(i)+"]", "%q is not supported; relay takes %q and %q", clip(s), includeLogprobs, includeReasoning)
		}
	}
	if top == nil || *top == 0 {
		return 0
	}
	if q.Chat.TopLogprobs == nil {
		f.Fail("top_logprobs", "\"top_logprobs\" needs %q in \"include\"", includeLogprobs)
	}
	q.Chat.TopLogprobs = top
	return *top
}

func (q *Request) metadata(f *chat.Fields) {
	o := f.Object("metadata")
	if o == nil {
		return
	}
	names := o.Names()
	if len(names) > 16 {
		f.Fail("metadata", "\"metadata\" has %d entries; it may have 16", len(names))
		return
	}
	for _, n := range names {
		if s := o.Text(n); len(n) > 64 || len(s) > 512 {
			o.Fail(n, "keys of \"metadata\" have 64 characters at most, values 512")
		}
	}
}

// remember keeps what the response says of the request. What was not said and
// is the engine's own default is null.
func (q *Request) remember(f *chat.Fields, tools, choice, format json.RawMessage, effort string, top int64) {
	b := q.echo
	raw := func(name string, v json.RawMessage, without string) {
		b = append(append(b, `,"`...), name...)
		b = append(b, `":`...)
		if v != nil {
			b = append(b, v...)
		} else {
			b = append(b, without...)
		}
	}
	raw("background", nil, "false")
	raw("instructions", f.Raw("instructions"), "null")
	raw("max_output_tokens", f.Raw("max_output_tokens"), "null")
	raw("max_tool_calls", nil, "null")
	raw("metadata", f.Raw("metadata"), "{}")
	raw("parallel_tool_calls", f.Raw("parallel_tool_calls"), "true")
	raw("previous_response_id", nil, "null")
	raw("prompt_cache_key", f.Raw("prompt_cache_key"), "null")
	raw("reasoning", nil, `{"effort":`)
	if effort != "" {
		b = chat.Quote(b, effort)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"summary":null}`...)
	raw("safety_identifier", f.Raw("safety_identifier"), "null")
	raw("service_tier", nil, `"default"`)
	raw("store", nil, "false")
	raw("temperature", f.Raw("temperature"), "null")
	raw("text", nil, `{"format":`)
	b = append(append(b, format...), `,"verbosity":"medium"}`...)
	raw("tool_choice", choice, "")
	raw("tools", tools, "[]")
	raw("top_logprobs", nil, strconv.FormatInt(top, 10))
	raw("top_p", f.Raw("top_p"), "null")
	raw("truncation", nil, `"disabled"`)
	raw("user", f.Raw("user"), "null")
	q.echo = b
}

// clip bounds what a client wrote.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
