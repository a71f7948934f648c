package chat

import "errors"

// ErrTooLarge is an answer that is larger than what may be held of it.
var ErrTooLarge = errors.New("the answer is larger than what may be held of it")

// Text is bytes that are kept and counted: grab is asked for n more before they
// are there. The zero value is empty.
type Text struct{ b []byte }

// Add keeps s.
func (t *Text) Add(s string, grab func(n int) bool) error {
	if err := t.room(len(s), grab); err != nil {
		return err
	}
	t.b = append(t.b, s...)
	return nil
}

// room makes room for n more bytes.
func (t *Text) room(n int, grab func(n int) bool) error {
	need := len(t.b) + n
	if need <= cap(t.b) {
		return nil
	}
	size := max(need, 2*cap(t.b), 64)
	if grab != nil && !grab(size-cap(t.b)) {
		return ErrTooLarge
	}
	grown := make([]byte, len(t.b), size)
	copy(grown, t.b)
	t.b = grown
	return nil
}

// String is what is kept.
func (t *Text) String() string { return string(t.b) }

// Bytes is what is kept, until more is.
func (t *Text) Bytes() []byte { return t.b }

// Len is how many bytes are kept.
func (t *Text) Len() int { return len(t.b) }
