// Package liveness says, from the silences that this peer observed, which
// members are alive, suspect or gone. It reads no clock: times are durations
// since any fixed moment of the observer's own monotonic clock, so that
// machines whose clocks are days apart agree about nothing but what they saw.
package liveness

import "time"

// State is how a member looks from here.
type State string

// The states. Draining is no matter of silence and is added by whoever knows.
const (
	Alive   State = "alive"
	Suspect State = "suspect"
	Gone    State = "gone"
)

const (
	// ProbeEvery is the time between two probes of one member.
	ProbeEvery = 500 * time.Millisecond
	// AnswerWithin is how long an answer may take.
	AnswerWithin = 400 * time.Millisecond
	// SuspectAfter is the silence after which a member is routed away from: two
	// probes in a row without an answer.
	SuspectAfter = 2*ProbeEvery + AnswerWithin - 200*time.Millisecond
	// GoneAfter is the silence after which its work is planned anew.
	GoneAfter = 4 * time.Second
)

// Observed is what is known of one member.
type Observed struct {
	// Heard is when it last answered; meaningless while Ever is false.
	Heard time.Duration
	Ever  bool
	RTT   time.Duration
}

// Answer notes that the member answered a probe at the time now.
func (o *Observed) Answer(now, rtt time.Duration) {
	o.Heard, o.Ever = now, true
	if o.RTT == 0 {
		o.RTT = rtt
	} else {
		o.RTT += (rtt - o.RTT) / 8 // The smoothing of TCP (RFC 6298).
	}
}

// State judges the member at the time now. One that never answered is gone.
func (o *Observed) State(now time.Duration) State {
	silence := now - o.Heard
	switch {
	case !o.Ever || silence >= GoneAfter:
		return Gone
	case silence >= SuspectAfter:
		return Suspect
	}
	return Alive
}
