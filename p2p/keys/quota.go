package keys

import (
	"fmt"
	"time"
)

// Ticket is one request that was let in.
type Ticket interface {
	// Used says how many tokens the request has taken so far, all in all. It may
	// be called as often as they come; a lower figure than an earlier one is
	// ignored.
	Used(prompt, completion int)
	// Done ends the request; what it took stays counted. It may be called again.
	Done()
}

// Standing is what is left to a key, as this peer knows it.
type Standing struct {
	// Requests is per minute, Tokens per day; nil where there is no limit.
	Requests, Tokens *Allowance
}

// Allowance is one limit of a key and what is left of it.
type Allowance struct {
	Limit, Remaining int64
	// Reset is in how long all of it is there again if nobody asks.
	Reset time.Duration
}

// QuotaError refuses a request for which the key has nothing left.
type QuotaError struct {
	// Text is the sentence with the figures.
	Text string
	// After is in how long asking again may help.
	After time.Duration
}

func (e *QuotaError) Error() string { return e.Text }

// Reason is the word for the refusal.
func (e *QuotaError) Reason() string { return "quota_exceeded" }

func refused(g Grant, text string, after time.Duration) *QuotaError {
	return &QuotaError{fmt.Sprintf("the key %q %s; ask again in %s", g.Name, text, roundUp(after)), after}
}

// roundUp is a wait as people are told it: whole seconds, and not too short.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
