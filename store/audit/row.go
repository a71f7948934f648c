// Package audit keeps one row for each request that this peer's door answered, for
// a time. Rows say who asked for what, where it ran and what it took, never a text.
package audit

import "time"

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
