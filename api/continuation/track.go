package continuation

import (
	"encoding/json"
	"slices"

	"relay/api/chat"
)

// Track keeps what was delivered of one answer. It is not for use by several goroutines.
type Track struct {
	kind chat.Kind
	grab func(n int) bool

	// lost is why the answer cannot be gone on with whatever the request is; nothing more
	// is kept then.
	lost string

	// head is of the first chunk.
	head struct{ id, created, model, fingerprint []byte }
	role bool // who speaks was delivered

	content, reasoning chat.Text
	tools              bool // a piece of a tool call was delivered
	stopped            bool // a stop string ended it, after text that was delivered
	finish             []byte
	usage              bool

	tokens
	// seen is how many tokens the engine has told of, kept how many of them the delivered
	// text has. counted says that the engine counts, prompt are the first engine's counts of
	// the prompt, and timings its last ones, whole.
	seen, kept int
	counted    bool
	prompt     chat.Timings
	timings    []byte
}

// New begins an answer of which nothing was delivered. grab is asked before n more bytes are
// held; nil grants all. When it refuses, the answer cannot be gone on with, and what was held
// is let go.
func New(kind chat.Kind, grab func(n int) bool) *Track { return &Track{kind: kind, grab: grab} }

// Delivered takes a chunk that went to the client, as the first engine or the Seam had it:
// with its ids. Chunks that were not delivered because they say nothing the client asked for
// (usage, timings, how far the prompt is) are given to it too.
func (t *Track) Delivered(p *Piece) {
	if t.lost != "" {
		return
	}
	if p.choices > 1 || p.index != 0 {
		t.lose("it is one of several answers to one request")
		return
	}
	if len(p.id)+len(p.created)+len(p.model)+len(p.fingerprint) > maxHeading || len(p.timings) > maxTimings {
		t.lose("the engine sends more about its answer than is kept")
		return
	}
	t.heading(p)
	t.role = t.role || p.role
	t.tools = t.tools || p.tools
	t.stopped = t.stopped || p.ended && len(p.content) > 0
	t.usage = t.usage || p.usage != nil
	if p.finish != nil && t.finish == nil {
		t.finish = slices.Clone(p.finish)
	}
	if p.progress && !t.counted {
		t.prompt = chat.Timings{Cached: p.cached, Prompt: max(p.total-p.cached, 0)}
	}
	if p.told && p.counts.Answer > 0 { // Before that the prompt is not read to its end.
		t.timings = append(t.timings[:0], p.timings...)
		if !t.counted {
			t.prompt = p.counts
		}
		t.counted = true
	}
	if p.progress {
		// What text comes with it, before the first token, is not the model's: the engine
		// repeats what the client began the answer with.
		return
	}
	if t.text(p) != nil {
		t.lose("more of it was delivered than this peer may hold")
	}
}

// Tokens is how many tokens the delivered answer has, those that made no text within it
// among them.
func (t *Track) Tokens() int { return t.kept }

// maxHeading bounds what every chunk begins with, maxTimings an engine's counters, in bytes.
// A few hundred are usual; more would be written into every chunk of the next engine's.
const maxHeading, maxTimings = 4 << 10, 4 << 10

// heading keeps the first of what every chunk begins with.
func (t *Track) heading(p *Piece) {
	keep := func(to *[]byte, v json.RawMessage) {
		if *to == nil && v != nil {
			*to = slices.Clone([]byte(v))
		}
	}
	keep(&t.head.id, p.id)
	keep(&t.head.created, p.created)
	keep(&t.head.model, p.model)
	keep(&t.head.fingerprint, p.fingerprint)
}

// text keeps what a chunk adds to the answer, and counts its tokens.
func (t *Track) text(p *Piece) error {
	fresh := len(p.ids)
	switch {
	case p.told && p.counts.Answer >= t.seen:
		fresh = p.counts.Answer - t.seen
	case !t.counted && fresh == 0 && len(p.content)+len(p.reasoning) > 0:
		fresh = 1 // There is no better guess.
	}
	t.seen += fresh
	if len(p.reasoning) > 0 || p.tools {
		t.reads() // From here on tokens do not explain the text.
	}
	if len(p.content)+len(p.reasoning) > 0 || p.tools {
		t.kept = t.seen
	}
	if err := t.content.Add(string(p.content), t.grab); err != nil {
		return err
	}
	if err := t.reasoning.Add(string(p.reasoning), t.grab); err != nil {
		return err
	}
	return t.add(p, fresh, t.content.Len(), t.grab)
}

// lose gives up the answer.
func (t *Track) lose(why string) { *t = Track{kind: t.kind, kept: t.kept, lost: why} }

// forget lets go of what an engine held back when it was lost: the next one begins behind
// what was delivered.
func (t *Track) forget() {
	t.seen = t.kept
	t.tokens = t.tokens.cut(t.content.Len())
}
