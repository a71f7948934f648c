package api

import "relay/scheduler"

// begins says in want how the request's prompt begins, and how long it is: two requests
// that begin alike say so alike, at whichever door they are.
func (q *request) begins(want *scheduler.Want) {}
