package responses

import (
	"encoding/json"
	"fmt"
	"strconv"

	"relay/api/chat"
)

// Reply is the answer to one request on its way to the client, either as events
// or whole. It is not for use by several goroutines.
type Reply struct {
	q       *Request
	id      string
	model   string
	created int64
	grab    func(n int) bool

	seq    int // of the next event
	begun  bool
	prefix chat.Prefix
	items  []*item
	open   *item // the last of items, while it goes on
	calls  int   // tool calls that have begun
	finish string
	meter  chat.Meter
}

// item is one item of the output.
type item struct {
	kind  kind
	index int
	id    string
	// text is what was said or thought, or the arguments of a call.
	text         chat.Text
	callID, name string    // of a call
	probs        chat.Text // of a message: elements of a list, with commas between
	cut          bool      // the answer's bound was reached in it
}

type kind int

const (
	message kind = iota
	reasoning
	call
)

// perItem is what an item takes beside its bytes, at most.
const perItem = 512

// NewReply begins the answer to q. id is unique, of letters and digits: the
// response's id is "resp_" before it. now is the time in Unix seconds. model is
// the name to answer with. grab is asked before n more bytes are held; nil
// grants all.
func NewReply(q *Request, id string, now int64, model string, grab func(n int) bool) *Reply {
	if grab == nil {
		grab = func(int) bool { return true }
	}
	return &Reply{q: q, id: id, model: model, created: now, grab: grab, prefix: chat.NewPrefix(q.prefill)}
}

// Chunk takes a chunk and appends the events that it makes to dst, whole ones
// with their blank lines; there are none for a request that is not streamed, nor
// before the answer has begun. The error is chat.ErrChunk or chat.ErrTooLarge.
func (r *Reply) Chunk(dst []byte, c *chat.Chunk) ([]byte, error) {
	r.meter.Add(c)
	if c.Empty() {
		return dst, nil
	}
	dst = r.begin(dst)
	for i := range c.Choices {
		var err error
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
	for _, name := range []string{"response.created", "response.in_progress"} {
		dst = r.whole(dst, name, state{status: "in_progress"})
	}
	return dst
}

func (r *Reply) choice(dst []byte, c *chat.Choice) (_ []byte, err error) {
	if c.Index != 0 {
		return dst, fmt.Errorf("%w: there is no choice %d", chat.ErrChunk, c.Index)
	}
	if c.Delta.Reasoning != "" {
		if dst, err = r.say(dst, reasoning, c.Delta.Reasoning, nil); err != nil {
			return dst, err
		}
	}
	if text := r.prefix.Strip(c.Delta.Content); text != "" {
		if dst, err = r.say(dst, message, text, c.Logprobs); err != nil {
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
func (r *Reply) say(dst []byte, k kind, text string, logprobs json.RawMessage) ([]byte, error) {
	if r.open == nil || r.open.kind != k {
		dst = r.closeItem(dst)
		it, err := r.add(k, map[kind]string{message: "msg_", reasoning: "rs_"}[k])
		if err != nil {
			return dst, err
		}
		dst = r.itemEvent(dst, "response.output_item.added", it, "in_progress")
		dst = r.partEvent(dst, "response.content_part.added", it)
	}
	it := r.open
	if err := it.text.Add(text, r.grab); err != nil {
		return dst, err
	}
	probs, err := r.probs(it, logprobs)
	if err != nil || !r.q.Stream {
		return dst, err
	}
	if k == reasoning {
		dst = r.event(dst, "response.reasoning_text.delta", it)
	} else {
		dst = r.event(dst, "response.output_text.delta", it)
	}
	dst = chat.Quote(append(dst, `,"content_index":0,"delta":`...), text)
	if k == message {
		dst = append(append(append(dst, `,"logprobs":[`...), probs...), ']')
	}
	return end(dst), nil
}

// probs keeps the probabilities of a piece and gives their list's elements.
func (r *Reply) probs(it *item, logprobs json.RawMessage) ([]byte, error) {
	if logprobs == nil || r.q.Chat.TopLogprobs == nil {
		return nil, nil
	}
	var l struct{ Content []json.RawMessage }
	if err := json.Unmarshal(logprobs, &l); err != nil {
		return nil, fmt.Errorf("%w: logprobs: %w", chat.ErrChunk, err)
	}
	start := it.probs.Len()
	for _, p := range l.Content {
		if r.q.alone {
			p = withoutOthers(p)
		}
		if it.probs.Len() > 0 {
			if err := it.probs.Add(",", r.grab); err != nil {
				return nil, err
			}
			if it.probs.Len() == start+1 {
				start++
			}
		}
		if err := it.probs.Add(string(p), r.grab); err != nil {
			return nil, err
		}
	}
	return it.probs.Bytes()[start:], nil
}

// withoutOthers is the probability of a token without those of its alternatives.
func withoutOthers(p json.RawMessage) json.RawMessage {
	one := struct {
		Token       json.RawMessage   `json:"token"`
		Bytes       json.RawMessage   `json:"bytes"`
		Logprob     json.RawMessage   `json:"logprob"`
		TopLogprobs []json.RawMessage `json:"top_logprobs"`
	}{TopLogprobs: []json.RawMessage{}}
	var all map[string]json.RawMessage
	if json.Unmarshal(p, &all) != nil {
		return p
	}
	one.Token, one.Bytes, one.Logprob = all["token"], all["bytes"], all["logprob"]
	if b, err := json.Marshal(one); err == nil {
		return b
	}
	return p
}

// call takes a piece of a tool call. Calls come one after another.
func (r *Reply) call(dst []byte, c *chat.ToolCall) ([]byte, error) {
	switch {
	case c.Index == r.calls && c.Name != "":
		dst = r.closeItem(dst)
		it, err := r.add(call, "fc_")
		if err != nil {
			return dst, err
		}
		if !r.grab(len(c.ID) + len(c.Name)) {
			return dst, chat.ErrTooLarge
		}
		if it.callID, it.name = c.ID, c.Name; it.callID == "" {
			it.callID = "call" + it.id[len("fc"):]
		}
		r.calls++
		dst = r.itemEvent(dst, "response.output_item.added", it, "in_progress")
	case c.Index < 0 || c.Index != r.calls-1 || r.open == nil || r.open.kind != call:
		return dst, fmt.Errorf("%w: a piece of tool call %d is out of turn", chat.ErrChunk, c.Index)
	}
	if c.Arguments == "" {
		return dst, nil
	}
	if err := r.open.text.Add(c.Arguments, r.grab); err != nil || !r.q.Stream {
		return dst, err
	}
	dst = r.event(dst, "response.function_call_arguments.delta", r.open)
	return end(chat.Quote(append(dst, `,"delta":`...), c.Arguments)), nil
}

// add begins an item.
func (r *Reply) add(k kind, prefix string) (*item, error) {
	if !r.grab(perItem) {
		return nil, chat.ErrTooLarge
	}
	it := &item{kind: k, index: len(r.items), id: prefix + r.id + "x" + strconv.Itoa(len(r.items))}
	r.items = append(r.items, it)
	r.open = it
	return it, nil
}

// closeItem ends the item that goes on, if one does.
func (r *Reply) closeItem(dst []byte) []byte {
	it := r.open
	if r.open = nil; it == nil || !r.q.Stream {
		return dst
	}
	switch it.kind {
	case call:
		dst = chat.Quote(append(r.event(dst, "response.function_call_arguments.done", it), `,"arguments":`...), it.text.Bytes())
		dst = end(chat.Quote(append(dst, `,"name":`...), it.name))
	case reasoning:
		dst = r.event(dst, "response.reasoning_text.done", it)
		dst = end(chat.Quote(append(dst, `,"content_index":0,"text":`...), it.text.Bytes()))
		dst = r.partEvent(dst, "response.content_part.done", it)
	default:
		dst = r.event(dst, "response.output_text.done", it)
		dst = chat.Quote(append(dst, `,"content_index":0,"text":`...), it.text.Bytes())
		dst = end(append(append(append(dst, `,"logprobs":[`...), it.probs.Bytes()...), ']'))
		dst = r.partEvent(dst, "response.content_part.done", it)
	}
	return r.itemEvent(dst, "response.output_item.done", it, it.status())
}

func (it *item) status() string {
	if it.cut {
		return "incomplete"
	}
	return "completed"
}

// End appends the events that end a stream. The error is chat.ErrUnfinished,
// where the answer has not ended, and chat.ErrTooLarge. now is the time in Unix
// seconds.
func (r *Reply) End(dst []byte, now int64) ([]byte, error) {
	dst, s, err := r.finished(dst, now)
	if err != nil {
		return dst, err
	}
	return r.whole(dst, "response."+s.status, s), nil
}

// Whole is the unstreamed answer as JSON. The error is as End's.
func (r *Reply) Whole(now int64) ([]byte, error) {
	_, s, err := r.finished(nil, now)
	if err != nil {
		return nil, err
	}
	return r.appendResponse(nil, s), nil
}

// finished ends the last item and says how the response ended.
func (r *Reply) finished(dst []byte, now int64) ([]byte, state, error) {
	if r.finish == "" {
		return dst, state{}, chat.ErrUnfinished
	}
	size := perItem + 3*len(r.q.echo)
	for _, it := range r.items {
		// In the event that ends it, its part, the item, and the response.
		size += 4 * (perItem + it.text.Len() + it.probs.Len())
	}
	if !r.grab(size) {
		return dst, state{}, chat.ErrTooLarge
	}
	if text := r.prefix.Flush(); text != "" {
		var err error
		if dst, err = r.say(dst, message, text, nil); err != nil {
			return dst, state{}, err
		}
	}
	s := state{status: "completed", completed: now, over: true}
	if r.finish == chat.FinishLength {
		s = state{status: "incomplete", over: true}
		if r.open != nil {
			r.open.cut = true
		}
	}
	return r.closeItem(dst), s, nil
}

// Fail appends the events that end a stream that broke off: error, which is
// where the SDKs stop, and response.failed, for those that go by the response.
func (r *Reply) Fail(dst []byte, code, message string) []byte {
	dst = r.eventHead(dst, "error")
	dst = chat.Quote(append(dst, `,"code":`...), code)
	dst = chat.Quote(append(dst, `,"message":`...), message)
	dst = end(append(dst, `,"param":null`...))
	for _, it := range r.items {
		it.cut = it == r.open
	}
	return r.whole(dst, "response.failed", state{status: "failed", failure: message, over: true})
}
