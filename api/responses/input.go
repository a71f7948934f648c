package responses

import (
	"slices"
	"strings"

	"relay/api/chat"
)

// input reads the conversation.
func (q *Request) input(f *chat.Fields) {
	if f.IsText("input") {
		q.add(chat.Message{Role: "user", Parts: []chat.Part{{Text: f.Text("input")}}})
		return
	}
	items := f.Objects("input")
	if len(items) == 0 {
		f.Fail("input", "\"input\" is missing; it must be a string or a list of items that is not empty")
	}
	for _, it := range items {
		if !f.OK() {
			return
		}
		q.item(it)
		it.Done()
	}
	if n := len(q.Chat.Messages); n > 0 {
		if last := q.Chat.Messages[n-1]; last.Role == "assistant" && len(last.ToolCalls) == 0 {
			q.prefill = joined(last.Parts)
		}
	}
}

// joined is how the engine reads several texts.
func joined(parts []chat.Part) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n")
}

// item reads one item of the conversation.
func (q *Request) item(it *chat.Fields) {
	kind := it.Text("type")
	if kind == "" && it.Has("role") {
		kind = "message"
	}
	it.Skip("id", "status")
	switch kind {
	case "message":
		q.message(it)
	case "function_call":
		m := q.assistant()
		m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: it.Needed("call_id"), Name: it.Needed("name"), Arguments: it.Text("arguments")})
		it.Skip("parsed_arguments") // an SDK's own addition to what it was sent
	case "function_call_output":
		m := chat.Message{Role: "tool", AnswerTo: it.Needed("call_id")}
		if it.IsText("output") {
			m.Parts = []chat.Part{{Text: it.Text("output")}}
		} else {
			m.Parts = parts(it, "output")
		}
		q.Chat.Messages = append(q.Chat.Messages, m)
	case "reasoning":
		q.thought(it)
	case "item_reference":
		it.Fail("type", "items of type \"item_reference\" are not supported: relay keeps no items; send the item itself")
	case "":
		it.Fail("type", "an item needs a \"type\", or a \"role\"")
	default:
		it.Fail("type", "items of type %q are not supported; relay takes message, function_call, function_call_output and reasoning", clip(kind))
	}
}

// message reads a message, or an answer of before.
func (q *Request) message(it *chat.Fields) {
	role := it.OneOf("role", "user", "assistant", "system", "developer")
	it.Skip("phase", "name")
	var content []chat.Part
	switch {
	case it.IsText("content"):
		content = []chat.Part{{Text: it.Text("content")}}
	case it.Has("content"):
		content = parts(it, "content")
	default:
		it.Fail("content", "\"content\" is missing; it must be a string or a list of parts")
	}
	switch role {
	case "":
		it.Fail("role", "\"role\" is missing; it must be user, assistant, system or developer")
	case "assistant":
		m := q.assistant()
		m.Parts = append(m.Parts, content...)
	case "developer":
		role = "system" // few templates know the other word
		fallthrough
	default:
		q.add(chat.Message{Role: role, Parts: content})
	}
}

// add puts a message at the end. Many templates take one system message, at the
// beginning: those that begin a conversation are one.
func (q *Request) add(m chat.Message) {
	image := func(p chat.Part) bool { return p.Image != "" }
	if n := len(q.Chat.Messages); m.Role == "system" && n == 1 && q.Chat.Messages[0].Role == "system" &&
		!slices.ContainsFunc(m.Parts, image) && !slices.ContainsFunc(q.Chat.Messages[0].Parts, image) {
		first := &q.Chat.Messages[0]
		first.Parts = []chat.Part{{Text: joined(first.Parts) + "\n\n" + joined(m.Parts)}}
		return
	}
	q.Chat.Messages = append(q.Chat.Messages, m)
}

// assistant is the assistant's message at the end of the conversation: what it
// thought, said and called is one, in items of their own.
func (q *Request) assistant() *chat.Message {
	n := len(q.Chat.Messages)
	if n == 0 || q.Chat.Messages[n-1].Role != "assistant" {
		q.Chat.Messages = append(q.Chat.Messages, chat.Message{Role: "assistant"})
		n++
	}
	return &q.Chat.Messages[n-1]
}

// thought reads reasoning of before.
func (q *Request) thought(it *chat.Fields) {
	it.Skip("encrypted_content")
	for _, s := range it.Objects("summary") {
		s.Skip("type", "text")
		s.Done()
	}
	var text strings.Builder
	for _, p := range it.Objects("content") {
		p.OneOf("type", "reasoning_text")
		text.WriteString(p.Text("text"))
		p.Done()
	}
	if text.Len() > 0 {
		q.assistant().Reasoning += text.String()
	}
}

// parts reads what a message is made of.
func parts(it *chat.Fields, name string) (list []chat.Part) {
	for _, p := range it.Objects(name) {
		switch kind := p.Needed("type"); kind {
		case "input_text", "output_text", "text":
			list = append(list, chat.Part{Text: p.Text("text")})
			p.Skip("annotations", "logprobs", "parsed")
		case "refusal":
			list = append(list, chat.Part{Text: p.Text("refusal")})
		case "input_image":
			p.Refuse("file_id", "relay keeps no files; send the image in \"image_url\" as a data: URL")
			p.OneOf("detail", "auto", "low", "high", "original") // the projector has one size
			url := p.Needed("image_url")
			if !strings.HasPrefix(strings.ToLower(url[:min(len(url), 5)]), "data:") {
				p.Fail("image_url", "images must be in the body as \"data:\" URLs: relay fetches nothing for a request, and this one names %q", clip(url))
			}
			list = append(list, chat.Part{Image: url})
		default:
			p.Fail("type", "content of type %q is not supported; relay takes input_text, input_image, output_text and refusal", clip(kind))
		}
		p.Done()
	}
	return list
}
