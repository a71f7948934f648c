package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"relay/api/chat"
)

// Ping is the event that keeps a stream open that has begun.
const Ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// Reply is the answer to one request on its way to the client, either as events
// or whole. What relay has nothing for is null: clients count on its name. It is
// not for use by several goroutines.
type Reply struct {
	q     *Request
	id    string
	model string
	grab  func(n int) bool

	begun  bool
	prefix chat.Prefix
	blocks []*block // all of them, where the answer is not streamed
	open   *block   // the one that goes on
	count  int      // blocks that have begun
	calls  int      // tool calls that have begun
	finish string
	word   string // the stop sequence that ended the answer
	meter  chat.Meter
}

// block is one block of the answer.
type block struct {
	kind  kind
	index int
	// text is what was said or thought, or the input of a tool; it is kept where
	// the answer is not streamed.
	text     chat.Text
	id, name string // of a tool's use
}

type kind int

const (
	said kind = iota
	thought
	toolUse
)

// perBlock is what a block takes beside its bytes, perMessage a message beside its
// blocks; at most.
const (
	perBlock   = 256
	perMessage = 1024
)

// NewReply begins the answer to q. id is unique, of letters and digits: the
// message's id is "msg_" before it. model is the name to answer with. grab is
// asked before n more bytes are held; nil grants all.
func NewReply(q *Request, id, model string, grab func(n int) bool) *Reply {
	if grab == nil {
		grab = func(int) bool { return true }
	}
	return &Reply{q: q, id: id, model: model, grab: grab, prefix: chat.NewPrefix(q.prefill)}
}

// Chunk takes a chunk and appends the events that it makes to dst, whole ones
// with their blank lines; there are none for a request that is not streamed, nor
// before the answer has begun. The error is chat.ErrChunk or chat.ErrTooLarge.
func (r *Reply) Chunk(dst []byte, c *chat.Chunk) (_ []byte, err error) {
	r.meter.Add(c)
	if c.Empty() {
		return dst, nil
	}
	dst = r.begin(dst)
	// The engine says so with the chunk that has the reason for the end.
	if slices.Contains(r.q.Chat.Stop, c.StoppingWord) {
		r.word = c.StoppingWord
	}
	for i := range c.Choices {
		if dst, err = r.choice(dst, &c.Choices[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (r *Reply) begin(dst []byte) []byte {
	if r.begun {
		return dst
	}
	r.begun = true
	if !r.q.Stream {
		return dst
	}
	dst = append(dst, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	dst = r.head(dst)
	dst = append(dst, `[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"usage":`...)
	u := r.meter.Usage()
	u.Completion = min(u.Completion, 1)
	return append(append(appendUsage(dst, u), "}}\n\n"...), Ping...)
}

// head writes a message up to its content.
func (r *Reply) head(dst []byte) []byte {
	dst = append(append(append(dst, `{"id":"msg_`...), r.id...), `","type":"message","role":"assistant","diagnostics":null,"model":`...)
	return append(chat.Quote(dst, r.model), `,"content":`...)
}

func appendUsage(dst []byte, u chat.Usage) []byte {
	number := func(name string, n int) { dst = strconv.AppendInt(append(dst, name...), int64(n), 10) }
	number(`{"input_tokens":`, max(0, u.Prompt-u.Cached))
	number(`,"cache_creation_input_tokens":0,"cache_read_input_tokens":`, u.Cached)
	number(`,"output_tokens":`, u.Completion)
	return append(dst, `,"output_tokens_details":null,"cache_creation":null,"server_tool_use":null,"inference_geo":null,"speed":null,"service_tier":"standard"}`...)
}

func (r *Reply) choice(dst []byte, c *chat.Choice) (_ []byte, err error) {
	if c.Index != 0 {
		return dst, fmt.Errorf("%w: there is no choice %d", chat.ErrChunk, c.Index)
	}
	if c.Delta.Reasoning != "" {
		if dst, err = r.say(dst, thought, c.Delta.Reasoning); err != nil {
			return dst, err
		}
	}
	if text := r.prefix.Strip(c.Delta.Content); text != "" {
		if dst, err = r.say(dst, said, text); err != nil {
			return dst, err
		}
	}
	for i := range c.Delta.ToolCalls {
		if dst, err = r.call(dst, &c.Delta.ToolCalls[i]); err != nil {
			return dst, err
		}
	}
	if c.Finish != "" {
		r.finish = c.Finish
	}
	return dst, nil
}

// say takes a piece of what is said or thought.
func (r *Reply) say(dst []byte, k kind, text string) ([]byte, error) {
	if r.open == nil || r.open.kind != k {
		var err error
		if dst, err = r.start(dst, block{kind: k}); err != nil {
			return dst, err
		}
	}
	if k == thought {
		return r.delta(dst, `{"type":"thinking_delta","thinking":`, text)
	}
	return r.delta(dst, `{"type":"text_delta","text":`, text)
}

// call takes a piece of a tool call. Calls come one after another.
func (r *Reply) call(dst []byte, c *chat.ToolCall) ([]byte, error) {
	switch {
	case c.Index == r.calls && c.Name != "":
		b := block{kind: toolUse, id: c.ID, name: c.Name}
		if b.id == "" {
			b.id = "toolu_" + r.id + "x" + strconv.Itoa(r.calls)
		}
		var err error
		if dst, err = r.start(dst, b); err != nil {
			return dst, err
		}
		r.calls++
	case c.Index < 0 || c.Index != r.calls-1 || r.open == nil || r.open.kind != toolUse:
		return dst, fmt.Errorf("%w: a piece of tool call %d is out of turn", chat.ErrChunk, c.Index)
	}
	if c.Arguments == "" {
		return dst, nil
	}
	return r.delta(dst, `{"type":"input_json_delta","partial_json":`, c.Arguments)
}

// start begins a block.
func (r *Reply) start(dst []byte, b block) ([]byte, error) {
	if !r.grab(perBlock + len(b.id) + len(b.name)) {
		return dst, chat.ErrTooLarge
	}
	dst = r.closeBlock(dst)
	b.index = r.count
	r.count++
	r.open = &b
	if !r.q.Stream {
		r.blocks = append(r.blocks, r.open)
		return dst, nil
	}
	dst = b.event(dst, "content_block_start")
	return append(b.append(append(dst, `,"content_block":`...)), "}\n\n"...), nil
}

// delta passes a piece of the open block on, or keeps it.
func (r *Reply) delta(dst []byte, head, text string) ([]byte, error) {
	if !r.q.Stream {
		return dst, r.open.text.Add(text, r.grab)
	}
	dst = append(append(r.open.event(dst, "content_block_delta"), `,"delta":`...), head...)
	return append(chat.Quote(dst, text), "}}\n\n"...), nil
}

// closeBlock ends the block that goes on, if one does. Thinking ends with its
// signature, which is empty: only Anthropic could sign.
func (r *Reply) closeBlock(dst []byte) []byte {
	b := r.open
	if r.open = nil; b == nil || !r.q.Stream {
		return dst
	}
	if b.kind == thought {
		dst = append(b.event(dst, "content_block_delta"), ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}}\n\n"...)
	}
	return append(b.event(dst, "content_block_stop"), "}\n\n"...)
}

func (b *block) event(dst []byte, name string) []byte {
	dst = append(append(append(dst, "event: "...), name...), "\ndata: {\"type\":\""...)
	return strconv.AppendInt(append(append(dst, name...), `","index":`...), int64(b.index), 10)
}

// append writes the block as it is so far. Input that is no object, as of a call
// that was cut off, is an empty one.
func (b *block) append(dst []byte) []byte {
	switch b.kind {
	case thought:
		dst = chat.Quote(append(dst, `{"type":"thinking","thinking":`...), b.text.Bytes())
		return append(dst, `,"signature":""}`...)
	case toolUse:
		dst = chat.Quote(append(dst, `{"type":"tool_use","id":`...), b.id)
		dst = append(chat.Quote(append(dst, `,"name":`...), b.name), `,"caller":{"type":"direct"},"input":`...)
		if in := b.text.Bytes(); len(in) > 0 && in[0] == '{' && json.Valid(in) {
			return append(append(dst, in...), '}')
		}
		return append(dst, "{}}"...)
	}
	return append(chat.Quote(append(dst, `{"type":"text","citations":null,"text":`...), b.text.Bytes()), '}')
}

// End appends the events that end a stream. The error is chat.ErrUnfinished,
// where the answer has not ended, and chat.ErrTooLarge.
func (r *Reply) End(dst []byte) ([]byte, error) {
	dst, err := r.finished(dst)
	if err != nil || !r.q.Stream {
		return dst, err
	}
	dst = append(dst, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	dst = append(r.reason(dst), `},"usage":`...)
	dst = append(appendUsage(dst, r.meter.Usage()), "}\n\n"...)
	return append(dst, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...), nil
}

// Whole is the unstreamed answer as JSON. The error is as End's.
func (r *Reply) Whole() ([]byte, error) {
	if _, err := r.finished(nil); err != nil {
		return nil, err
	}
	size := perMessage
	for _, b := range r.blocks {
		size += perBlock + b.text.Len()
	}
	if !r.grab(size) {
		return nil, chat.ErrTooLarge
	}
	dst := append(r.head(make([]byte, 0, size)), '[')
	for i, b := range r.blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = b.append(dst)
	}
	dst = append(r.reason(append(dst, `],`...)), `,"usage":`...)
	return append(appendUsage(dst, r.meter.Usage()), '}'), nil
}

// finished ends the last block.
func (r *Reply) finished(dst []byte) (_ []byte, err error) {
	if r.finish == "" {
		return dst, chat.ErrUnfinished
	}
	if text := r.prefix.Flush(); text != "" {
		if dst, err = r.say(dst, said, text); err != nil {
			return dst, err
		}
	}
	return r.closeBlock(dst), nil
}

// reason writes why the answer ended, and what else a message ends with.
func (r *Reply) reason(dst []byte) []byte {
	why := "end_turn"
	switch {
	case r.finish == chat.FinishLength:
		why = "max_tokens"
	case r.word != "":
		why = "stop_sequence"
	case r.calls > 0:
		why = "tool_use"
	}
	dst = append(append(append(dst, `"stop_reason":"`...), why...), `","stop_sequence":`...)
	if why == "stop_sequence" {
		dst = chat.Quote(dst, r.word)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, `,"stop_details":null,"container":null`...)
}

// Begun reports whether events were made: before that a client knows no ping.
func (r *Reply) Begun() bool { return r.begun }
