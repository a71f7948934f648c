// Package audit keeps one row for each request that this peer's door answered, for
// a time. Rows say who asked for what, where it ran and what it took, never a text.
package audit

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Row is one request.
type Row struct {
	// ID is the request's id as the client was told it.
	ID string `json:"id"`
	// Time is when the request came, by the clock of the peer whose door it came to.
	Time time.Time `json:"time"`
	// Entrance is the id of that peer.
	Entrance string `json:"entrance"`
	Method   string `json:"method"`
	Route    string `json:"route"`
	// Key is the id of the API key, empty where none opened the door.
	Key string `json:"key,omitempty"`
	// Model is what the client asked for, Served the name of the model that answered.
	Model  string `json:"model,omitempty"`
	Served string `json:"served,omitempty"`
	// Peer is the id of the peer that answered, or failed last; Attempts how many were
	// tried. Continued is how often a stream was taken up by another replica.
	Peer      string `json:"peer,omitempty"`
	Path      string `json:"path,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	Continued int    `json:"continued,omitempty"`
	Stream    bool   `json:"stream,omitempty"`
	// Status is that of HTTP; 499 for a client that left before its answer was whole.
	Status int    `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Prompt and Completion are tokens. Cached are those of the prompt that were not
	// computed anew.
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Cached     int `json:"cached_tokens,omitempty"`
	// QueueMS, FirstMS and TotalMS are milliseconds: waiting for a replica, until the
	// first data of the answer, and in all.
	QueueMS float64 `json:"queue_ms"`
	FirstMS float64 `json:"first_ms"`
	TotalMS float64 `json:"total_ms"`
}

// The longest texts in a row, in characters.
const (
	maxID   = 128
	maxName = 100
	maxWord = 64
)

// The most that a row says, of tokens and the like, and of milliseconds.
const (
	maxCount = 1 << 50
	maxMS    = 1e12
)

// Bounded is the row with every text cut to what a row may hold, and nothing in them
// that does more to a terminal than to be shown; and with no figure that cannot be.
func (r Row) Bounded() Row {
	r.ID = bounded(r.ID, maxID)
	r.Model, r.Served = bounded(r.Model, maxName), bounded(r.Served, maxName)
	r.Entrance, r.Peer, r.Key = bounded(r.Entrance, maxWord), bounded(r.Peer, maxWord), bounded(r.Key, maxWord)
	r.Method, r.Route, r.Path, r.Reason = bounded(r.Method, maxWord), bounded(r.Route, maxWord), bounded(r.Path, maxWord), bounded(r.Reason, maxWord)
	for _, n := range []*int{&r.Status, &r.Attempts, &r.Continued, &r.Prompt, &r.Completion, &r.Cached} {
		*n = min(max(*n, 0), maxCount)
	}
	for _, t := range []*float64{&r.QueueMS, &r.FirstMS, &r.TotalMS} {
		*t = min(max(*t, 0), maxMS)
	}
	return r
}

func bounded(text string, most int) string {
	plain := true
	for _, c := range text {
		plain = plain && unicode.IsPrint(c) && c != utf8.RuneError
	}
	if plain && len(text) <= most {
		return text
	}
	runes := []rune(strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return utf8.RuneError
	}, text[:min(len(text), 4*most)]))
	return string(runes[:min(len(runes), most)])
}
