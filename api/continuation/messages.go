package continuation

import (
	"encoding/json"
	"strings"

	"relay/api/chat"
)

// conversation is what counts of a chat's messages.
type conversation struct {
	list []json.RawMessage
	// media: a message has a part that is no text.
	media bool
	// own is the last message, where that is the assistant's: the engine goes on with it.
	own *ownMessage
}

// ownMessage is the last message of a chat, where it is the assistant's.
type ownMessage struct {
	members            []member
	content, reasoning string
	calls              bool
}

func readMessages(v json.RawMessage) (c conversation) {
	chat.Elements(v, func(v json.RawMessage) {
		c.list = append(c.list, v)
		chat.Members(v, func(name []byte, v json.RawMessage) {
			if string(name) == "content" {
				_, media := content(v)
				c.media = c.media || media
			}
		})
	})
	if len(c.list) == 0 {
		return c
	}
	var own ownMessage
	role := ""
	chat.Members(c.list[len(c.list)-1], func(name []byte, v json.RawMessage) {
		own.members = append(own.members, member{string(name), v})
		switch string(name) {
		case "role":
			role = text(v)
		case "content":
			own.content, _ = content(v)
		case "reasoning_content":
			own.reasoning = text(v)
		case "tool_calls":
			own.calls = !isNull(v) && string(v) != "[]"
		}
	})
	if role == "assistant" {
		c.own = &own
	}
	return c
}

// content is a message's text, its parts joined as the engine joins them. media says that it
// has parts that are no text.
func content(v json.RawMessage) (all string, media bool) {
	if len(v) == 0 || v[0] != '[' {
		return text(v), false
	}
	var b strings.Builder
	chat.Elements(v, func(v json.RawMessage) {
		var kind, part string
		chat.Members(v, func(name []byte, v json.RawMessage) {
			switch string(name) {
			case "type":
				kind = text(v)
			case "text":
				part = text(v)
			}
		})
		if kind != "text" {
			media = true
			return
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(part)
	})
	return b.String(), media
}

// longer is the value of messages with what was delivered behind them: as a message of the
// assistant's, or more of its own last one.
func (c *conversation) longer(content, reasoning string) []byte {
	before := c.list
	q := request{members: []member{{"role", json.RawMessage(`"assistant"`)}}}
	if c.own != nil {
		before, q.members = before[:len(before)-1], c.own.members
		content, reasoning = c.own.content+content, c.own.reasoning+reasoning
	}
	b := []byte{'['}
	for _, m := range before {
		b = append(append(b, m...), ',')
	}
	said := [][]byte{chat.Quote([]byte(`,"content":`), content)}
	if reasoning != "" {
		said = append(said, chat.Quote([]byte(`,"reasoning_content":`), reasoning))
	}
	b = append(b, q.with([]string{"content", "reasoning_content", "tool_calls"}, said...)...)
	return append(b, ']')
}
