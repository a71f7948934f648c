package continuation

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"relay/api/chat"
)

// tokens are those of an answer's text. They are kept in runs: one whose ids the engine told,
// every one, and whose bytes are the text that was delivered is known by its ids. In any other
// are tokens that the engine told no id of (of a character of several tokens it tells the last
// one's), or of which it held a part back: such a run is known by its text.
type tokens struct {
	// parsed says that the engine made more of the tokens than their text; then none are
	// kept.
	parsed bool
	ids    []int32
	runs   []run
	// last is the piece that came last to a run that is known by ids.
	last unit
	open openRun
}

// run is a part of an answer; it begins where the one before it ends.
type run struct {
	// ids and text are where it ends among the ids, and in bytes of the answer's text.
	ids, text int
	// byText: the run has no ids, but count tokens, the last of which was lastID; -1 is not
	// known. hole: not all of them were told; odd: they were, and are another text; more: they
	// were, and the text has something before theirs.
	byText, hole, odd, more bool
	count                   int
	lastID                  int32
}

// runSize is what a run takes, in bytes.
const runSize = 40

// unit is what one chunk completed: text of the answer, and its ids.
type unit struct {
	ids, text int
	whole     bool // no part of the last token can have been taken away
}

// openRun is what was told of tokens since text and tokens last met.
type openRun struct {
	ids   int // among the ids, at their end
	count int
	// told is how many of count had come when text came last.
	told   int
	lastID int32
	// These are a run's; unclear is any of them.
	hole, odd, more, unclear bool
	// ahead are bytes that were told and not delivered.
	ahead []byte
}

// maxAhead bounds the bytes that the text may stay behind the tokens.
const maxAhead = 64 << 10

const spaces = " \t\n\v\f\r"

// add takes a chunk with so many fresh tokens, after which the text is end bytes long. The
// error is chat.ErrTooLarge.
func (t *tokens) add(p *Piece, fresh, end int, grab func(int) bool) error {
	if t.parsed {
		return nil
	}
	o := &t.open
	o.count += fresh
	// What comes with no token is of some that were held back, as at an answer's end.
	if fresh != len(p.ids) || p.unknown || len(p.content) > 0 && len(p.ids) == 0 || len(o.ahead)+len(p.bytes) > maxAhead {
		o.hole, o.unclear = true, true
	}
	if n := len(p.ids); n > 0 {
		o.lastID = p.ids[n-1]
	} else if fresh > 0 {
		o.lastID = -1
	}
	if !o.unclear {
		var err error
		if t.ids, err = grown(t.ids, len(p.ids), 4, grab); err != nil {
			return err
		}
		t.ids = append(t.ids, p.ids...)
		o.ids += len(p.ids)
		o.ahead = append(o.ahead, p.bytes...)
	}
	text := p.content
	if len(text) == 0 {
		return nil
	}
	o.told = o.count
	switch {
	case o.unclear:
	case bytes.HasPrefix(o.ahead, text):
		o.ahead = o.ahead[:copy(o.ahead, o.ahead[len(text):])]
	case end == len(text) && bytes.HasPrefix(bytes.TrimLeft(o.ahead, spaces), text):
		// Where templates have reasoning, the engine takes the space off that a text begins with.
		o.ahead = append(o.ahead[:0], bytes.TrimLeft(o.ahead, spaces)[len(text):]...)
	case sameText(o.ahead, text):
		o.ahead = o.ahead[:0]
	default:
		o.unclear, o.more = true, bytes.HasSuffix(text, o.ahead)
		o.odd = !o.more
	}
	switch {
	case !o.unclear && len(o.ahead) > 0:
		return nil
	case !o.unclear:
		t.last = unit{o.ids, end - t.end(), p.whole}
		if n := len(t.runs); n > 0 && !t.runs[n-1].byText {
			t.runs[n-1].ids, t.runs[n-1].text = len(t.ids), end
			break
		}
		if err := t.push(run{ids: len(t.ids), text: end}, grab); err != nil {
			return err
		}
	case len(p.ids) > 0 && p.lastLen > 0 && endsWith(text, p.bytes[len(p.bytes)-p.lastLen:]):
		if err := t.closeByText(end, grab); err != nil {
			return err
		}
	default:
		o.odd = o.odd || len(p.ids) > 0
		return nil
	}
	t.open = openRun{ahead: o.ahead[:0]}
	return nil
}

// closeByText ends the open run, up to end, as one that is known by its text.
func (t *tokens) closeByText(end int, grab func(int) bool) error {
	t.ids = t.ids[:len(t.ids)-t.open.ids]
	return t.push(t.open.run(len(t.ids), end), grab)
}

// run is an open one as one that is known by its text.
func (o *openRun) run(ids, text int) run {
	return run{ids: ids, text: text, byText: true, hole: o.hole, odd: o.odd, more: o.more, count: o.told, lastID: o.lastID}
}

func (t *tokens) push(r run, grab func(int) bool) (err error) {
	if t.runs, err = grown(t.runs, 1, runSize, grab); err == nil {
		t.runs = append(t.runs, r)
	}
	return err
}

// end is where the last run ends in the text.
func (t *tokens) end() int {
	if n := len(t.runs); n > 0 {
		return t.runs[n-1].text
	}
	return 0
}

// cut is what is known of the tokens of a text that is end bytes long: without those of which
// nothing was delivered, and with a part of a token as text. t stays as it is.
func (t *tokens) cut(end int) tokens {
	if t.parsed {
		return *t
	}
	c := tokens{ids: t.ids[:len(t.ids)-t.open.ids], runs: slices.Clone(t.runs), last: t.last}
	if end > t.end() {
		r := t.open.run(len(c.ids), end)
		r.odd = r.odd || len(t.open.ahead) > 0 // It may be of something that is hidden.
		if t.open.told < t.open.count {
			r.lastID = -1
		}
		c.runs = append(c.runs, r)
	}
	return c
}

// doubt has the text that came last be known by its text, where a stop string may have taken
// a part of its last token away.
func (t *tokens) doubt() {
	n := len(t.runs)
	if n == 0 || t.runs[n-1].byText || t.last.whole {
		return
	}
	r := &t.runs[n-1]
	doubted := run{text: r.text, byText: true, count: t.last.ids, lastID: t.ids[len(t.ids)-1]}
	r.ids, r.text = r.ids-t.last.ids, r.text-t.last.text
	t.ids = t.ids[:r.ids]
	doubted.ids = r.ids
	if r.text == 0 || n > 1 && r.text == t.runs[n-2].text {
		t.runs = t.runs[:n-1]
	}
	t.runs = append(t.runs, doubted)
}

// reads lets go of all tokens: the engine makes more of them than their text.
func (t *tokens) reads() { *t = tokens{parsed: true} }

// grown is list with room for n more, each of size bytes. The error is chat.ErrTooLarge.
func grown[T any](list []T, n, size int, grab func(int) bool) ([]T, error) {
	need := len(list) + n
	if need <= cap(list) {
		return list, nil
	}
	more := max(need, 2*cap(list), 16) - cap(list)
	if grab != nil && !grab(more*size) {
		return list, chat.ErrTooLarge
	}
	return slices.Grow(list, more+cap(list)-len(list)), nil
}

// sameText says whether text is what bytes are as text: engines put U+FFFD in the place of
// bytes that are none.
func sameText(b, text []byte) bool {
	return bytes.Equal(b, text) || bytes.Contains(text, replacement) && bytes.Equal(valid(b), valid(text))
}

// endsWith is sameText for the end of a text.
func endsWith(text, b []byte) bool {
	return bytes.HasSuffix(text, b) || bytes.Contains(text, replacement) && bytes.HasSuffix(valid(text), valid(b))
}

var replacement = []byte("\uFFFD")

// valid is b without what is no text, and without what stands for it.
func valid(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r != utf8.RuneError {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}
