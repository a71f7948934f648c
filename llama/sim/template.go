package sim

import (
	"encoding/json"
	"strings"
)

// message is one of a chat; content is a string or a list of parts.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// chatTemplate is the template as /props shows it.
const chatTemplate = `{{ bos_token }}{%- for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}` +
	`{%- if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}`

// applyTemplate turns messages into a prompt. When the last message is the
// assistant's, the answer goes on from it, and prefill is its text, which
// llama-server repeats at the start of its answer.
func applyTemplate(messages []message) (prompt, prefill string, err error) {
	if n := len(messages); n > 1 && messages[n-1].Role == "assistant" && messages[n-2].Role == "assistant" {
		return "", "", refuse("Cannot have 2 or more assistant messages at the end of the list.")
	}
	var b strings.Builder
	for i, m := range messages {
		if m.Content == nil && m.Role != "assistant" {
			return "", "", refuse("All non-assistant messages must contain 'content'")
		}
		if m.Content == nil && m.ToolCalls == nil {
			return "", "", refuse("Assistant message must contain either 'content' or 'tool_calls'!")
		}
		text, err := contentText(m.Content)
		if err != nil {
			return "", "", err
		}
		b.WriteString("<|" + m.Role + "|>" + text)
		if m.Role != "assistant" {
			continue
		}
		if i == len(messages)-1 {
			return b.String(), text, nil
		}
		b.WriteString(controls[tokenEOS])
	}
	b.WriteString(controls[tokenAssistant])
	return b.String(), "", nil
}

func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", refuse("Expected 'content' to be a string or an array")
	}
	var texts []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "image_url":
			// The real one answers 500 here, so this one does.
			return "", fail("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj")
		case "input_audio":
			return "", fail("audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj")
		case "input_video":
			return "", fail("video input is not supported - hint: if this is unexpected, you may need to provide the mmproj")
		default:
			return "", refuse("unsupported content[].type")
		}
	}
	return strings.Join(texts, "\n"), nil
}
