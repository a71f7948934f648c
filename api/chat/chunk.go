package chat

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Reasons for which an answer's choice ends.
const (
	FinishStop   = "stop"
	FinishLength = "length"
	FinishTools  = "tool_calls"
)

// ErrChunk is a payload that is no chunk of a completion.
var ErrChunk = errors.New("not a chunk of a completion")

// Chunk is one payload of a streamed completion, of chat or of text.
type Chunk struct {
	ID          string          `json:"id"`
	Created     int64           `json:"created"` // Unix seconds
	Model       string          `json:"model"`
	Fingerprint string          `json:"system_fingerprint"`
	Choices     []Choice        `json:"choices"`
	Usage       *Usage          `json:"usage"`
	Timings     json.RawMessage `json:"timings"`
	// Progress is there while the prompt is read, where it was asked for.
	Progress *Progress `json:"prompt_progress"`
	// Verbose is what the engine says about an answer's end, where it was asked.
	Verbose *struct {
		StoppingWord string `json:"stopping_word"`
	} `json:"__verbose"`
}

// Choice is a piece of one of the answers to a request.
type Choice struct {
	Index int `json:"index"`
	// Delta is a chat's piece, Text that of a text completion.
	Delta    Delta           `json:"delta"`
	Text     string          `json:"text"`
	Logprobs json.RawMessage `json:"logprobs"`
	// Finish is "" while the answer goes on.
	Finish string `json:"finish_reason"`
}

// Delta is a piece of a message.
type Delta struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	Reasoning string     `json:"reasoning_content"`
	ToolCalls []ToolCall `json:"tool_calls"`
}

// ToolCall is a call of a function, or a piece of one.
type ToolCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"` // JSON, whole when all pieces are joined
	} `json:"function"`
}

// Progress is how far a prompt is read, in tokens.
type Progress struct {
	Total     int `json:"total"`
	Cached    int `json:"cache"`
	Processed int `json:"processed"` // the cached ones counted
}

// Timings are the engine's own counters of one answer, in tokens.
type Timings struct {
	Cached int `json:"cache_n"`  // of the prompt, not computed anew
	Prompt int `json:"prompt_n"` // of the prompt, computed
	Answer int `json:"predicted_n"`
}

// ParseChunk reads a payload of a stream, which is neither [DONE] nor null. The
// error is ErrChunk.
func ParseChunk(payload []byte) (*Chunk, error) {
	c := new(Chunk)
	if err := json.Unmarshal(payload, c); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrChunk, err)
	}
	return c, nil
}

// OnlyProgress reports whether a chunk tells no more than how far the prompt is
// read: the answer has not begun.
func (c *Chunk) OnlyProgress() bool {
	if c.Progress == nil || c.Usage != nil {
		return false
	}
	for _, ch := range c.Choices {
		if ch.Text != "" || ch.Finish != "" || !ch.Delta.empty() {
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
	return t, len(c.Timings) > 0 && json.Unmarshal(c.Timings, &t) == nil
}
