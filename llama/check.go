package llama

import (
	"context"
	"fmt"
	"time"
)

// checkTime is how long Check waits for a token at most.
const checkTime = 30 * time.Second

// Check has the engine do the least piece of what it is for, to find one that
// has stopped to although it still says that it is healthy. It is for when
// requests stall: it takes a slot, waits for one behind other requests, and
// gives up when ctx is over, after 30 seconds at the latest. The error is
// ErrEngine where the engine is no longer of use, and ctx's where the caller
// gave up.
func (p *Process) Check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err := p.trial(within, p.kind)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && context.Cause(ctx) != nil && within.Err() != nil:
		if _, limited := ctx.Deadline(); !limited {
			return fmt.Errorf("model %q: %w", p.name, context.Cause(ctx))
		}
	}
	return fmt.Errorf("model %q: %w: it gives no answer to a smallest request: %w", p.name, ErrEngine, err)
}
