package scheduler

import (
	"context"
	"fmt"
)

// Serve takes a place on this peer's own replica for a request that another
// peer's door forwarded. Errors are of type *Error and say what to do; with one the lease
// says how busy the replica is, where there is one, and nothing else.
func (s *Scheduler) Serve(ctx context.Context, want Want) (Lease, error) {
	v, _ := s.latest()
	m := v.model[want.UID]
	if m == nil {
		return Lease{}, &Error{Why: ModelNotFound, Message: "this peer knows no such model", Retry: RetryElsewhere}
	}
	if s.barred(v) {
		return Lease{}, &Error{Why: NotAllowed, Message: "this peer may not serve others' requests any more", Retry: RetryElsewhere}
	}
	p, err := s.work.admit(ctx, want)
	switch {
	case err != nil:
		return Lease{Load: p.load}, err
	case p.process == nil:
		return Lease{}, &Error{Why: ModelLoading, Message: fmt.Sprintf("model %q does not run on this peer any more", m.shown), Retry: RetryElsewhere}
	}
	return Lease{Model: v.served(m), Client: p.process.Client(), Load: p.load, Done: p.leave}, nil
}
