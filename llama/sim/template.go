package sim

import (
	"bytes"
	"encoding/json"
	"strings"
)

// message is one of a chat; content is a string or a list of parts.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
	Reasoning string          `json:"reasoning_content"`
}

// part is a part of a message's content.
type part struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// parts are those of the content; a string is one of type text.
func (m message) parts() ([]part, error) {
	if !given(m.Content) {
		return nil, nil
	}
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return []part{{Type: "text", Text: s}}, nil
	}
	var parts []part
	if json.Unmarshal(m.Content, &parts) != nil {
		return nil, refuse("Expected 'content' to be a string or an array")
	}
	return parts, nil
}

// text is the text of the content.
func (m message) text() string {
	var texts []string
	parts, _ := m.parts() // what is wrong with them the template says
	for _, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// calls are the tool calls of an assistant's message.
func (m message) calls() []tooled {
	var calls []tooled
	_ = json.Unmarshal(m.ToolCalls, &calls) // those that are none count as none
	return calls
}

// tooled is a tool call in a message.
type tooled struct {
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// prompt is a chat as the template writes it.
type prompt struct {
	text   string
	images [][]byte // in the order of their markers in text
	begun  begun
}

// begun is the assistant's last message, from which the answer goes on. It is
// repeated at the start of an answer, except for streams that were asked for by
// continue_final_message.
type begun struct {
	reasoning, content string
	phase              kind // saying or thinking
	silent             bool
}

// continued is the part of the last message that continue_final_message names:
// the content, the reasoning, or whatever it ends with.
type continued int

const (
	notContinued continued = iota
	asItEnds
	itsContent
	itsReasoning
)

func (p params) continued() continued {
	switch string(p.Continue) {
	case `true`:
		return asItEnds
	case `"content"`:
		return itsContent
	case `"reasoning_content"`:
		return itsReasoning
	}
	return notContinued
}

// chatTemplate is the template as /props shows it.
const chatTemplate = `{{ bos_token }}{%- if tools %}{{ '<|tool|>' + tools | tojson }}{% endif %}` +
	`{%- for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}` +
	`{%- for call in message['tool_calls'] %}{{ '<tool_call>' + call['function'] | tojson + '</tool_call>' }}{% endfor %}` +
	`{%- if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}`

// applyTemplate writes the tools that are on offer and the messages.
func (s *Server) applyTemplate(messages []message, p params) (prompt, error) {
	var out prompt
	var b strings.Builder
	var compact bytes.Buffer
	if given(p.Tools) && json.Compact(&compact, p.Tools) == nil && compact.String() != "[]" {
		b.WriteString(controls[tokenTool])
		b.Write(compact.Bytes())
	}
	for _, m := range messages {
		if m.Content == nil && m.Role != "assistant" {
			return out, refuse("All non-assistant messages must contain 'content'")
		}
		if m.Content == nil && m.ToolCalls == nil {
			return out, refuse("Assistant message must contain either 'content' or 'tool_calls'!")
		}
	}
	how, generation := p.continued(), p.Generation == nil || *p.Generation
	n := len(messages)
	answered := n > 0 && messages[n-1].Role == "assistant"
	switch {
	case how == notContinued && answered && n > 1 && messages[n-2].Role == "assistant":
		return out, refuse("Cannot have 2 or more assistant messages at the end of the list.")
	case how != notContinued && generation:
		return out, refuse("Cannot set both add_generation_prompt and continue_final_message to true.")
	case answered && len(messages[n-1].calls()) > 0:
		return out, refuse("Cannot continue an assistant message that contains tool calls.")
	}
	for i, m := range messages {
		text, err := s.contentText(m, &out)
		if err != nil {
			return out, err
		}
		b.WriteString("<|" + m.Role + "|>")
		if answered && i == n-1 {
			out.begun = m.begin(how, text)
			b.WriteString(out.begun.text())
			out.text = b.String()
			return out, nil
		}
		b.WriteString(text)
		if m.Role != "assistant" {
			continue
		}
		for _, c := range m.calls() {
			written, err := encode(object{{"name", c.Function.Name}, {"arguments", c.Function.Arguments}})
			if err != nil {
				return out, err
			}
			b.WriteString("<tool_call>" + string(written) + "</tool_call>")
		}
		b.WriteString(controls[tokenEOS])
	}
	if generation {
		b.WriteString(controls[tokenAssistant])
	}
	out.text = b.String()
	return out, nil
}

// begin is what the answer goes on from.
func (m message) begin(how continued, content string) begun {
	b := begun{reasoning: m.Reasoning, content: content, silent: how != notContinued}
	if how == itsReasoning || how != itsContent && content == "" && m.Reasoning != "" {
		b.content, b.phase = "", thinking
	}
	return b
}

// text is how the template writes it, as the answer itself would have: reasoning
// between two marks.
func (b begun) text() string {
	switch {
	case b.phase == thinking:
		return controls[tokenTool] + b.reasoning
	case b.reasoning != "":
		return controls[tokenTool] + b.reasoning + controls[tokenTool] + b.content
	}
	return b.content
}

// contentText is the text of a message, with a marker for each image.
func (s *Server) contentText(m message, out *prompt) (string, error) {
	parts, err := m.parts()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	marked := false // the last part was an image: there is no line's end behind it
	for _, p := range parts {
		switch p.Type {
		case "text":
			if b.Len() > 0 && !marked {
				b.WriteByte('\n')
			}
			b.WriteString(p.Text)
			marked = false
		case "image_url":
			if !s.opt.Images {
				return "", noMedia("image") // a 500, as the real one's
			}
			data, err := imageData(p.ImageURL.URL)
			if err != nil {
				return "", err
			}
			out.images = append(out.images, data)
			b.WriteString(s.media)
			marked = true
		case "input_audio":
			return "", noMedia("audio")
		case "input_video":
			return "", noMedia("video")
		default:
			return "", refuse("unsupported content[].type")
		}
	}
	return b.String(), nil
}

func noMedia(kind string) error {
	return fail("%s input is not supported - hint: if this is unexpected, you may need to provide the mmproj", kind)
}
