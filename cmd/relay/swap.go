package main

import (
	"net/http"
	"sync"
)

// swap hands requests to the handler that is in place at the moment, and counts
// those that run.
type swap struct {
	mu      sync.Mutex
	handler http.Handler
	running int
	idle    chan struct{} // Closed when nothing runs any more; nil while nobody waits for that.
}

func newSwap(h http.Handler) *swap { return &swap{handler: h} }

// serve puts a handler in place. Requests that run go on with theirs.
func (s *swap) serve(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = h
}

// closeWith puts a handler in place that turns requests away, and returns a
// channel that is closed once those that ran before have ended.
func (s *swap) closeWith(h http.Handler) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = h
	idle := make(chan struct{})
	if s.running == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	return idle
}

func (s *swap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	h := s.handler
	s.running++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running--; s.running == 0 && s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
	}()
	h.ServeHTTP(w, r)
}
