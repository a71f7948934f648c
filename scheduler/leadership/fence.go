package leadership

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
)

const (
	// MaxJump is the largest step from an epoch that a worker has obeyed to one
	// that it will obey. Honest epochs grow by one with each takeover; a claim
	// that leaps would use up the numbers that others need.
	MaxJump = 1 << 16
	// MaxEpoch bounds epochs from above; they are lower than it. A model at the
	// bound must be added again: fences are kept per uid, a new one starts anew.
	MaxEpoch = 1 << 48
)

// Fence orders the commands about one model, those of every leader it ever had.
type Fence struct {
	// Epoch grows by one with each takeover; 0 means that nobody has led yet.
	Epoch uint64
	// Rank is the leader's rank for the model, so that two takeovers of one
	// epoch on two sides of a cut are ordered as well.
	Rank uint64
}

// Compare returns -1, 0 or +1 as f is lower than, equal to or higher than o.
func (f Fence) Compare(o Fence) int {
	return cmp.Or(cmp.Compare(f.Epoch, o.Epoch), cmp.Compare(f.Rank, o.Rank))
}

// Less says whether f is lower than o.
func (f Fence) Less(o Fence) bool { return f.Compare(o) < 0 }

// Obey says whether a worker that has obeyed kept (zero if nothing yet) may obey
// ordered: never a lower fence, never one that leaps.
func Obey(kept, ordered Fence) bool {
	switch {
	case ordered.Less(kept) || ordered.Epoch >= MaxEpoch:
		return false
	case kept.Epoch == 0: // nothing to measure the step by
		return true
	}
	return ordered.Epoch-kept.Epoch <= MaxJump
}

// Rank is a peer's rank for a model: the first 64 bits of the sha256 of both
// (rendezvous hashing: each model has an order of peers of its own, and a peer
// that comes or goes moves only the models that it led or will lead).
func Rank(uid, peer string) uint64 {
	h := sha256.New()
	h.Write([]byte(uid))
	h.Write([]byte{0})
	h.Write([]byte(peer))
	return binary.BigEndian.Uint64(h.Sum(nil))
}
