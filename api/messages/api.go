package messages

import "relay/api/chat"

// Request is a request to create a message.
type Request struct {
	// Chat is what the engine is asked.
	Chat   chat.Request
	Stream bool
}

// Parse reads a body that is one JSON object. The error is a *chat.FieldError.
func Parse(body []byte) (*Request, error) { panic("stub") }

// ParseCount reads a body of /v1/messages/count_tokens. The error is a
// *chat.FieldError.
func ParseCount(body []byte) (*Request, error) { panic("stub") }

// Reply is the answer to one request on its way to the client, either as events
// or whole. It is not for use by several goroutines.
type Reply struct{}

// NewReply begins the answer to q. id is unique, of letters and digits: the
// message's id is "msg_" before it. model is the name to answer with. grab is
// asked before n more bytes are held.
func NewReply(q *Request, id, model string, grab func(n int) bool) *Reply { panic("stub") }

// Chunk takes a chunk and appends the events that it makes to dst, whole ones
// with their blank lines; there are none for a request that is not streamed, nor
// before the answer has begun. The error is chat.ErrChunk or chat.ErrTooLarge.
func (r *Reply) Chunk(dst []byte, c *chat.Chunk) ([]byte, error) { panic("stub") }

// End appends the events that end a stream. The error is chat.ErrUnfinished.
func (r *Reply) End(dst []byte) ([]byte, error) { panic("stub") }

// Fail appends the event that ends a stream that broke off. kind is Anthropic's
// type of error.
func (r *Reply) Fail(dst []byte, kind, message string) []byte { panic("stub") }

// Whole is the unstreamed answer as JSON. The error is chat.ErrUnfinished.
func (r *Reply) Whole() ([]byte, error) { panic("stub") }

// Ping is the event that keeps a stream open that has begun; before that a
// comment does.
const Ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// Usage is what the answer took, as far as the engine has told.
func (r *Reply) Usage() (chat.Usage, bool) { panic("stub") }

// TokenizeBody makes the body for the engine's /tokenize of its answer to
// /apply-template.
func TokenizeBody(template []byte) ([]byte, error) { panic("stub") }

// Counted makes the answer of count_tokens of the engine's answer to /tokenize.
func Counted(tokens []byte) ([]byte, error) { panic("stub") }
