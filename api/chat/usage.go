package chat

import "strconv"

// Usage is what an answer took, in tokens.
type Usage struct {
	Completion, Prompt, Total int
	Cached                    int // of Prompt, not computed anew
}

// Tally adds up the usage of a request. The engine tells that of each answer by
// itself: of several answers to one prompt, the prompt counts once.
type Tally struct {
	// PerPrompt is how many answers each prompt of a text completion gets; 0 is 1.
	// A chat has one prompt.
	PerPrompt int

	sum  Usage
	seen bool
}

// Add takes the usage that a chunk tells, if it does.
func (t *Tally) Add(c *Chunk) {
	if !c.HasUsage {
		return
	}
	// A text completion's usage comes with its answer, a chat's alone.
	fresh := !t.seen
	if len(c.Choices) > 0 {
		fresh = c.Choices[0].Index%max(t.PerPrompt, 1) == 0
	}
	if fresh {
		t.sum.Prompt += c.Usage.Prompt
		t.sum.Cached += c.Usage.Cached
	}
	t.sum.Completion += c.Usage.Completion
	t.sum.Total = t.sum.Prompt + t.sum.Completion
	t.seen = true
}

// Sum is what was told so far; ok is false where nothing was.
func (t *Tally) Sum() (u Usage, ok bool) { return t.sum, t.seen }

// Append writes u as JSON.
func (u Usage) Append(dst []byte) []byte {
	dst = append(dst, `{"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Completion), 10)
	dst = append(dst, `,"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Total), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Cached), 10)
	return append(dst, "}}"...)
}
