// Package quota decides whether a key may make one more request, from what is known
// of its use at one moment. It reads no clock and keeps nothing.
//
// A limit is for the whole mesh, and each entrance decides by itself, from what the
// others have told it. What they have not told yet is how far a limit can be
// overshot; the rules below keep that small and pass what there is around.
package quota

import (
	"fmt"
	"time"
)

// Limits are those of one key; 0 is no limit.
type Limits struct {
	RequestsPerMinute int64
	TokensPerDay      int64
	Concurrency       int64
}

// Use is what is known of a key's use.
type Use struct {
	// Now is by the clock of Here and Elsewhere, Midnight in how long the day ends.
	Now, Midnight time.Duration
	// Entrances are the peers at which somebody asks with this key, this one
	// included.
	Entrances int64
	// Here and Elsewhere are the requests of the last minute.
	Here      *Window
	Elsewhere []*Window
	// Running are the requests that are under way.
	RunningHere, RunningElsewhere int64
	// Tokens are those of today, everywhere.
	Tokens int64
}

// Refusal says which limit is reached.
type Refusal struct {
	// Text is what the key may and what it has done, as the end of a sentence that
	// begins with the key.
	Text string
	// After is in how long there may be something left.
	After time.Duration
}

// busyWait is how long to wait where nobody knows when a request ends.
const busyWait = time.Second

// Decide says whether one more request is let in; nil means yes.
//
// Of requests, by the minute and at once, an entrance lets in no more than its
// share, the limit divided by the entrances (and one at least), and none that
// would bring what is known of all entrances above the limit. Of tokens nobody has
// a share: how many a request takes shows only as it goes on.
func Decide(l Limits, u Use) *Refusal {
	switch {
	case l.TokensPerDay > 0 && u.Tokens >= l.TokensPerDay:
		return &Refusal{fmt.Sprintf("has used %d of its %d tokens a day, at all peers together; there are more after midnight UTC", u.Tokens, l.TokensPerDay), u.Midnight}
	case l.RequestsPerMinute > 0 && u.requestsLeft(l, u.Now) < 1:
		return &Refusal{fmt.Sprintf("has made %d requests here and %d elsewhere within a minute, of %d that it may make%s",
			u.Here.Sum(u.Now), u.elsewhere(u.Now), l.RequestsPerMinute, u.shareText(l.RequestsPerMinute)),
			wait(u.Now, func(at time.Duration) bool { return u.requestsLeft(l, at) >= 1 })}
	case l.Concurrency > 0 && min(u.share(l.Concurrency)-u.RunningHere, l.Concurrency-u.RunningHere-u.RunningElsewhere) < 1:
		return &Refusal{fmt.Sprintf("has %d requests under way here and %d elsewhere, of %d that it may have at once%s",
			u.RunningHere, u.RunningElsewhere, l.Concurrency, u.shareText(l.Concurrency)), busyWait}
	}
	return nil
}

// RequestsLeft is how many requests an entrance would let in now, and in how long the
// minute of all that were made is over.
func RequestsLeft(l Limits, u Use) (left int64, reset time.Duration) {
	reset = u.Here.empty(u.Now)
	for _, w := range u.Elsewhere {
		reset = max(reset, w.empty(u.Now))
	}
	return max(0, u.requestsLeft(l, u.Now)), reset
}

func (u Use) requestsLeft(l Limits, at time.Duration) int64 {
	here := u.Here.Sum(at)
	return min(u.share(l.RequestsPerMinute)-here, l.RequestsPerMinute-here-u.elsewhere(at))
}

func (u Use) elsewhere(at time.Duration) (sum int64) {
	for _, w := range u.Elsewhere {
		sum += w.Sum(at)
	}
	return sum
}

// share is the part of a limit that this entrance may give out.
func (u Use) share(limit int64) int64 { return max(1, limit/max(1, u.Entrances)) }

func (u Use) shareText(limit int64) string {
	if u.Entrances < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d of them at each of the %d peers where it is in use)", u.share(limit), u.Entrances)
}
