// Package liveness says, from the silences that this peer observed and from
// what others vouch for, which members are alive, suspect or gone. It reads no
// clock: times are durations since any fixed moment of the observer's own
// monotonic clock, so that machines whose clocks are days apart agree about
// nothing but what they saw.
package liveness

import "time"

// State is how a member looks from here.
type State string

// The states. Draining is no matter of silence and is added by whoever knows.
const (
	// Alive: it answers. Requests may be sent to it.
	Alive State = "alive"
	// Suspect: it has not answered for a while, or answers others but not this
	// peer. It is routed away from; nothing is planned anew.
	Suspect State = "suspect"
	// Gone: nobody has heard of it. What it ran is planned anew.
	Gone State = "gone"
)

const (
	// ProbeEvery is the time between two probes of one member.
	ProbeEvery = 500 * time.Millisecond
	// AnswerWithin is how long an answer may take before others are asked.
	AnswerWithin = 400 * time.Millisecond
	// SuspectAfter is the silence after which a member is suspect: two probes
	// in a row without an answer.
	SuspectAfter = 1200 * time.Millisecond
	// GoneAfter is the silence, here and with those who were asked, after which
	// a member is gone.
	GoneAfter = 4 * time.Second
	// Witnesses is how many others are asked about a member that is silent here.
	Witnesses = 3
)

// Observed is what is known of one member. Its zero value has never answered.
type Observed struct {
	heard   time.Duration // When it last answered this peer.
	vouched time.Duration // When it last answered somebody who says so.
	refused time.Duration // When its port was last found closed.
	ever    bool
	rtt     time.Duration
}

// Answer notes that the member answered a probe at the time now. An answer that
// comes late is an answer: a slow peer is not a dead one.
func (o *Observed) Answer(now, rtt time.Duration) {
	o.heard, o.ever = now, true
	if o.rtt == 0 {
		o.rtt = rtt
	} else {
		o.rtt += (rtt - o.rtt) / 8 // The smoothing of TCP (RFC 6298).
	}
}

// Vouch notes that another member heard it directly, silence before the time
// now. What others know by hearsay does not count.
func (o *Observed) Vouch(now, silence time.Duration) {
	if silence >= 0 && silence < SuspectAfter {
		o.vouched = max(o.vouched, now-silence)
	}
}

// Refuse notes that the machine answered that nothing listens on the member's
// port: its process is dead, and so is what it ran.
func (o *Observed) Refuse(now time.Duration) { o.refused = now }

// State judges the member at the time now. One that never answered is gone.
func (o *Observed) State(now time.Duration) State {
	switch {
	case !o.ever:
		return Gone
	case now-o.heard < SuspectAfter:
		return Alive
	case o.refused > o.heard && now-max(o.heard, o.vouched) >= SuspectAfter:
		return Gone
	case now-max(o.heard, o.vouched) < GoneAfter:
		return Suspect
	}
	return Gone
}

// Silence is how long ago the member last answered this peer; ok is false where
// it never did.
func (o *Observed) Silence(now time.Duration) (silence time.Duration, ok bool) {
	return now - o.heard, o.ever
}

// RTT is the smoothed time of an answer; 0 while unknown.
func (o *Observed) RTT() time.Duration { return o.rtt }

// Doubtful says whether others should be asked about the member.
func (o *Observed) Doubtful(now time.Duration) bool {
	return o.ever && now-o.heard >= ProbeEvery+AnswerWithin
}
