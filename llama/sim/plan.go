package sim

// kind is what a token of an answer belongs to.
type kind int

const (
	saying   kind = iota // the text
	thinking             // the reasoning before it
	naming               // the start of a tool call, and what comes first of its arguments
	passing              // its arguments
)

// step is one token of a plan.
type step struct {
	id   int
	kind kind
	text string // its bytes, which need not be whole characters
	call int    // which tool call, from 0
	last bool   // of its part of the answer
	mark bool   // it begins or ends a part, and shows nothing
}

// plan is an answer that is settled before it is made: what a script says, a
// tool call, or a value for a schema.
type plan struct {
	steps []step
	calls []call
	// finish is the finish reason where it is not the usual one.
	finish string
}

// call is a tool call. Its arguments are text, which need not be JSON.
type call struct{ id, name, arguments string }

func (p *plan) add(k kind, text string) {
	ids := Tokenize(text, false, false)
	for i, id := range ids {
		p.steps = append(p.steps, step{id: id, kind: k, text: Piece(id), call: len(p.calls) - 1, last: i == len(ids)-1})
	}
}

// mark adds a token that shows nothing, as those that begin or end a part do.
func (p *plan) mark(k kind) {
	p.steps = append(p.steps, step{id: tokenTool, kind: k, call: len(p.calls) - 1, mark: true})
}

// think adds reasoning.
func (p *plan) think(text string) {
	if text != "" {
		p.mark(thinking)
		p.add(thinking, text)
		p.mark(thinking)
	}
}

// invoke adds a call, whose id follows from the answer's start as tokens do.
func (p *plan) invoke(c chain, name, arguments string) {
	p.calls = append(p.calls, call{id: callID(c.add(len(p.calls))), name: name, arguments: arguments})
	p.mark(saying)
	p.add(passing, arguments)
	p.mark(passing)
}

// cut says whether the plan is to end after n tokens as if there were no room
// for more.
func (p *plan) cut(n int) bool {
	return p != nil && p.finish == "length" && n == len(p.steps)
}

// callID is 32 letters and digits, as llama-server's are.
func callID(c chain) string {
	b := make([]byte, 32)
	for i := range b {
		c = c.add(i)
		b[i] = letters[c.mix()%uint64(len(letters))]
	}
	return string(b)
}

// step is the n-th token of an answer, from 0, which w writes where there is no
// plan.
func (t *task) step(n int, w writer) step {
	switch {
	case t.plan == nil:
		id := w.next(t.ignoreEOS)
		if id == tokenEOS {
			return step{id: id}
		}
		return step{id: id, kind: t.begun.phase, text: Piece(id)}
	case n < len(t.plan.steps):
		return t.plan.steps[n]
	default:
		return step{id: tokenEOS}
	}
}
