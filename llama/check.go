package llama

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// checkTime is how long Check waits for a token at most.
const checkTime = 30 * time.Second

// Check has the engine do the least piece of what it is for, to find one that
// has stopped to although it still says that it is healthy. It is for when
// requests stall: it takes a slot, and waits for one behind other requests. The
// error is ErrEngine where no answer came before ctx's deadline, 30 seconds at
// the latest, or one that must not be; and ctx's where the caller gave up.
func (p *Process) Check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err := p.trial(within, p.kind)
	switch {
	case err == nil, errors.Is(err, ErrEngine):
	case errors.Is(ctx.Err(), context.Canceled):
		err = context.Cause(ctx)
	case within.Err() != nil:
		err = fmt.Errorf("%w: it says that it is healthy, but does not answer a smallest request", ErrEngine)
	default:
		err = fmt.Errorf("%w: it does not answer a smallest request: %w", ErrEngine, err)
	}
	if err != nil {
		return fmt.Errorf("model %q: %w", p.name, err)
	}
	return nil
}
