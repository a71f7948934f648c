package messages

import (
	"strings"

	"relay/api/chat"
)

// messages reads the conversation.
func (q *Request) messages(f *chat.Fields) {
	list := f.Objects("messages")
	if len(list) == 0 {
		f.Fail("messages", "\"messages\" is missing; it must be a list of messages that is not empty")
	}
	for _, m := range list {
		if !f.OK() {
			return
		}
		q.message(m)
		m.Done()
	}
	if last := q.Chat.Messages[max(0, len(q.Chat.Messages)-1):]; len(last) == 1 && last[0].Role == "assistant" && len(last[0].ToolCalls) == 0 {
		texts := make([]string, len(last[0].Parts))
		for i, p := range last[0].Parts {
			texts[i] = p.Text
		}
		q.prefill = strings.Join(texts, "\n") // as the engine reads them
	}
}

// message reads one message. What a user answers to tool calls is a message of
// its own for each call; the order stays.
func (q *Request) message(f *chat.Fields) {
	role := f.OneOf("role", "user", "assistant")
	if role == "" {
		f.Fail("role", "\"role\" is missing; it must be user or assistant")
	}
	m := chat.Message{Role: role}
	switch {
	case f.IsText("content"):
		m.Parts = []chat.Part{{Text: f.Text("content")}}
	case !f.Has("content"):
		f.Fail("content", "\"content\" is missing; it must be a string or a list of blocks")
	}
	flush := func() {
		if len(m.Parts) > 0 || len(m.ToolCalls) > 0 || m.Reasoning != "" {
			q.Chat.Messages = append(q.Chat.Messages, m)
		}
		m = chat.Message{Role: role}
	}
	if !f.IsText("content") {
		for _, b := range f.Objects("content") {
			switch kind := b.Needed("type"); {
			case kind == "tool_result" && role == "user":
				flush()
				q.Chat.Messages = append(q.Chat.Messages, toolResult(b))
			case kind == "tool_use" && role == "assistant":
				c := chat.ToolCall{ID: b.Needed("id"), Name: b.Needed("name"), Arguments: "{}"}
				if b.Object("input") != nil {
					c.Arguments = string(b.Raw("input"))
				}
				b.Skip("caller")
				m.ToolCalls = append(m.ToolCalls, c)
			case kind == "thinking" && role == "assistant":
				m.Reasoning += b.Text("thinking")
				b.Text("signature")
			case kind == "redacted_thinking" && role == "assistant":
				b.Text("data")
			default:
				m.Parts = append(m.Parts, textOrImage(b, kind))
			}
			cacheControl(b)
			b.Done()
		}
	}
	flush()
}

// toolResult reads what came of a tool call.
func toolResult(b *chat.Fields) chat.Message {
	m := chat.Message{Role: "tool", AnswerTo: b.Needed("tool_use_id")}
	if b.IsText("content") {
		m.Parts = []chat.Part{{Text: b.Text("content")}}
	} else {
		for _, c := range b.Objects("content") {
			m.Parts = append(m.Parts, textOrImage(c, c.Needed("type")))
			cacheControl(c)
			c.Done()
		}
	}
	if bad := b.Flag("is_error"); bad != nil && *bad {
		if len(m.Parts) == 0 || m.Parts[0].Image != "" {
			m.Parts = append([]chat.Part{{}}, m.Parts...)
		}
		m.Parts[0].Text = "Error: " + m.Parts[0].Text
	}
	return m
}

// textOrImage reads a text or an image.
func textOrImage(b *chat.Fields, kind string) chat.Part {
	switch kind {
	case "text":
		return text(b)
	case "image":
		return image(b)
	}
	b.Fail("type", "a block of type %q is not supported here; relay takes text and image, tool_result from the user, tool_use and thinking from the assistant", clip(kind))
	return chat.Part{}
}

func text(b *chat.Fields) chat.Part {
	b.Skip("citations")
	cacheControl(b)
	return chat.Part{Text: b.Text("text")}
}

func image(b *chat.Fields) chat.Part {
	s := b.Object("source")
	if s == nil {
		b.Fail("source", "\"source\" is missing; it must be an object with the image in base64")
		return chat.Part{}
	}
	switch kind := s.Needed("type"); kind {
	case "base64":
	case "url":
		s.Fail("url", "images must be in the body, as a source of type \"base64\": relay fetches nothing for a request")
	default:
		s.Fail("type", "an image's source of type %q is not supported; use base64", clip(kind))
	}
	kind := s.OneOf("media_type", "image/jpeg", "image/png", "image/gif", "image/webp")
	if kind == "" {
		s.Fail("media_type", "\"media_type\" is missing; it must be image/jpeg, image/png, image/gif or image/webp")
	}
	data := s.Needed("data")
	s.Done()
	return chat.Part{Image: "data:" + kind + ";base64," + data}
}
