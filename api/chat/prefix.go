package chat

// Prefix takes off an answer what it begins with: the engine goes on from a
// last message of the assistant, and repeats its text first. An answer that
// begins otherwise is left as it is.
type Prefix struct {
	text string
	seen int // bytes of text that came
}

// NewPrefix is for an answer that begins with text; "" takes nothing off.
func NewPrefix(text string) Prefix { return Prefix{text: text} }

// Strip takes the next piece of the answer and gives what is left of it.
func (p *Prefix) Strip(piece string) string {
	rest := p.text[p.seen:]
	if rest == "" {
		return piece
	}
	n := 0
	for n < len(piece) && n < len(rest) && piece[n] == rest[n] {
		n++
	}
	switch {
	case n == len(rest) || n == len(piece):
		p.seen += n
		return piece[n:]
	default:
		return p.Flush() + piece
	}
}

// Flush gives what was taken off an answer that turned out to begin otherwise,
// or ended within it.
func (p *Prefix) Flush() string {
	if p.seen == len(p.text) {
		return ""
	}
	held := p.text[:p.seen]
	p.text, p.seen = "", 0
	return held
}
