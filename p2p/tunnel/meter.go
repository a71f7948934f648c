package tunnel

import "sync/atomic"

// Meter counts what goes through joined connections: several may share one. The
// zero value counts from nothing, and a nil one does not count.
type Meter struct {
	out, in, turns atomic.Uint64
}

// Read is what has gone through so far, at any time: the bytes from a to b, those
// from b to a, and how often something came from b to a after something had gone
// from a to b: where a asks and b answers, one turn is one round trip.
func (m *Meter) Read() (out, in, turns uint64) {
	return m.out.Load(), m.in.Load(), m.turns.Load()
}
