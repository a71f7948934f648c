package chat

import (
	"encoding/json"
	"errors"
)

// FinishLength is why an answer ends that reached its bound.
const FinishLength = "length"

// ErrChunk is a payload that is no chunk of a completion.
var ErrChunk = errors.New("not a chunk of a completion")

// Chunk is one payload of a streamed completion, of chat or of text. Raw values
// lie in the payload that it was read from.
type Chunk struct {
	ID          string
	Created     int64 // Unix seconds
	Model       string
	Fingerprint string
	Choices     []Choice
	// Usage is what an answer took, where HasUsage.
	Usage    Usage
	HasUsage bool
	Timings  json.RawMessage // see Counters; nil where there are none
	// StoppingWord is the stop string that ended an answer, where the engine was
	// asked for it.
	StoppingWord string
}

// Choice is a piece of one of the answers to a request.
type Choice struct {
	Index int
	// Delta is a chat's piece, Text that of a text completion.
	Delta    Delta
	Text     string
	Logprobs json.RawMessage // nil where there are none
	Finish   string          // "" while the answer goes on
}

// Delta is a piece of a message.
type Delta struct {
	Content   string
	Reasoning string
	ToolCalls []ToolCall
}

// ToolCall is a call of a function, or a piece of one.
type ToolCall struct {
	Index     int
	ID        string
	Name      string
	Arguments string // JSON, whole when all pieces are joined
}

// Timings are the engine's own counters of one answer, in tokens.
type Timings struct {
	Cached int // of the prompt, not computed anew
	Prompt int // of the prompt, computed
	Answer int
}

// Empty reports whether a chunk has nothing of an answer: it tells how far the
// prompt is read, or only who speaks.
func (c *Chunk) Empty() bool {
	for i := range c.Choices {
		if ch := &c.Choices[i]; ch.Text != "" || ch.Finish != "" || !ch.Delta.empty() {
			return false
		}
	}
	return true
}

func (d *Delta) empty() bool {
	return d.Content == "" && d.Reasoning == "" && len(d.ToolCalls) == 0
}

// Counters are a chunk's timings; ok is false where it has none.
func (c *Chunk) Counters() (t Timings, ok bool) {
	r := reader{ok: len(c.Timings) > 0}
	r.object(c.Timings, func(name []byte, v json.RawMessage) {
		switch string(name) {
		case "cache_n":
			t.Cached = r.number(v)
		case "prompt_n":
			t.Prompt = r.number(v)
		case "predicted_n":
			t.Answer = r.number(v)
		}
	})
	return t, r.ok
}
