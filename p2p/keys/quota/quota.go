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
	// Share is what this one may let in before it makes up another, in ShareEnds.
	Share     Share
	ShareEnds time.Duration
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

// Turn is for how long a share holds: what each entrance let in at its beginning
// has come to all others at its end.
const Turn = time.Second

// Share is how many requests one entrance may let in within a turn, and how many more
// it may have under way.
type Share struct{ Requests, AtOnce int64 }

// ShareOf is what an entrance may let in within the next turn: of what is left of each
// limit, as far as is known when the turn begins, the part of one of the entrances,
// rounded up.
func ShareOf(l Limits, u Use) Share {
	part := func(rest int64) int64 { return (max(0, rest) + u.Entrances - 1) / max(1, u.Entrances) }
	return Share{part(u.requestsRest(l, u.Now)), part(l.Concurrency - u.RunningHere - u.RunningElsewhere)}
}

// Decide says whether one more request is let in; nil means yes.
//
// Of requests, by the minute and at once, an entrance lets in no more than its share of
// what is left, where there are others, and none that would bring what is known of all
// entrances above the limit. So what nobody else uses is there for one entrance a turn
// or two later, and what all let in without knowing of one another stays small. Of
// tokens nobody has a share: how many a request takes shows only as it goes on.
func Decide(l Limits, u Use) *Refusal {
	switch {
	case l.TokensPerDay > 0 && u.Tokens >= l.TokensPerDay:
		return &Refusal{fmt.Sprintf("has used %d of its %d tokens a day, at all peers together; there are more after midnight UTC", u.Tokens, l.TokensPerDay), u.Midnight}
	case l.RequestsPerMinute > 0 && u.requestsRest(l, u.Now) < 1:
		return &Refusal{u.madeText(l), wait(u.Now, func(at time.Duration) bool { return u.requestsRest(l, at) >= 1 })}
	case l.RequestsPerMinute > 0 && u.Entrances > 1 && u.Share.Requests < 1:
		return &Refusal{u.madeText(l) + u.shareText(), u.ShareEnds}
	case l.Concurrency > 0 && l.Concurrency-u.RunningHere-u.RunningElsewhere < 1:
		return &Refusal{u.runningText(l), busyWait}
	case l.Concurrency > 0 && u.Entrances > 1 && u.Share.AtOnce < 1:
		return &Refusal{u.runningText(l) + u.shareText(), u.ShareEnds}
	}
	return nil
}

// RequestsLeft is how many requests are left of a minute's, as far as is known, and in
// how long the minute of all that were made is over.
func RequestsLeft(l Limits, u Use) (left int64, reset time.Duration) {
	reset = u.Here.empty(u.Now)
	for _, w := range u.Elsewhere {
		reset = max(reset, w.empty(u.Now))
	}
	return max(0, u.requestsRest(l, u.Now)), reset
}

func (u Use) requestsRest(l Limits, at time.Duration) int64 {
	return l.RequestsPerMinute - u.Here.Sum(at) - u.elsewhere(at)
}

func (u Use) elsewhere(at time.Duration) (sum int64) {
	for _, w := range u.Elsewhere {
		sum += w.Sum(at)
	}
	return sum
}

func (u Use) madeText(l Limits) string {
	return fmt.Sprintf("has made %s here and %d elsewhere within a minute, of %d that it may make", requests(u.Here.Sum(u.Now)), u.elsewhere(u.Now), l.RequestsPerMinute)
}

func (u Use) runningText(l Limits) string {
	return fmt.Sprintf("has %s under way here and %d elsewhere, of %d that it may have at once", requests(u.RunningHere), u.RunningElsewhere, l.Concurrency)
}

func requests(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

func (u Use) shareText() string {
	return fmt.Sprintf("; what is left is shared anew each second by the %d peers where it is in use", u.Entrances)
}
