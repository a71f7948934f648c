package chat

import (
	"encoding/json"
	"strconv"
)

// Request is a chat completion request, as relay writes one for the engine.
// How it is streamed is not part of it: whoever sends it adds that.
type Request struct {
	Model    string
	Messages []Message
	Tools    []Tool
	// ToolChoice is "", auto, none or required. The engine knows no choice of one
	// function: that is Required with only that tool.
	ToolChoice string
	// Parallel is whether one answer may have several tool calls; nil is the
	// engine's own default.
	Parallel *bool
	// Format is the response_format; nil is text.
	Format json.RawMessage
	// MaxTokens bounds the answer; nil is up to the context's end.
	MaxTokens   *int64
	Temperature json.RawMessage // numbers as the client wrote them
	TopP        json.RawMessage
	TopK        *int64
	Stop        []string
	// TopLogprobs is how many alternatives each token is told with; nil is no
	// probabilities at all.
	TopLogprobs *int64
	// Effort is the reasoning_effort: "none" turns reasoning off where the model's
	// template can, the others are the template's to honour.
	Effort string
	// ThinkingBudget bounds reasoning, in tokens; nil is the engine's own default.
	ThinkingBudget *int64
	// WhichStop asks the engine which of Stop ended the answer.
	WhichStop bool
}

// Message is one message of a chat.
type Message struct {
	Role      string // system, user, assistant or tool
	Parts     []Part
	Reasoning string     // of an assistant
	ToolCalls []ToolCall // of an assistant
	AnswerTo  string     // of a tool: the call's id
}

// Part is a text, or an image.
type Part struct {
	Text  string
	Image string // a data: URL
}

// Tool is a function that a model may call.
type Tool struct {
	Name, Description string
	// Parameters is a JSON schema; nil is an object without any.
	Parameters json.RawMessage
}

// Append writes the request as JSON.
func (r *Request) Append(dst []byte) []byte {
	dst = Quote(append(dst, `{"model":`...), r.Model)
	dst = append(dst, `,"messages":[`...)
	for i := range r.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.Messages[i].append(dst)
	}
	dst = append(dst, ']')
	dst = r.appendTools(dst)
	raw := func(name string, v json.RawMessage) {
		if len(v) > 0 {
			dst = append(append(dst, name...), v...)
		}
	}
	number := func(name string, v *int64) {
		if v != nil {
			dst = strconv.AppendInt(append(dst, name...), *v, 10)
		}
	}
	raw(`,"response_format":`, r.Format)
	number(`,"max_tokens":`, r.MaxTokens)
	raw(`,"temperature":`, r.Temperature)
	raw(`,"top_p":`, r.TopP)
	number(`,"top_k":`, r.TopK)
	if len(r.Stop) > 0 {
		dst = append(dst, `,"stop":[`...)
		for i, s := range r.Stop {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = Quote(dst, s)
		}
		dst = append(dst, ']')
	}
	if r.TopLogprobs != nil {
		dst = append(dst, `,"logprobs":true`...)
		number(`,"top_logprobs":`, r.TopLogprobs)
	}
	if r.Effort != "" {
		dst = Quote(append(dst, `,"reasoning_effort":`...), r.Effort)
	}
	number(`,"thinking_budget_tokens":`, r.ThinkingBudget)
	if r.WhichStop {
		dst = append(dst, `,"verbose":true,"response_fields":["stopping_word"]`...)
	}
	return append(dst, '}')
}

func (r *Request) appendTools(dst []byte) []byte {
	if len(r.Tools) == 0 {
		return dst
	}
	dst = append(dst, `,"tools":[`...)
	for i, t := range r.Tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = Quote(append(dst, `{"type":"function","function":{"name":`...), t.Name)
		if t.Description != "" {
			dst = Quote(append(dst, `,"description":`...), t.Description)
		}
		dst = append(dst, `,"parameters":`...)
		if len(t.Parameters) > 0 {
			dst = append(dst, t.Parameters...)
		} else {
			dst = append(dst, `{"type":"object","properties":{}}`...)
		}
		dst = append(dst, "}}"...)
	}
	dst = append(dst, ']')
	if r.ToolChoice != "" {
		dst = Quote(append(dst, `,"tool_choice":`...), r.ToolChoice)
	}
	if r.Parallel != nil {
		dst = strconv.AppendBool(append(dst, `,"parallel_tool_calls":`...), *r.Parallel)
	}
	return dst
}

func (m *Message) append(dst []byte) []byte {
	dst = Quote(append(dst, `{"role":`...), m.Role)
	dst = append(dst, `,"content":`...)
	switch {
	case len(m.Parts) == 0:
		dst = append(dst, `""`...)
	case len(m.Parts) == 1 && m.Parts[0].Image == "":
		dst = Quote(dst, m.Parts[0].Text)
	default:
		for i, p := range m.Parts {
			dst = append(dst, "[,"[min(i, 1)])
			if p.Image != "" {
				dst = Quote(append(dst, `{"type":"image_url","image_url":{"url":`...), p.Image)
				dst = append(dst, "}}"...)
			} else {
				dst = append(Quote(append(dst, `{"type":"text","text":`...), p.Text), '}')
			}
		}
		dst = append(dst, ']')
	}
	if m.Reasoning != "" {
		dst = Quote(append(dst, `,"reasoning_content":`...), m.Reasoning)
	}
	for i, c := range m.ToolCalls {
		if i == 0 {
			dst = append(dst, `,"tool_calls":`...)
		}
		dst = append(dst, "[,"[min(i, 1)])
		dst = appendCall(dst, c.ID, c.Name, c.Arguments)
	}
	if len(m.ToolCalls) > 0 {
		dst = append(dst, ']')
	}
	if m.Role == "tool" {
		dst = Quote(append(dst, `,"tool_call_id":`...), m.AnswerTo)
	}
	return append(dst, '}')
}

func appendCall(dst []byte, id, name, arguments string) []byte {
	dst = Quote(append(dst, `{"type":"function","function":{"name":`...), name)
	dst = Quote(append(dst, `,"arguments":`...), arguments)
	dst = Quote(append(dst, `},"id":`...), id)
	return append(dst, '}')
}
