package continuation

import "relay/api/chat"

// Track keeps what was delivered of one answer. It is not for use by several goroutines.
type Track struct {
	kind chat.Kind
	grab func(n int) bool
}

// New begins an answer of which nothing was delivered. grab is asked before n more bytes are
// held; nil grants all. When it refuses, the answer cannot be gone on with, and what was held
// is let go.
func New(kind chat.Kind, grab func(n int) bool) *Track { return &Track{kind: kind, grab: grab} }

// Delivered takes a chunk that went to the client, as the first engine or the Seam had it:
// with its ids. Chunks that were not delivered because they say nothing the client asked for
// (usage, timings, a second tool call) are given to it too.
func (t *Track) Delivered(p *Piece) {}

// Tokens is how many tokens the delivered answer has, those that made no text within it
// among them.
func (t *Track) Tokens() int { return 0 }

// Plan says how the answer is gone on with. body is what the first engine was asked, JSON
// with every member relay sent, the model's name among them; it is not changed, and parts of
// it may be in the bodies of the plan. The error is a *Cannot. To ask for a plan changes
// nothing: it may be asked for only to see whether there is one.
func (t *Track) Plan(body []byte) (*Plan, error) { return &Plan{}, nil }

// Cannot is why an answer cannot be gone on with.
type Cannot struct {
	// Why goes on a sentence that begins with "the answer cannot be continued:", without
	// a full stop.
	Why string
}

func (c *Cannot) Error() string { return "the answer cannot be continued: " + c.Why }
