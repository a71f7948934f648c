package llama

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"
)

// tools are the programs that are asked about GPUs. One that hangs and cannot be
// ended is not asked again while it lives: there would be more and more of them.
type tools struct {
	mu    sync.Mutex
	stuck map[string]stuckError // By program.
}

func newTools() *tools { return &tools{stuck: map[string]stuckError{}} }

// askMaker asks the tool of a GPU's maker. That it is not there is told from that
// it does not answer, also when the time is up.
func (t *tools) askMaker(ctx context.Context, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", err
	}
	return t.ask(ctx, toolTime, program, args...)
}

func (t *tools) ask(ctx context.Context, limit time.Duration, program string, args ...string) (string, error) {
	if t == nil { // Nobody keeps the list, and so asks but once.
		return ask(ctx, limit, program, args...)
	}
	t.mu.Lock()
	was, stuck := t.stuck[program]
	t.mu.Unlock()
	if stuck {
		select {
		case <-was.gone:
		default:
			return "", was
		}
	}
	out, err := ask(ctx, limit, program, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.stuck, program)
	if errors.As(err, &was) {
		t.stuck[program] = was
	}
	return out, err
}
