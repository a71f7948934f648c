package sim

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// stopType says why an answer ended, in llama-server's words.
type stopType string

const (
	stopEOS   stopType = "eos"
	stopWord  stopType = "word"
	stopLimit stopType = "limit"
)

// piece is one token of an answer and the text that may be shown with it: empty
// while it may be the beginning of a stop string.
type piece struct {
	id   int
	text string
	nth  int // from 1
	kind kind
	call int  // which tool call, from 0
	part bool // of a character that is not complete: nothing tells of it
	// before is what was there before the answer, and is repeated with it.
	before string
	mark   bool // its text is never shown
}

// sent is what llama-server counts as the text of the piece: with what was held
// back before it, and with what it hides of a message.
func (p piece) sent() string {
	if p.mark {
		return Piece(p.id)
	}
	return p.text
}

// answer is what one task came to.
type answer struct {
	task
	slot        int
	cached      int // tokens of the prompt that the slot had
	read        int // tokens of the prompt, with those
	pieces      []piece
	repeated    bool
	text        []byte
	held        string // at the end, as the beginning of a stop string
	part        string // at the end, of a character
	thought     []byte
	calls       []call
	stop        stopType
	stopWord    string
	prefillTime time.Duration
	decode      time.Duration
}

// These end an answer the way its fault says.
var (
	errDrop  = errors.New("the connection is cut before the answer, as asked for")
	errDie   = errors.New("the connection is cut, as asked for")
	errEnd   = errors.New("the answer ends early, as asked for")
	errWrong = errors.New("wrong bytes, as asked for")

	errCompute = fail("Compute error.")
)

// A watcher hears of an answer while it is made.
type watcher interface {
	// progress comes before the prompt is read, and after each batch of it.
	progress(*answer) error
	// piece comes after every token.
	piece(*answer, piece) error
	// silent comes now and then while there is nothing to tell.
	silent() error
}

// generate computes one task in the slot it is given.
func (s *Server) generate(ctx context.Context, t task, slot *slot, f *Fault, to watcher) (a answer, err error) {
	a = answer{task: t, slot: slot.n}
	if !t.fresh {
		a.cached = slot.cached(t.ids)
		a.read = a.cached
	}
	defer func() { slot.keep(a.ids[:a.read], a.pieces) }()
	if err := to.progress(&a); err != nil {
		return a, err
	}
	if err := s.prefill(ctx, &a, to); err != nil {
		return a, err
	}
	defer func() { s.worked(work{tokens: len(a.pieces), time: a.decode}) }()
	began := time.Now()

	w := s.writer(t.seed, t.ids)
	for {
		if f != nil && len(a.pieces) == f.After {
			if err := strike(ctx, f.Kind, to.silent); err != nil {
				return a, err
			}
		}
		if err := pause(ctx, s.takes(s.opt.DecodeRate, 1), to.silent); err != nil {
			return a, err
		}
		next := t.step(len(a.pieces), w)
		w = w.add(next.id)
		p := piece{id: next.id, nth: len(a.pieces) + 1, kind: next.kind, call: next.call, mark: next.mark}
		text := a.part + next.text
		p.part = incomplete(text)
		switch {
		case next.id == tokenEOS:
			a.stop = stopEOS
			if !p.part {
				p.text, a.held = a.held, ""
			}
		case p.part:
			a.part = text
		case next.kind != saying:
			p.text, a.part = text, ""
		default:
			a.part = ""
			p.text, a.held, a.stopWord = split(a.held+text, t.stop)
			if a.stopWord != "" {
				a.stop = stopWord
			} else if next.last {
				p.text, a.held = p.text+a.held, ""
			}
		}
		if full := p.nth == t.max || len(t.ids)+p.nth >= s.opt.Context || t.plan.cut(p.nth); full && a.stop == "" {
			a.stop = stopLimit
		}
		if p.kind == passing && !p.part && len(a.calls) == p.call {
			p.kind = naming
		}
		if p.kind == saying && !p.part && !a.repeated && !t.begun.silent {
			p.before, a.repeated = t.begun.content, true
		}
		a.take(p)
		a.decode = time.Since(began)
		if err := to.piece(&a, p); err != nil {
			return a, err
		}
		if a.stop != "" && f != nil && f.After == len(a.pieces) {
			return a, strike(ctx, f.Kind, to.silent)
		}
		if a.stop != "" {
			return a, nil
		}
	}
}

// take adds a piece to what is answered.
func (a *answer) take(p piece) {
	a.pieces = append(a.pieces, p)
	if p.part {
		return
	}
	switch p.kind {
	case saying:
		a.text = append(a.text, p.text...)
	case thinking:
		a.thought = append(a.thought, p.text...)
	case naming:
		planned := a.plan.calls[p.call]
		a.calls = append(a.calls, call{id: planned.id, name: planned.name, arguments: p.text})
	case passing:
		a.calls[p.call].arguments += p.text
	}
}

// prefill reads the prompt, a batch at a time.
func (s *Server) prefill(ctx context.Context, a *answer, to watcher) error {
	began := time.Now()
	defer func() { s.worked(work{promptTokens: a.read - a.cached, promptTime: a.prefillTime}) }()
	for a.read < len(a.ids) {
		n := min(s.opt.Batch, len(a.ids)-a.read)
		if err := pause(ctx, s.takes(s.opt.PrefillRate, n), to.silent); err != nil {
			return err
		}
		a.read += n
		a.prefillTime = time.Since(began)
		if err := to.progress(a); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// incomplete says whether a text ends inside a character.
func incomplete(text string) bool {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			return !utf8.FullRuneInString(tail)
		}
	}
	return false
}

// split parts text into what may be shown and what may yet become a stop
// string; word is the stop string that is there in full, which ends the text.
func split(text string, stops []string) (show, hold, word string) {
	at := -1
	for _, s := range stops {
		if i := strings.Index(text, s); s != "" && i >= 0 && (at < 0 || i < at) {
			at, word = i, s
		}
	}
	if at >= 0 {
		return text[:at], "", word
	}
	longest := 0
	for _, s := range stops {
		for n := min(len(s), len(text)); n > longest; n-- {
			if strings.HasSuffix(text, s[:n]) {
				longest = n
			}
		}
	}
	return text[:len(text)-longest], text[len(text)-longest:], ""
}

// strike does what a fault in the middle of an answer does.
func strike(ctx context.Context, kind FaultKind, silent func() error) error {
	switch kind {
	case FaultStall:
		for {
			if err := pause(ctx, time.Hour, silent); err != nil {
				return err
			}
		}
	case FaultDie:
		return errDie
	case FaultWrong:
		return errWrong
	case FaultEnd:
		return errEnd
	case FaultError:
		return errCompute
	}
	return nil
}

// takes is how long a slot needs for so many tokens beside the ones that are busy now.
func (s *Server) takes(rate float64, tokens int) time.Duration {
	alone := perToken(rate, tokens)
	if s.opt.Slowdown == 0 || alone == 0 {
		return alone
	}
	s.mu.Lock()
	others := max(s.state.Active-1, 0)
	s.mu.Unlock()
	return time.Duration(float64(alone) * (1 + s.opt.Slowdown*float64(others)))
}

func perToken(rate float64, tokens int) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(tokens) / rate * float64(time.Second))
}

// pingKey carries a request's ping interval in its context.
type pingKey struct{}

// pause waits, and calls silent every ping interval.
func pause(ctx context.Context, d time.Duration, silent func() error) error {
	if d <= 0 {
		return ctx.Err()
	}
	over := time.NewTimer(d)
	defer over.Stop()
	var ping <-chan time.Time
	if every, _ := ctx.Value(pingKey{}).(time.Duration); every > 0 && every < d {
		t := time.NewTicker(every)
		defer t.Stop()
		ping = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return nil
		case <-ping:
			if err := silent(); err != nil {
				return err
			}
		}
	}
}
