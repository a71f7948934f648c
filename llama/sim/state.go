package sim

import (
	"context"
	"fmt"
	"time"
)

// State counts requests for completions, embeddings and ranks since the start.
type State struct {
	// Requests that came, well-formed or not.
	Requests int `json:"requests"`
	// Waiting for a slot now, and Active in one now.
	Waiting int `json:"waiting"`
	Active  int `json:"active"`
	// Finished with a whole answer or an error of their own.
	Finished int `json:"finished"`
	// Cancelled by the client going away, or by the server's end.
	Cancelled int `json:"cancelled"`
	// CancelledAt is when it noticed that for the last of them, which is when
	// the slot was free: it does not wait for its next look, as the real one
	// does, a second at most.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	// Struck by a fault.
	Struck int `json:"struck"`
	// Faults that are in force.
	Faults []Fault `json:"faults"`
}

// State is what the counters say now.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state
	st.Faults = append([]Fault{}, s.faults...)
	return st
}

// Wait returns when the counters satisfy ok, or ctx ends.
func (s *Server) Wait(ctx context.Context, ok func(State) bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		st := s.State()
		if ok(st) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("sim engine: still %+v: %w", st, ctx.Err())
		}
	}
}

// count changes the counters and wakes who waits for them.
func (s *Server) count(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
	close(s.changed)
	s.changed = make(chan struct{})
}

// SetFaults replaces the faults in force. Requests that are being answered keep
// those they began with.
func (s *Server) SetFaults(faults ...Fault) error {
	for _, f := range faults {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	s.count(func(*State) { s.faults = append([]Fault(nil), faults...) })
	return nil
}

// takeFault gives the fault that strikes the request at hand, or nil.
func (s *Server) takeFault() *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) == 0 {
		return nil
	}
	f := s.faults[0]
	if f.Times > 0 {
		if s.faults[0].Times--; s.faults[0].Times == 0 {
			s.faults = s.faults[1:]
		}
	}
	return &f
}
