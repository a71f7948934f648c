package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Kind is which of the two completions an answer is of.
type Kind int

const (
	OfChat Kind = iota // chat.completion
	OfText             // text_completion
)

// ErrUnfinished is a stream that ended before its answers did.
var ErrUnfinished = errors.New("the stream ended before the answer did")

// Options are what a Collector must know of a request.
type Options struct {
	Kind Kind
	// Choices is how many answers are to come, over all prompts; 0 is 1. A stream
	// that brings others is refused.
	Choices int
	// PerPrompt is as in Tally.
	PerPrompt int
	// Model is the name to answer with; "" is what the engine says.
	Model string
	// Timings: the client asked for the engine's timings.
	Timings bool
	// Grab is asked before n more bytes are held; nil grants all.
	Grab func(n int) bool
}

// Collector puts the chunks of a stream together to the answer that the engine
// would have given unstreamed. It is not for use by several goroutines.
type Collector struct {
	opt     Options
	head    Chunk // its id, time, model and fingerprint
	choices []choice
	tally   Tally
	timings Text
}

// choice is one answer as far as it has come.
type choice struct {
	role               string
	content, reasoning Text
	logprobs           Text // the elements, with commas between
	probable           bool
	calls              []call
	finish             string
}

type call struct{ id, name, arguments Text }

// maxCalls bounds the tool calls of one answer.
const maxCalls = 1024

// NewCollector begins an answer.
func NewCollector(opt Options) *Collector {
	return &Collector{opt: opt, tally: Tally{PerPrompt: opt.PerPrompt}}
}

// Add takes a payload that is neither [DONE] nor null. The error is ErrChunk or
// ErrTooLarge.
func (c *Collector) Add(payload []byte) error {
	chunk, err := ParseChunk(payload)
	if err != nil {
		return err
	}
	return c.AddChunk(chunk)
}

// AddChunk is Add for a payload that was read already.
func (c *Collector) AddChunk(chunk *Chunk) error {
	panic("stub")
}

// Usage is what the answer took, as far as the engine has told.
func (c *Collector) Usage() (Usage, bool) { return c.tally.Sum() }

// Answer is the whole answer as JSON. The error is ErrUnfinished where a choice
// has not ended, and ErrTooLarge.
func (c *Collector) Answer() ([]byte, error) {
	panic("stub")
}

var _ = fmt.Sprint
var _ = slices.Clone[[]int]
var _ = strconv.Itoa
var _ json.RawMessage
