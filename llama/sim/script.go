package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Script is what the stand-in says in a chat, turn by turn, instead of what
// follows from the tokens: what a model would do that uses tools.
type Script struct {
	// Match is a part of the user's message that the script is for; empty means
	// every one. The first script that matches counts.
	Match string `json:"match"`
	// Turns are the answers. Turn k, from 0, is given when the assistant has
	// called tools k times since the user's message. A turn that calls tools is
	// given only where the request has some and its tool_choice is not "none".
	// Other requests, and those past the end, are answered as without a script. Of a
	// turn that is begun, as the assistant's last message or in the ids of a prompt that
	// the template could have written, the rest is given.
	Turns []Turn `json:"turns"`
}

// Turn is one answer of a script. It has at least one of its parts, and they
// come in this order.
type Turn struct {
	ReasoningContent string     `json:"reasoning_content"`
	Content          string     `json:"content"`
	ToolCalls        []ToolCall `json:"tool_calls"`
	// FinishReason is stop, length or tool_calls; empty means tool_calls where
	// there are some, and stop.
	FinishReason string `json:"finish_reason"`
}

// ToolCall calls a tool of the request. Arguments are JSON of any kind, or a
// JSON string, whose text is passed on as it is even where it is no JSON.
type ToolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Bounds of scripts: bytes of a file, scripts in it, turns of one, calls in a
// turn.
const (
	MaxScriptBytes = 1 << 20
	maxScripts     = 64
	maxTurns       = 256
	maxCalls       = 32
)

// ParseScripts reads a JSON list of scripts of at most 1 MiB.
func ParseScripts(b []byte) ([]Script, error) {
	if len(b) > MaxScriptBytes {
		return nil, fmt.Errorf("scripts: %d bytes are more than %d", len(b), MaxScriptBytes)
	}
	var all []Script
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("scripts: not a list of scripts: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("scripts: there is something behind the list")
	}
	return all, validateScripts(all)
}

func validateScripts(all []Script) error {
	if len(all) > maxScripts {
		return fmt.Errorf("scripts: %d are more than %d", len(all), maxScripts)
	}
	for i, s := range all {
		if len(s.Turns) == 0 || len(s.Turns) > maxTurns {
			return fmt.Errorf("scripts: script %d has %d turns, not 1 to %d", i, len(s.Turns), maxTurns)
		}
		for j, t := range s.Turns {
			if err := t.validate(); err != nil {
				return fmt.Errorf("scripts: script %d, turn %d: %w", i, j, err)
			}
		}
	}
	return nil
}

func (t Turn) validate() error {
	switch {
	case t.Content == "" && t.ReasoningContent == "" && len(t.ToolCalls) == 0:
		return fmt.Errorf("it says nothing: it needs content, reasoning_content or tool_calls")
	case len(t.ToolCalls) > maxCalls:
		return fmt.Errorf("%d tool calls are more than %d", len(t.ToolCalls), maxCalls)
	case !slices.Contains([]string{"", "stop", "length", "tool_calls"}, t.FinishReason):
		return fmt.Errorf("finish_reason %q is none of stop, length, tool_calls", t.FinishReason)
	}
	for _, c := range t.ToolCalls {
		if c.Name == "" {
			return fmt.Errorf("a tool call has no name")
		}
	}
	return nil
}

// text is the arguments as a model would write them.
func (c ToolCall) text() string {
	var s string
	if json.Unmarshal(c.Arguments, &s) == nil && s != "" {
		return s
	}
	var b bytes.Buffer
	if len(c.Arguments) == 0 || json.Compact(&b, c.Arguments) != nil {
		return "{}"
	}
	return b.String()
}

// turn is what the scripts say to a chat, or nil.
func turn(scripts []Script, messages []message, tools bool) *Turn {
	question, called := lastQuestion(messages)
	for _, s := range scripts {
		if !strings.Contains(question, s.Match) {
			continue
		}
		if called >= len(s.Turns) || len(s.Turns[called].ToolCalls) > 0 && !tools {
			return nil
		}
		return &s.Turns[called]
	}
	return nil
}

// lastQuestion is the text of the user's last message, and how often the
// assistant has called tools since. What a user's message right behind a tool's
// result says belongs to the result.
func lastQuestion(messages []message) (text string, called int) {
	for i, m := range messages {
		switch {
		case m.Role == "user" && (i == 0 || messages[i-1].Role != "tool"):
			text, called = m.text(), 0
		case m.Role == "assistant" && len(m.calls()) > 0:
			called++
		}
	}
	return text, called
}

// after is what is left of a turn behind what is begun, or the whole of it where
// that is no beginning of it.
func (t Turn) after(b begun) Turn {
	reasoning, ok := strings.CutPrefix(t.ReasoningContent, b.reasoning)
	content, ok2 := strings.CutPrefix(t.Content, b.content)
	switch {
	case b.reasoning+b.content == "":
	case b.phase == thinking && ok:
		t.ReasoningContent = reasoning
	case b.phase == saying && ok2:
		t.ReasoningContent, t.Content = "", content
	}
	return t
}

// asked is what is left of a turn, without tools, that a prompt of ids asks for:
// one that a chat was written as, with the ids of the answer so far behind it.
func (s *Server) asked(ids []int) *plan {
	end := -1
	for i, id := range ids {
		if id == tokenAssistant {
			end = i
		}
	}
	if end < 0 || len(s.opt.Scripts) == 0 {
		return nil
	}
	t := turn(s.opt.Scripts, messagesOf(ids[:end]), false)
	if t == nil {
		return nil
	}
	p, err := t.plan(0, nil)
	so := ids[end+1:]
	if err != nil || len(so) > len(p.steps) {
		return nil
	}
	for i, id := range so {
		if p.steps[i].id != id {
			return nil
		}
	}
	p.steps = p.steps[len(so):]
	for i, step := range p.steps {
		p.steps[i].kind, p.steps[i].mark, p.steps[i].text = saying, false, Piece(step.id)
	}
	return p
}

// messagesOf are the messages that the template wrote as ids.
func messagesOf(ids []int) []message {
	roles := map[int]string{tokenSystem: "system", tokenUser: "user", tokenAssistant: "assistant", tokenTool: "tool"}
	var messages []message
	for len(ids) > 0 {
		next := 1
		for next < len(ids) && roles[ids[next]] == "" {
			next++
		}
		if role := roles[ids[0]]; role != "" {
			content, _ := encode(Detokenize(ids[1:next])) // a string always has a JSON
			messages = append(messages, message{Role: role, Content: content})
		}
		ids = ids[next:]
	}
	return messages
}

// plan is a turn as an answer to a request with these tools.
func (t Turn) plan(c chain, tools []tool) (*plan, error) {
	p := &plan{finish: t.FinishReason}
	p.think(t.ReasoningContent)
	p.add(saying, t.Content)
	for _, call := range t.ToolCalls {
		if !slices.ContainsFunc(tools, func(o tool) bool { return o.Function.Name == call.Name }) {
			return nil, refuse("the script calls %q, which is not among the tools of the request", call.Name)
		}
		p.invoke(c, call.Name, call.text())
	}
	return p, nil
}
