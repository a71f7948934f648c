//go:build linux

package seam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is what came of a stream that was complete and right.
type Verdict struct {
	// Same: it is, byte for byte, what an engine says that nobody disturbs.
	Same bool
	// Prefill is what one step and the prefill of everything before the last seam take an
	// engine that is asked directly, and First what they take at the entrance when it is
	// asked for just that, until the client has the first piece. All of it is computed anew.
	// Zero where there is no seam.
	Prefill, First time.Duration
}

// Judge fails unless the stream has every token once, in its place: those before the
// first seam are the engine's own, and those after each seam are what an engine says
// that is asked directly to go on from exactly the tokens delivered before it, or from
// their text where that is how it was continued. The usage and the reason for the end
// must be right as well.
func (m *Mesh) Judge(ctx context.Context, s Stream) (v Verdict, err error) {
	if s.Broken != nil {
		return v, s.Broken
	}
	prompt, err := m.bare.prompt(ctx, s.Question, "")
	if err != nil {
		return v, err
	}
	whole, err := m.whole(ctx, s.Question, prompt)
	if err != nil {
		return v, err
	}
	is := chain{tokens: whole.tokens, prompt: whole.prompt}
	for _, seam := range s.Seams {
		n := seam.Tokens
		if n > len(is.tokens) {
			return v, fmt.Errorf("it was continued after %d tokens of %d", n, len(is.tokens))
		}
		if err := s.upTo(seam, is); err != nil {
			return v, err
		}
		if n == len(is.tokens) {
			continue // There was nothing left but the end.
		}
		given, ids := prompt, is.ids(n)
		if seam.By == "text" {
			if given, err = m.bare.prompt(ctx, s.Question, is.text(n)); err != nil {
				return v, err
			}
			ids = nil
		}
		rest, err := m.bare.goOn(ctx, given, ids, len(whole.tokens)-n)
		if err != nil {
			return v, err
		}
		is.tokens = append(slices.Clone(is.tokens[:n]), rest.tokens...)
		v.Prefill = rest.first
		if v.First, err = m.first(ctx, given, ids); err != nil {
			return v, err
		}
	}
	undisturbed, _, _ := whole.shown(s.Question.Stop)
	v.Same = s.Text == undisturbed
	return v, s.against(is)
}

// upTo wants the pieces before a seam to be so many tokens of the engine's.
func (s Stream) upTo(seam Seam, is chain) error {
	var b strings.Builder
	var ids []int
	for _, p := range s.pieces[:seam.at] {
		b.WriteString(p.text)
		ids = append(ids, p.ids...)
	}
	want := is.text(seam.Tokens)
	if at := strings.Index(want, s.Question.Stop); s.Question.Stop != "" && at >= 0 {
		want = want[:at]
	}
	if b.String() != want {
		return fmt.Errorf("it was continued after %d tokens, and the client had %s", seam.Tokens, differ(b.String(), want))
	}
	if s.Question.Chat && s.Question.Logprobs && s.Question.Stop == "" && !slices.Equal(ids, is.ids(seam.Tokens)) {
		return fmt.Errorf("it was continued after %d tokens, and the client had the ids of %d, or others: %v, not %v", seam.Tokens, len(ids), ids, is.ids(seam.Tokens))
	}
	return nil
}

// against wants the whole stream to be a chain.
func (s Stream) against(is chain) error {
	want, n, stopped := is.shown(s.Question.Stop)
	var errs []error
	if s.Text != want {
		errs = append(errs, fmt.Errorf("the client had %s", differ(s.Text, want)))
	}
	finish := "length"
	if stopped {
		finish = "stop"
	}
	if s.Finish != finish {
		errs = append(errs, fmt.Errorf("it ended by %q, not by %q", s.Finish, finish))
	}
	if s.Completion != n || s.Prompt != is.prompt {
		errs = append(errs, fmt.Errorf("the usage says %d tokens after %d, where there were %d after %d", s.Completion, s.Prompt, n, is.prompt))
	}
	return errors.Join(append(errs, s.tokensAgainst(is))...)
}

// tokensAgainst wants the tokens that came with logprobs to be those of a chain.
func (s Stream) tokensAgainst(is chain) error {
	if !s.Question.Logprobs || s.Question.Stop != "" { // Of what is held back only the last one comes with its text.
		return nil
	}
	var ids, offsets []int
	var texts []string
	for _, p := range s.pieces {
		ids, texts, offsets = append(ids, p.ids...), append(texts, p.tokens...), append(offsets, p.offset...)
	}
	if s.Question.Chat {
		if want := is.ids(len(is.tokens)); !slices.Equal(ids, want) {
			return fmt.Errorf("the client had %d ids, or others, where there were %d", len(ids), len(want))
		}
		return nil
	}
	at := 0
	if len(texts) != len(is.tokens) || len(offsets) != len(texts) {
		return fmt.Errorf("the client had %d tokens at %d places, where there were %d", len(texts), len(offsets), len(is.tokens))
	}
	for i, t := range is.tokens {
		if texts[i] != t.text || offsets[i] != at {
			return fmt.Errorf("token %d is %q at %d, not %q at %d", i, texts[i], offsets[i], t.text, at)
		}
		at += len([]rune(t.text))
	}
	return nil
}

// differ shows where two texts do.
func differ(got, want string) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from := max(0, at-20)
	return fmt.Sprintf("%d bytes where there should be %d; from byte %d on %.60q, not %.60q", len(got), len(want), from, got[from:], want[from:])
}

// whole is what an engine says that nobody disturbs, asked once for each question.
func (m *Mesh) whole(ctx context.Context, q Question, prompt string) (chain, error) {
	at := fmt.Sprint(q.Chat, q.Tokens, q.Text)
	if c, ok := m.wholes[at]; ok {
		return c, nil
	}
	c, err := m.bare.goOn(ctx, prompt, nil, q.Tokens)
	if err == nil {
		m.wholes[at] = c
	}
	return c, err
}
