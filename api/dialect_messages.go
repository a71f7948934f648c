package api

import (
	"net/http"

	"relay/api/chat"
	"relay/api/messages"
)

// messagesDialect is POST /v1/messages: Anthropic's.
func messagesDialect(_ http.Header, body []byte) (*request, *refusal) {
	if no := checkObject(body); no != nil {
		return nil, no
	}
	asked, err := messages.Parse(body)
	if err != nil {
		return nil, ofField(err)
	}
	q, no := asking(&asked.Chat)
	if no != nil {
		return nil, no
	}
	q.streamed(chat.OfChat, asked.Chat.TopLogprobs != nil)
	q.stream = asked.Stream
	id := newID()
	q.reply = func(c *call, model string) reply {
		return &messaging{stream: asked.Stream, request: c.id, to: messages.NewReply(asked, id, model, c.grab)}
	}
	return q, nil
}

// messaging renders a chat's chunks as Anthropic's events, or as one message.
type messaging struct {
	stream  bool
	request string // its id
	to      *messages.Reply
	chunk   chat.Chunk
}

func (m *messaging) event(c *chunk) ([]byte, error) {
	if err := m.chunk.Read(c.data); err != nil {
		return nil, err
	}
	return m.to.Chunk(nil, &m.chunk)
}

func (m *messaging) end(usage) ([]byte, error) {
	if m.stream {
		return m.to.End(nil)
	}
	return m.to.Whole()
}

func (m *messaging) failed(no *refusal) []byte { return shapeAnthropic{}.event(no, m.request) }

// keepAlive is a ping, but a stream has to begin with something else.
func (m *messaging) keepAlive() []byte {
	if m.to.Begun() {
		return []byte(messages.Ping)
	}
	return waiting
}

// countDialect is POST /v1/messages/count_tokens: what a request's prompt would take.
func countDialect(_ http.Header, body []byte) (*request, *refusal) {
	if no := checkObject(body); no != nil {
		return nil, no
	}
	asked, err := messages.ParseCount(body)
	if err != nil {
		return nil, ofField(err)
	}
	return counting(&asked.Chat, `{"input_tokens":%d}`)
}
