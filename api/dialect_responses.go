package api

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"relay/api/chat"
	"relay/api/responses"
)

// responsesDialect is POST /v1/responses: OpenAI's, without a memory.
func responsesDialect(_ http.Header, body []byte) (*request, *refusal) {
	if no := checkObject(body); no != nil {
		return nil, no
	}
	asked, err := responses.Parse(body)
	if err != nil {
		return nil, ofField(err)
	}
	q, no := asking(&asked.Chat)
	if no != nil {
		return nil, no
	}
	q.asks = "input"
	q.streamed(chat.OfChat, asked.Chat.TopLogprobs != nil)
	q.stream = asked.Stream
	id := newID()
	q.reply = func(c *call, model string) reply {
		return &responding{stream: asked.Stream, to: responses.NewReply(asked, id, c.began.Unix(), model, c.grab)}
	}
	return q, nil
}

// inputTokensDialect is POST /v1/responses/input_tokens: what a response's prompt would take.
func inputTokensDialect(_ http.Header, body []byte) (*request, *refusal) {
	if no := checkObject(body); no != nil {
		return nil, no
	}
	asked, err := responses.Parse(body)
	if err != nil {
		return nil, ofField(err)
	}
	q, no := counting(&asked.Chat, `{"object":"response.input_tokens","input_tokens":%d}`)
	if no != nil {
		return nil, no
	}
	q.asks = "input"
	return q, nil
}

// responding renders a chat's chunks as OpenAI's events, or as one response.
type responding struct {
	stream bool
	to     *responses.Reply
	chunk  chat.Chunk
}

func (r *responding) event(c *chunk) ([]byte, error) {
	if err := r.chunk.Read(c.data); err != nil {
		return nil, err
	}
	return r.to.Chunk(nil, &r.chunk)
}

func (r *responding) end(usage) ([]byte, error) {
	if r.stream {
		return r.to.End(nil, time.Now().Unix())
	}
	return r.to.Whole(time.Now().Unix())
}

func (r *responding) failed(no *refusal) []byte {
	return r.to.Fail(nil, string(no.reason), no.message)
}

func (r *responding) keepAlive() []byte { return waiting }

// checkObject says what is wrong with a body that is no object as a client may send it.
func checkObject(body []byte) *refusal {
	if len(body) == 0 {
		return invalid("", "the body is empty; send JSON")
	}
	out, err := outlineOf(body)
	if no := notJSON(err); no != nil {
		return no
	}
	if out.twice != "" {
		return invalid(clip(out.twice, 100), "%q is in the body more than once; send it once", clip(out.twice, 100))
	}
	return nil
}

// ofField is the refusal for a request that was not understood.
func ofField(err error) *refusal {
	var at *chat.FieldError
	if errors.As(err, &at) {
		return invalid(at.Param, "%s", at.Message)
	}
	return invalid("", "%s", err)
}

// asking is a chat as the engine is asked for it.
func asking(c *chat.Request) (*request, *refusal) {
	if len(c.Model) > maxModelNamed {
		return nil, invalid("model", "the model's name is longer than %d bytes", maxModelNamed)
	}
	q, no := translated(c.Append(nil))
	if no != nil {
		return nil, no
	}
	q.tools = len(c.Tools) > 0 && c.ToolChoice != "none"
	return q, nil
}

// newID is for an answer: unique, of letters and digits.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
