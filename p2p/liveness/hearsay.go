package liveness

import "time"

// Where not everybody is linked to everybody, a member learns of most others by
// their age: how long ago anybody at all heard them. Each probe's answer brings
// the ages that its sender knows, and the longest way on which they come is
// three members long (see package neighbours, up to 500 of them), four where a
// third is gone. An age is rounded up to AgeUnit and grows by the whole time
// that a probe and its answer took, so it may be too high, never too low.
//
// With r for that time, the age of one that answers is thus at most
//
//	ProbeEvery + 3 × (ProbeEvery + AgeUnit + r) = 2.15 s + 3 r
//
// FarSuspectAfter leaves room for an r of 0.28 s on all three, FarGoneAfter for
// 0.78 s, while ways are short: of the many that there are the best counts.
// Nothing needs to be passed on about one that died. Its age is counted from
// when the last of all heard it, wherever that becomes known.
const (
	// AgeUnit is the step in which ages are told.
	AgeUnit = 50 * time.Millisecond
	// FarSuspectAfter is the age at which a member without a link is suspect.
	FarSuspectAfter = 3 * time.Second
	// FarGoneAfter is the age at which it is gone: with half a ProbeEvery until
	// that is looked at, within 5 s of a kill.
	FarGoneAfter = 4500 * time.Millisecond
)

// Hearsay is what is known of a member from all who heard it. Its zero value
// has never been heard.
type Hearsay struct {
	heard time.Duration
	ever  bool
}

// Hear notes that the member was heard, by anybody, age before the time now.
func (h *Hearsay) Hear(now, age time.Duration) {
	if age < 0 {
		return
	}
	if at := now - age; !h.ever || at > h.heard {
		h.heard, h.ever = at, true
	}
}

// Age is how long ago the member was last heard; ok is false where it never was.
func (h *Hearsay) Age(now time.Duration) (age time.Duration, ok bool) { return now - h.heard, h.ever }

// State judges the member at the time now. One that was never heard is gone.
func (h *Hearsay) State(now time.Duration) State {
	switch age, ever := h.Age(now); {
	case !ever || age >= FarGoneAfter:
		return Gone
	case age >= FarSuspectAfter:
		return Suspect
	}
	return Alive
}
