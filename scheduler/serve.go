package scheduler

import (
	"context"
	"fmt"
)

// Serve takes a place on this peer's own replica for a request that another
// peer's door forwarded. Errors are of type *Error and say what to do.
func (s *Scheduler) Serve(ctx context.Context, want Want) (Lease, error) {
	uid := want.UID
	v, _ := s.latest()
	m := v.model[uid]
	if m == nil {
		return Lease{}, &Error{Why: ModelNotFound, Message: "this peer knows no such model", Retry: RetryElsewhere}
	}
	if s.barred(v) {
		return Lease{}, &Error{Why: NotAllowed, Message: "this peer may not serve others' requests any more", Retry: RetryElsewhere}
	}
	process, leave, err := s.work.occupy(ctx, uid)
	if err != nil {
		return Lease{}, &Error{Why: Busy, Message: "the cores that this peer lends are busy with another model", Retry: RetryElsewhere, Err: err}
	}
	if process == nil {
		return Lease{}, &Error{Why: ModelLoading, Message: fmt.Sprintf("model %q does not run on this peer any more", m.shown), Retry: RetryElsewhere}
	}
	return Lease{Model: v.served(m), Client: process.Client(), Done: leave}, nil
}
