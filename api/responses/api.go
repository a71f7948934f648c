package responses

import "relay/api/chat"

// Request is a request to create a response.
type Request struct {
	// Chat is what the engine is asked.
	Chat   chat.Request
	Stream bool
}

// Parse reads a body that is one JSON object. The error is a *chat.FieldError.
func Parse(body []byte) (*Request, error) { panic("stub") }

// Reply is the answer to one request on its way to the client, either as events
// or whole. It is not for use by several goroutines.
type Reply struct{}

// NewReply begins the answer to q. id is unique, of letters and digits: the
// response's id is "resp_" before it. now is the time in Unix seconds. model is
// the name to answer with. grab is asked before n more bytes are held.
func NewReply(q *Request, id string, now int64, model string, grab func(n int) bool) *Reply {
	panic("stub")
}

// Chunk takes a chunk and appends the events that it makes to dst, whole ones
// with their blank lines; there are none for a request that is not streamed, nor
// before the answer has begun. The error is chat.ErrChunk or chat.ErrTooLarge.
func (r *Reply) Chunk(dst []byte, c *chat.Chunk) ([]byte, error) { panic("stub") }

// End appends the events that end a stream. The error is chat.ErrUnfinished.
// now is the time in Unix seconds.
func (r *Reply) End(dst []byte, now int64) ([]byte, error) { panic("stub") }

// Fail appends the events that end a stream that broke off.
func (r *Reply) Fail(dst []byte, code, message string) []byte { panic("stub") }

// Whole is the unstreamed answer as JSON. The error is chat.ErrUnfinished.
func (r *Reply) Whole(now int64) ([]byte, error) { panic("stub") }

// Usage is what the answer took, as far as the engine has told.
func (r *Reply) Usage() (chat.Usage, bool) { panic("stub") }
