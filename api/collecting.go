package api

import (
	"errors"

	"relay/api/chat"
	"relay/scheduler"
)

// collecting puts a stream together to one answer.
type collecting struct {
	*chat.Collector
	// hide takes from the choices what relay alone asked for; nil takes nothing.
	hide func(choices []byte) []byte
}

func (a *collecting) event(c *chunk) ([]byte, error) {
	at := c.out.get("choices")
	if a.hide == nil || !at.found() {
		return nil, a.Add(c.data)
	}
	var b []byte
	b = append(append(append(b, c.data[:at.start]...), a.hide(at.of(c.data))...), c.data[at.end:]...)
	return nil, a.Add(b)
}

func (a *collecting) end(usage) ([]byte, error) { return a.Answer() }

func (a *collecting) failed(no *refusal) []byte { return nil }

func (a *collecting) keepAlive() []byte { return nil }

// heldTooMuch is the refusal for an answer that may not be held whole; nil for any other
// error.
func heldTooMuch(err error) *refusal {
	if !errors.Is(err, chat.ErrTooLarge) {
		return nil
	}
	no := refuse(scheduler.Busy, "this peer holds as many bytes of requests and answers as it may; ask again in a moment, ask another peer, or have the answer streamed")
	no.retry = scheduler.RetryLater
	return no
}
