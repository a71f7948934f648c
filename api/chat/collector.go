package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is which of the two completions an answer is of.
type Kind int

const (
	OfChat Kind = iota // chat.completion
	OfText             // text_completion
)

// ErrUnfinished is a stream that ended before its answers did.
var ErrUnfinished = errors.New("the stream ended before the answer did")

const (
	// maxCalls bounds the tool calls of one answer.
	maxCalls = 1024
	// perAnswer is what an answer, or a call, takes beside its bytes; at most.
	perAnswer = 512
)

// Options are what a Collector must know of a request.
type Options struct {
	Kind Kind
	// Choices is how many answers are to come, over all prompts; 0 is 1. A stream
	// that brings others is no answer to the request.
	Choices int
	// PerPrompt is how many answers each prompt of a text completion gets; 0 is 1.
	// A chat has one prompt.
	PerPrompt int
	// Model is the name to answer with; "" is what the engine says.
	Model string
	// Timings: the client asked for the engine's timings.
	Timings bool
	// Grab is asked before n more bytes are held; nil grants all.
	Grab func(n int) bool
}

// Collector puts the chunks of a stream together to the answer that the engine
// would have given unstreamed. Some things are as OpenAI has them, not as the
// engine: the content of a message that only calls tools is null, the usage of
// several answers is that of all, what is not there is null where clients count on
// its name, and a text completion has an id of its own kind. It is not for use by
// several goroutines.
type Collector struct {
	opt     Options
	chunk   Chunk // the one at hand
	head    Chunk // id, time, model and fingerprint
	begun   bool
	choices []choice
	tally   tally
	timings Text
}

// choice is one answer as far as it has come.
type choice struct {
	content, reasoning Text
	probs              []list
	calls              []call
	finish             string
}

type call struct{ id, name, arguments Text }

// list is a growing list of JSON values under a name.
type list struct {
	name   string
	values Text // with commas between
	isNull bool // so far it is null, and no list
}

// NewCollector begins an answer.
func NewCollector(opt Options) *Collector {
	return &Collector{opt: opt, tally: tally{perPrompt: opt.PerPrompt}}
}

// Add takes a payload that is neither [DONE] nor null. The error is ErrChunk or
// ErrTooLarge.
func (c *Collector) Add(payload []byte) error {
	chunk := &c.chunk
	if err := chunk.Read(payload); err != nil {
		return err
	}
	if !c.begun {
		if !c.grab(len(chunk.ID) + len(chunk.Model) + len(chunk.Fingerprint)) {
			return ErrTooLarge
		}
		c.head = Chunk{ID: chunk.ID, Created: chunk.Created, Model: chunk.Model, Fingerprint: chunk.Fingerprint}
		c.begun = true
	}
	for i := range chunk.Choices {
		if err := c.choice(&chunk.Choices[i]); err != nil {
			return err
		}
	}
	c.tally.add(chunk)
	// The engine's unstreamed answer has the timings of its first answer.
	if len(chunk.Timings) > 0 && (len(chunk.Choices) == 0 || chunk.Choices[0].Index == 0) {
		c.timings.b = c.timings.b[:0]
		return c.timings.Add(string(chunk.Timings), c.opt.Grab)
	}
	return nil
}

func (c *Collector) grab(n int) bool { return c.opt.Grab == nil || c.opt.Grab(n) }

func (c *Collector) choice(piece *Choice) error {
	if piece.Index < 0 || piece.Index >= max(c.opt.Choices, 1) {
		return fmt.Errorf("%w: there is no choice %d", ErrChunk, piece.Index)
	}
	for len(c.choices) <= piece.Index {
		if !c.grab(perAnswer) {
			return ErrTooLarge
		}
		c.choices = append(c.choices, choice{})
	}
	to := &c.choices[piece.Index]
	if len(piece.Logprobs) > 0 {
		if err := c.logprobs(to, piece.Logprobs); err != nil {
			return err
		}
	}
	if piece.Finish != "" {
		if !c.grab(len(piece.Finish)) {
			return ErrTooLarge
		}
		to.finish = piece.Finish
	}
	if c.opt.Kind == OfText {
		return to.content.Add(piece.Text, c.opt.Grab)
	}
	if err := to.content.Add(piece.Delta.Content, c.opt.Grab); err != nil {
		return err
	}
	if err := to.reasoning.Add(piece.Delta.Reasoning, c.opt.Grab); err != nil {
		return err
	}
	for i := range piece.Delta.ToolCalls {
		if err := c.call(to, &piece.Delta.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Collector) call(to *choice, piece *ToolCall) error {
	if piece.Index < 0 || piece.Index > len(to.calls) || piece.Index >= maxCalls {
		return fmt.Errorf("%w: a piece of tool call %d after %d of them", ErrChunk, piece.Index, len(to.calls))
	}
	if piece.Index == len(to.calls) {
		if !c.grab(perAnswer) {
			return ErrTooLarge
		}
		to.calls = append(to.calls, call{})
	}
	k := &to.calls[piece.Index]
	return errors.Join(
		k.id.Add(piece.ID, c.opt.Grab),
		k.name.Add(piece.Name, c.opt.Grab),
		k.arguments.Add(piece.Arguments, c.opt.Grab),
	)
}

// logprobs joins what a piece says of its tokens to what was said: list by list,
// under whatever names the engine has for them.
func (c *Collector) logprobs(to *choice, raw json.RawMessage) (err error) {
	Members(raw, func(name []byte, value json.RawMessage) {
		if err != nil {
			return
		}
		at := slices.IndexFunc(to.probs, func(l list) bool { return l.name == string(name) })
		if at < 0 {
			if len(to.probs) == 8 || !c.grab(perAnswer+len(name)) {
				err = ErrTooLarge
				return
			}
			at = len(to.probs)
			to.probs = append(to.probs, list{name: string(name), isNull: true})
		}
		l := &to.probs[at]
		if value[0] != '[' {
			return
		}
		l.isNull = false
		inner := value[1 : len(value)-1]
		if len(inner) > 0 && l.values.Len() > 0 {
			err = l.values.Add(",", c.opt.Grab)
		}
		if err == nil {
			err = l.values.Add(string(inner), c.opt.Grab)
		}
	})
	return err
}

// Answer is the whole answer as JSON. The error is ErrUnfinished where a choice
// has not ended, and ErrTooLarge.
func (c *Collector) Answer() ([]byte, error) {
	if len(c.choices) != max(c.opt.Choices, 1) {
		return nil, ErrUnfinished
	}
	size := 512
	for i := range c.choices {
		if c.choices[i].finish == "" {
			return nil, ErrUnfinished
		}
		size += c.choices[i].size()
	}
	// Few characters are longer in JSON than they are.
	if !c.grab(size) {
		return nil, ErrTooLarge
	}
	b := append(make([]byte, 0, size), `{"choices":[`...)
	for i := range c.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.choices[i].append(b, c.opt.Kind, i)
	}
	b = strconv.AppendInt(append(b, `],"created":`...), c.head.Created, 10)
	model := c.opt.Model
	if model == "" {
		model = c.head.Model
	}
	b = Quote(append(b, `,"model":`...), model)
	if c.head.Fingerprint != "" {
		b = Quote(append(b, `,"system_fingerprint":`...), c.head.Fingerprint)
	}
	object := `,"object":"chat.completion"`
	if c.opt.Kind == OfText {
		object = `,"object":"text_completion"`
	}
	b = append(b, object...)
	if c.tally.seen {
		b = c.tally.sum.Append(append(b, `,"usage":`...))
	}
	id := c.head.ID
	if rest, ok := strings.CutPrefix(id, "chatcmpl-"); ok && c.opt.Kind == OfText {
		id = "cmpl-" + rest
	}
	b = Quote(append(b, `,"id":`...), id)
	if c.opt.Timings && c.timings.Len() > 0 {
		b = append(append(b, `,"timings":`...), c.timings.b...)
	}
	return append(b, '}'), nil
}

func (h *choice) size() int {
	n := perAnswer + h.content.Len() + h.reasoning.Len()
	for i := range h.probs {
		n += h.probs[i].values.Len()
	}
	for i := range h.calls {
		n += perAnswer + h.calls[i].arguments.Len()
	}
	return n
}

func (h *choice) append(b []byte, kind Kind, index int) []byte {
	if kind == OfText {
		b = Quote(append(b, `{"text":`...), h.content.b)
		b = strconv.AppendInt(append(b, `,"index":`...), int64(index), 10)
		b = h.appendProbs(append(b, `,"logprobs":`...))
		b = Quote(append(b, `,"finish_reason":`...), h.finish)
		return append(b, '}')
	}
	b = Quote(append(b, `{"finish_reason":`...), h.finish)
	b = strconv.AppendInt(append(b, `,"index":`...), int64(index), 10)
	b = append(b, `,"message":{"role":"assistant","content":`...)
	if h.content.Len() == 0 && len(h.calls) > 0 {
		b = append(b, "null"...)
	} else {
		b = Quote(b, h.content.b)
	}
	b = append(b, `,"refusal":null`...)
	if h.reasoning.Len() > 0 {
		b = Quote(append(b, `,"reasoning_content":`...), h.reasoning.b)
	}
	for i := range h.calls {
		if i == 0 {
			b = append(b, `,"tool_calls":`...)
		}
		b = append(b, "[,"[min(i, 1)])
		k := &h.calls[i]
		b = appendCall(b, k.id.String(), k.name.String(), k.arguments.String())
	}
	if len(h.calls) > 0 {
		b = append(b, ']')
	}
	b = h.appendProbs(append(b, `},"logprobs":`...))
	if len(h.probs) > 0 && !slices.ContainsFunc(h.probs, func(l list) bool { return l.name == "refusal" }) {
		b = append(b[:len(b)-1], `,"refusal":null}`...)
	}
	return append(b, '}')
}

func (h *choice) appendProbs(b []byte) []byte {
	if len(h.probs) == 0 {
		return append(b, "null"...)
	}
	for i := range h.probs {
		l := &h.probs[i]
		b = Quote(append(b, "{,"[min(i, 1)]), l.name)
		if l.isNull {
			b = append(b, ":null"...)
			continue
		}
		b = append(append(append(b, ":["...), l.values.b...), ']')
	}
	return append(b, '}')
}
