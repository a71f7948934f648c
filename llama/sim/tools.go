package sim

import (
	"bytes"
	"encoding/json"
)

// tool is one that a request offers.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// toolbox is the tools of a chat, and whether one must be called. There are none
// where none may be.
func (p params) toolbox() (tools []tool, must bool, err error) {
	choice := "auto"
	// Of a tool_choice that names a function llama-server takes no notice, and
	// parallel_tool_calls does not keep every model from several calls.
	_ = json.Unmarshal(p.ToolChoice, &choice)
	if !given(p.Tools) {
		return nil, false, nil
	}
	if json.Unmarshal(p.Tools, &tools) != nil {
		return nil, false, p.badTools("Expected 'tools' to be an array, got " + string(p.Tools))
	}
	for _, t := range tools {
		switch {
		case t.Type != "function":
			return nil, false, p.badTools("Unsupported tool type: " + t.Type)
		case t.Function.Name == "":
			return nil, false, p.badTools("[json.exception.out_of_range.403] key 'name' not found")
		}
	}
	switch choice {
	case "auto", "required":
	case "none":
		return nil, false, nil
	default:
		return nil, false, refuse("Invalid tool_choice: %s", choice)
	}
	if len(tools) == 0 {
		return nil, false, nil
	}
	if len(p.Grammar) > 0 {
		return nil, false, refuse("Cannot use custom grammar constraints with tools.")
	}
	if string(p.Logprobs) == "true" && p.Stream {
		return nil, false, refuse("logprobs is not supported with tools + stream")
	}
	return tools, choice == "required", nil
}

func (p params) badTools(why string) error {
	var b bytes.Buffer
	_ = json.Indent(&b, p.Tools, "", "  ") // it has been read once
	return fail("Failed to parse tools: %s; tools = %s", why, b.String())
}

// given says whether a field is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// schema is the one that the answer has to keep to, or nil.
func (p params) schema(chat bool) (json.RawMessage, error) {
	schema := p.JSONSchema
	if chat {
		var grammar string
		_ = json.Unmarshal(p.Grammar, &grammar)
		if given(schema) && grammar != "" {
			return nil, fail("Cannot use both json_schema and grammar")
		}
		var format struct {
			Type       string          `json:"type"`
			Schema     json.RawMessage `json:"schema"`
			JSONSchema struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		}
		_ = json.Unmarshal(p.ResponseFormat, &format)
		switch format.Type {
		case "", "text":
		case "json_object":
			if given(format.Schema) {
				schema = format.Schema
			}
		case "json_schema":
			schema = format.JSONSchema.Schema
		default:
			return nil, refuse("response_format type must be one of \"text\" or \"json_object\", but got: %s", format.Type)
		}
	}
	var b bytes.Buffer
	if !given(schema) || json.Compact(&b, schema) != nil || b.String() == "{}" {
		return nil, nil // an empty one binds llama-server to nothing
	}
	return schema, nil
}

// plan settles the answer of a chat or a completion to a prompt where a script,
// a tool that must be called or a schema does; else it is nil.
func (s *Server) plan(p params, chat bool, messages []message, b begun, ids []int) (*plan, error) {
	c := newChain(s.opt.Seed)
	for _, id := range ids {
		c = c.add(id)
	}
	var tools []tool
	var must bool
	var err error
	if chat {
		if tools, must, err = p.toolbox(); err != nil {
			return nil, err
		}
		t := turn(s.opt.Scripts, messages, len(tools) > 0)
		if t != nil && (!must || len(t.ToolCalls) > 0) {
			return t.after(b).plan(c, tools)
		}
	} else if p := s.asked(ids); p != nil {
		return p, nil
	}
	if must {
		first := tools[int(c.mix()%uint64(len(tools)))].Function
		arguments := "{}"
		if given(first.Parameters) {
			if arguments, err = valueFor(first.Parameters, c); err != nil {
				return nil, refuse("Unable to generate parser for this template. Automatic parser generation failed: JSON schema conversion failed:\n%v", err)
			}
		}
		out := &plan{}
		out.invoke(c, first.Name, arguments)
		return out, nil
	}
	schema, err := p.schema(chat)
	if err != nil || schema == nil {
		return nil, err
	}
	value, err := valueFor(schema, c)
	switch {
	case err != nil && chat:
		return nil, refuse("Unable to generate parser for this template. Automatic parser generation failed: JSON schema conversion failed:\n%v", err)
	case err != nil:
		return nil, refuse("Field 'json_schema': \"json_schema\": JSON schema conversion failed:\n%v", err)
	}
	out := &plan{}
	out.add(saying, value)
	return out, nil
}
