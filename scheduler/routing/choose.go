package routing

import "time"

// Want is what counts of a request.
type Want struct {
	// Prefix are hashes of the prompt's leading blocks, each with all before it, from the
	// shortest to the longest. The first Shared of them are of what many requests begin
	// with, such as a system prompt and tools: they say nothing about whose turn it is.
	Prefix []uint64
	Shared int
	// Tokens is how long the prompt is, about; 0 where nobody knows.
	Tokens int
	// Answers is how many slots the request takes at the same time; 0 counts as 1. Light
	// says that it takes none.
	Answers int
	Light   bool
}

// Replica is one replica of the model, as the mesh says it is.
type Replica struct {
	// Peer is the id of the machine that serves it.
	Peer string
	// Out is why it cannot be asked, as far as the mesh or the request itself says; ""
	// where it can.
	Out Out
	// Local: it runs where the entrance is. Otherwise RTT is how long it takes there and
	// back, 0 where that is not known, and Relayed says that a third machine passes on
	// what is said.
	Local, Relayed bool
	RTT            time.Duration
	// Context is how many tokens a slot holds, Slots how many there are; 0 where unknown.
	Context, Slots int
	// Decode and Prefill are the tokens/s of one request there, 0 where unknown.
	Decode, Prefill float64
}

// Out is why a replica is not asked, in a word.
type Out string

// The reasons; the first four are said by whoever lists the replicas.
const (
	// NotReady: it does not serve (yet, or any more).
	NotReady Out = "not_ready"
	// NotAlive: its peer does not answer, or is suspected not to.
	NotAlive Out = "not_alive"
	// NoTrust: its peer may not see requests.
	NoTrust Out = "no_trust"
	// Tried: it has failed this request already.
	Tried Out = "tried"
	// TooLong: the prompt does not fit into its context.
	TooLong Out = "too_long"
	// Full: it said so a moment ago.
	Full Out = "full"
	// BackOff: it failed lately, and is left alone for a while.
	BackOff Out = "back_off"
)

// Load is how busy a replica says it is.
type Load struct{ Running, Waiting, Slots int }

// Verdict is what was found of one replica.
type Verdict struct {
	Peer string
	// Out is why it was not asked; "" where it could be.
	Out Out
	// Wait, Read, Write and Way are seconds: for a slot, for the part of the prompt that
	// it probably does not have, for an answer of usual length, and there and back.
	Wait, Read, Write, Way float64
}

// Seconds is when the answer is expected to be there.
func (v Verdict) Seconds() float64 { return v.Wait + v.Read + v.Write + v.Way }

// Decision is who is asked, and why.
type Decision struct {
	// Pick is the index of the replica among those that were listed; -1 where there is none.
	Pick int
	// Each are the verdicts on all of them, in the order in which they were listed.
	Each []Verdict
}
