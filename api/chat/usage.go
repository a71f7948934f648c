package chat

import "strconv"

// Usage is what an answer took, in tokens.
type Usage struct {
	Completion, Prompt, Total int
	Cached                    int // of Prompt, not computed anew
}

// tally adds up the usage of a request. The engine tells that of each answer by
// itself: of several answers to one prompt, the prompt counts once.
type tally struct {
	// perPrompt is how many answers each prompt of a text completion gets; 0 is 1.
	// A chat has one prompt.
	perPrompt int

	sum  Usage
	seen bool
}

// add takes the usage that a chunk tells, if it does.
func (t *tally) add(c *Chunk) {
	if !c.HasUsage {
		return
	}
	// A text completion's usage comes with its answer, a chat's alone.
	fresh := !t.seen
	if len(c.Choices) > 0 {
		fresh = c.Choices[0].Index%max(t.perPrompt, 1) == 0
	}
	if fresh {
		t.sum.Prompt += c.Usage.Prompt
		t.sum.Cached += c.Usage.Cached
	}
	t.sum.Completion += c.Usage.Completion
	t.sum.Total = t.sum.Prompt + t.sum.Completion
	t.seen = true
}

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

// Meter keeps the usage of a request with one answer, from whatever tells it
// first: the timings of a token, or the usage at the end.
type Meter struct {
	usage Usage
	told  bool // by the engine's usage
	// reasoning is how many tokens there were when reasoning came last.
	reasoning int
}

// Add takes what a chunk tells.
func (m *Meter) Add(c *Chunk) {
	if t, ok := c.Counters(); ok && !m.told {
		m.usage.Completion = t.Answer
		if t.Prompt > 0 {
			m.usage.Prompt, m.usage.Cached = t.Prompt+t.Cached, t.Cached
		}
	}
	if c.HasUsage {
		m.usage, m.told = c.Usage, true
	}
	m.usage.Total = m.usage.Prompt + m.usage.Completion
	for i := range c.Choices {
		if c.Choices[i].Delta.Reasoning != "" {
			m.reasoning = m.usage.Completion
		}
	}
}

// Usage is what the answer took so far.
func (m *Meter) Usage() Usage { return m.usage }

// Reasoning is how many tokens of the answer are reasoning, the marks around it
// partly counted: the engine does not tell it, the place where it ended does.
func (m *Meter) Reasoning() int { return min(m.reasoning, m.usage.Completion) }
