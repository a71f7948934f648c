package messages

import (
	"math"
	"slices"
	"strings"

	"relay/api/chat"
)

// Request is a request to create a message, or to count its tokens. It refers to
// the body that it was read from.
type Request struct {
	// Chat is what the engine is asked.
	Chat   chat.Request
	Stream bool

	// prefill is the text of a last message of the assistant.
	prefill string
}

// elsewhere are the fields that need something that relay has no part for; each
// with why it is not there.
var elsewhere = []struct{ name, why string }{
	{"container", "relay runs no containers"},
	{"mcp_servers", "relay calls no MCP servers; offer what they do as \"tools\""},
	{"context_management", "relay does not shorten conversations; send what fits"},
	{"inference_geo", "requests run on the peers of this mesh"},
	{"fallbacks", "relay answers with the model that was asked for"},
}

// Parse reads a body that is one JSON object. The error is a *chat.FieldError.
//
// Without effect are metadata, the service_tier auto or standard_only, and
// cache_control: what of a prompt is kept is the engine's business. Thinking
// that comes back is handed to the model's template as reasoning, without its
// signature; what is redacted is passed over. A tool result with is_error begins
// with "Error: ", as chat completions have no other place for it. A model whose
// template cannot reason answers without, whatever thinking says; where it can, a
// budget bounds it.
func Parse(body []byte) (*Request, error) {
	f := chat.ReadFields(body)
	q := &Request{}
	q.common(f)
	if q.Chat.MaxTokens = f.Whole("max_tokens", 1, math.MaxInt32); q.Chat.MaxTokens == nil {
		f.Fail("max_tokens", "\"max_tokens\" is missing; it must be a whole number of at least 1")
	}
	if q.Chat.Stop = f.Texts("stop_sequences"); slices.Contains(q.Chat.Stop, "") {
		f.Fail("stop_sequences", "stop_sequences: it holds an empty string")
	}
	q.Chat.WhichStop = len(q.Chat.Stop) > 0
	q.Chat.Temperature = f.Number("temperature", 0, 1)
	q.Chat.TopP = f.Number("top_p", 0, 1)
	q.Chat.TopK = f.Whole("top_k", 0, math.MaxInt32)
	if on := f.Flag("stream"); on != nil {
		q.Stream = *on
	}
	if o := f.Object("metadata"); o != nil {
		o.Text("user_id")
		o.Done()
	}
	f.OneOf("service_tier", "auto", "standard_only")
	f.Done()
	if err := f.Err(); err != nil {
		return nil, err
	}
	return q, nil
}

// ParseCount reads a body of /v1/messages/count_tokens. The error is a
// *chat.FieldError.
func ParseCount(body []byte) (*Request, error) {
	f := chat.ReadFields(body)
	q := &Request{}
	q.common(f)
	f.Done()
	for i, m := range q.Chat.Messages {
		if slices.ContainsFunc(m.Parts, func(p chat.Part) bool { return p.Image != "" }) {
			f.Fail("messages", "the tokens of images cannot be counted without computing them; leave them out (message %d)", i)
		}
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return q, nil
}

// common reads what a message and the count of its tokens have alike.
func (q *Request) common(f *chat.Fields) {
	q.Chat.Model = f.Needed("model")
	q.system(f)
	q.messages(f)
	q.tools(f)
	q.toolChoice(f)
	q.thinking(f)
	q.output(f)
	cacheControl(f)
	for _, e := range elsewhere {
		f.Refuse(e.name, e.why)
	}
}

// cacheControl reads a hint that has no effect.
func cacheControl(f *chat.Fields) {
	if o := f.Object("cache_control"); o != nil {
		o.OneOf("type", "ephemeral")
		o.Text("ttl")
		o.Done()
	}
}

func (q *Request) system(f *chat.Fields) {
	var parts []chat.Part
	if f.IsText("system") {
		parts = []chat.Part{{Text: f.Text("system")}}
	} else {
		for _, b := range f.Objects("system") {
			if kind := b.Needed("type"); kind != "text" {
				b.Fail("type", "a block of type %q cannot be in \"system\"; it takes text", clip(kind))
			}
			parts = append(parts, text(b))
			b.Done()
		}
	}
	if len(parts) > 0 {
		q.Chat.Messages = append(q.Chat.Messages, chat.Message{Role: "system", Parts: parts})
	}
}

// tools reads the functions that the model may call.
func (q *Request) tools(f *chat.Fields) {
	for _, t := range f.Objects("tools") {
		if kind := t.Text("type"); kind != "" && kind != "custom" {
			t.Fail("type", "tools of type %q are not supported: relay runs no tools itself; offer a tool with an \"input_schema\" of its own", clip(kind))
			return
		}
		tool := chat.Tool{Name: t.Needed("name"), Description: t.Text("description")}
		if t.Object("input_schema") == nil {
			t.Fail("input_schema", "\"input_schema\" is missing; it must be a JSON schema")
		}
		tool.Parameters = t.Raw("input_schema")
		cacheControl(t)
		t.Flag("strict")                // the input follows the schema in any case
		t.Flag("eager_input_streaming") // input comes as it is made in any case
		if on := t.Flag("defer_loading"); on != nil && *on {
			t.Fail("defer_loading", "\"defer_loading\": true is not supported: relay searches no tools; send only those that may be called")
		}
		t.Skip("input_examples", "allowed_callers")
		t.Done()
		q.Chat.Tools = append(q.Chat.Tools, tool)
	}
}

// toolChoice reads which of the tools are to be called. The engine knows auto,
// none and required: a choice of one tool is required with no other tools.
func (q *Request) toolChoice(f *chat.Fields) {
	c := f.Object("tool_choice")
	if c == nil {
		return
	}
	if len(q.Chat.Tools) == 0 {
		f.Fail("tool_choice", "there is a \"tool_choice\", but there are no \"tools\"")
	}
	switch kind := c.Needed("type"); kind {
	case "auto", "none":
		q.Chat.ToolChoice = kind
	case "any":
		q.Chat.ToolChoice = "required"
	case "tool":
		name := c.Needed("name")
		q.Chat.ToolChoice = "required"
		q.Chat.Tools = slices.DeleteFunc(q.Chat.Tools, func(t chat.Tool) bool { return t.Name != name })
		if len(q.Chat.Tools) == 0 {
			c.Fail("name", "there is no tool %q in \"tools\"", clip(name))
		}
	default:
		c.Fail("type", "a tool choice of type %q is not supported; use auto, any, tool or none", clip(kind))
	}
	if off := c.Flag("disable_parallel_tool_use"); off != nil {
		on := !*off
		q.Chat.Parallel = &on
	}
	c.Done()
}

// thinking reads whether the model should reason.
func (q *Request) thinking(f *chat.Fields) {
	o := f.Object("thinking")
	if o == nil {
		return
	}
	switch kind := o.Needed("type"); kind {
	case "enabled":
		if q.Chat.ThinkingBudget = o.Whole("budget_tokens", 1, math.MaxInt32); q.Chat.ThinkingBudget == nil {
			o.Fail("budget_tokens", "\"budget_tokens\" is missing; it must be a whole number of at least 1")
		}
	case "disabled":
		q.Chat.Effort = "none"
	case "adaptive": // as the model's template has it
	default:
		o.Fail("type", "thinking of type %q is not supported; use enabled, disabled or adaptive", clip(kind))
	}
	if o.OneOf("display", "summarized", "omitted") == "omitted" {
		o.Fail("display", "\"display\": \"omitted\" is not supported: thinking comes in full; leave it out")
	}
	o.Done()
}

// output reads the form of the answer.
func (q *Request) output(f *chat.Fields) {
	format := func(o *chat.Fields) {
		if o == nil {
			return
		}
		if kind := o.Needed("type"); kind != "json_schema" {
			o.Fail("type", "a format of type %q is not supported; use json_schema", clip(kind))
		}
		if o.Object("schema") == nil {
			o.Fail("schema", "\"schema\" is missing; it must be a JSON schema")
		}
		b := append([]byte(`{"type":"json_schema","json_schema":{"name":"answer","schema":`), o.Raw("schema")...)
		q.Chat.Format = append(b, "}}"...)
		o.Done()
	}
	format(f.Object("output_format")) // the older place of output_config.format
	o := f.Object("output_config")
	if o == nil {
		return
	}
	format(o.Object("format"))
	if s := o.OneOf("effort", "low", "medium", "high", "xhigh", "max"); s != "" && q.Chat.Effort == "" {
		q.Chat.Effort = s
	}
	o.Refuse("task_budget", "relay bounds an answer by \"max_tokens\" alone")
	o.Done()
}

// clip bounds what a client wrote.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
