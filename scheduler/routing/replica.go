package routing

import (
	"cmp"
	"slices"
	"time"
)

// Replica is one replica of the model, as the mesh says it is.
type Replica struct {
	// Peer is the id of the machine that serves it.
	Peer string
	// Mark names what serves there: with another one it is forgotten what the last one
	// failed at, and how busy it was. "" is not known.
	Mark string
	// Out is why it cannot be asked, as far as the mesh or the request itself says; ""
	// where it can.
	Out Out
	// Local: it runs where the entrance is, and Load is how busy it is, where Slots is not
	// 0. Otherwise RTT is how long it takes there and back, 0 where that is not known, and
	// Relayed says that a third machine passes on what is said.
	Local   bool
	Load    Load
	RTT     time.Duration
	Relayed bool
	// Context is how many tokens a slot holds, Slots how many there are; 0 where unknown.
	Context, Slots int
	// Decode and Prefill are the tokens/s of one request there, 0 where unknown.
	Decode, Prefill float64
}

// Load is how busy a replica says it is.
type Load struct {
	// Running are the requests in its slots, of which there are Slots, Waiting those that
	// wait for one.
	Running, Waiting, Slots int
}

// Out is why a replica is not asked, in a word.
type Out string

// The reasons; the first five are said by whoever lists the replicas.
const (
	// NotReady: it does not serve (yet, or any more).
	NotReady Out = "not_ready"
	// NotAlive: its peer does not answer, or is suspected not to.
	NotAlive Out = "not_alive"
	// NoTrust: its peer may not see requests.
	NoTrust Out = "no_trust"
	// Tried: it has failed this request already.
	Tried Out = "tried"
	// Leaving: it serves, and had better be left. It is asked where there is nobody else.
	Leaving Out = "leaving"
	// TooLong: the prompt does not fit into its context, as far as that can be told.
	TooLong Out = "too_long"
	// Full: it said so a moment ago.
	Full Out = "full"
	// BackOff: it failed lately, and is left alone for a while.
	BackOff Out = "back_off"
	// Share: it has more than its share, and others do as well.
	Share Out = "share"
)

// there says that it serves and will go on to, whether or not it can be asked this.
func (r *Replica) there() bool { return r.Out == "" || r.Out == Tried }

// candidate is a replica with what the entrance knows of it.
type candidate struct {
	Replica
	// hash stands for its peer.
	hash uint64
	// class is 0 for the fastest ones and those that are about as fast, 1 for the fastest
	// of the others, and so on; -1 where it does not serve. read and write are the seconds
	// that its class takes for a token of a prompt and for one of an answer.
	class       int
	read, write float64
	// ahead is how many requests are in its slots or wait for one, about.
	ahead float64
	// has is how many of the request's blocks it probably has read already, seat says that
	// it is where a talk belongs of which nobody knows where it is.
	has  int
	seat bool
	// talks are those that this entrance has there, work is what it got from it lately, in
	// seconds.
	talks int
	work  float64
	// full: it said so a moment ago. resting: it failed lately.
	full, resting bool
}

const (
	// usualPrompt and usualAnswer are how long they are taken to be where that is not
	// known, in tokens.
	usualPrompt, usualAnswer = 1024, 256
	// What is taken for the speed of replicas where no speed is known, in tokens/s.
	referencePrefill, referenceDecode = 200, 20
	// alike is within which ratio of the fastest one speeds are no difference: they are
	// measured, and one that is a little faster is not to get everything.
	alike = 1.25
)

// classify sorts the replicas that serve into classes. One whose speed is not known is
// taken for one of the fastest: else nobody would ever learn how fast it is.
func classify(list []candidate) {
	prefill, decode := 0.0, 0.0
	order := make([]int, 0, len(list))
	for i := range list {
		c := &list[i]
		c.class = -1
		if c.there() || c.Out == Leaving {
			order = append(order, i)
			prefill, decode = max(prefill, c.Prefill), max(decode, c.Decode)
		}
	}
	for _, i := range order {
		c := &list[i]
		c.read, c.write = 1/speed(c.Prefill, prefill, referencePrefill), 1/speed(c.Decode, decode, referenceDecode)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(list[a].pace(), list[b].pace()), cmp.Compare(a, b)) })
	for n, i := range order {
		c := &list[i]
		if n == 0 {
			c.class = 0
			continue
		}
		lead := &list[order[n-1]] // It has its leader's pace.
		if c.class = lead.class; c.pace() > alike*lead.pace() {
			c.class++
			continue
		}
		c.read, c.write = lead.read, lead.write
	}
}

// pace is how long a usual request takes, in seconds.
func (c *candidate) pace() float64 { return usualPrompt*c.read + usualAnswer*c.write }

func speed(known, fastest, reference float64) float64 {
	switch {
	case known > 0:
		return known
	case fastest > 0:
		return fastest
	}
	return reference
}
