package gguf

import (
	"strings"
	"testing"

	"relay/llama/gguf/gguftest"
)

// The idioms in which templates of several families take tools, or do not. The engine's
// own answer for each family is the same (supports_tools in chat_template_caps).
func TestPlacesTools(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		want     bool
	}{
		"llama 3":          {`{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}{%- if tools is not none and not tools_in_user_message %}…{%- endif %}`, true},
		"qwen":             {"{%- if tools %}\n{%- for tool in tools %}{{ tool | tojson }}{%- endfor %}{%- endif %}", true},
		"qwen, iterable":   {`{%- if tools is iterable and tools | length > 0 %}…{% endif %}`, true},
		"mistral":          {`{%- if (tools is not none) and (message == user_messages[-1]) %}[AVAILABLE_TOOLS]{% endif %}`, true},
		"hermes":           {`{{- '<tools>' }}{%- for tool in tools %}…{% endfor %}{{ '</tools>' }}`, true},
		"a macro's":        {`{{ render(namespace, tools=tools) }}`, true},
		"a map's":          {`{{ {"all": tools} | tojson }}`, true},
		"compared":         {`{% if tools == none %}…{% endif %}`, true},
		"gemma":            {`{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] }}{% endfor %}`, false},
		"phi, a message's": {`{% if 'tools' in message and message['tools'] is not none %}{{ message["tools"] }}{{ message.tools }}{% endif %}`, false},
		"only set":         {`{% set tools = none %}`, false},
		"tool calls only":  {`{% if message['role'] == 'tool' %}{{ message.tool_calls }}{{ xml_tools }}{{ tools_text }}{% endif %}`, false},
		"in the text":      {`You have tools. {tools} %tools% {{ '{{ tools }}' }}`, false},
		"in a comment":     {`{# {{ tools }} #}{{ messages }}`, false},
		"in a quote":       {`{{ "a \" tools \" b" }}{{ 'it\'s tools' }}`, false},
		"behind a comment": {`{# no #}{{ tools }}`, true},
		"never ended":      {`{{ 'tools`, false},
		"cut":              {`{`, false},
		"cut comment":      {`{# tools`, false},
		"cut escape":       {`{{ '\`, false},
		"empty":            {``, false},
		"braces inside":    {`{% set x = {"a": {"b": 1}} %}{% if tools %}{% endif %}`, true},
	} {
		if got := placesTools(c.template); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A template is looked into whole, wherever in it the tools are, if it is no longer than any real one.
func TestReadTools(t *testing.T) {
	const asks = "{{ tools }}"
	for _, c := range []struct {
		key  string
		text string
		want bool
	}{
		{"tokenizer.chat_template", asks, true},
		{"tokenizer.chat_template", strings.Repeat(" ", maxText) + asks, true},
		{"tokenizer.chat_template", strings.Repeat(" ", maxTemplates-len(asks)) + asks, true},
		{"tokenizer.chat_template", strings.Repeat(" ", maxTemplates) + asks, false},
		{"tokenizer.chat_template.tool_use", asks, true},
		{"tokenizer.chat_template.rag", asks, false},
		{"general.description", asks, false},
	} {
		data := models()[0].Without("tokenizer.chat_template").With(c.key, c.text).Bytes()
		within(t, func() {
			h, err := inMemory(data)
			if err != nil || h.Tools != c.want || h.HasChatTemplate != (c.key == "tokenizer.chat_template") {
				t.Errorf("%s of %d bytes: tools %v, template %v, %v", c.key, len(c.text), h.Tools, h.HasChatTemplate, err)
			}
		})
	}
}

// Two templates together are no more than one may be.
func TestReadTwoTemplates(t *testing.T) {
	for filler, want := range map[int]bool{maxTemplates / 2: true, maxTemplates/2 + 1: false, 31 << 20: false} {
		f := models()[0].With("tokenizer.chat_template", strings.Repeat("{", maxTemplates/2)).
			With("tokenizer.chat_template.tool_use", strings.Repeat("{{tools}}", filler/9+1)[:filler])
		data := f.Bytes()
		within(t, func() {
			if h, err := inMemory(data); err != nil || h.Tools != want {
				t.Errorf("%d bytes behind half of all: tools %v, %v", filler, h.Tools, err)
			}
		})
	}
}

// What a projector reads is in its header.
func TestReadProjector(t *testing.T) {
	for _, c := range []struct{ images, audio bool }{{true, false}, {false, true}, {true, true}, {false, false}} {
		h, err := inMemory(new(gguftest.File).With("general.architecture", "clip").With("clip.has_vision_encoder", c.images).With("clip.has_audio_encoder", c.audio).Bytes())
		if err != nil || h.Kind != KindProjector || h.Images != c.images || h.Audio != c.audio {
			t.Errorf("%+v: %+v, %v", c, h, err)
		}
	}
}
