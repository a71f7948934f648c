package llama

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// restTime is how long the tool of a GPU's maker is left alone that did not answer
// in its time: each question to it costs that time again, and may wake what hangs.
const restTime = time.Minute

// tools are the programs that are asked about GPUs. One that hangs and cannot be
// ended is not asked again while it lives: there would be more and more of them.
type tools struct {
	now func() time.Time

	mu    sync.Mutex
	stuck map[string]stuckError // By program.
	rests map[string]rest       // By program.
	told  []string              // The troubles of the last look.
}

// rest is why a program is left alone, and until when.
type rest struct {
	why   error
	until time.Time
}

func newTools() *tools {
	return &tools{now: time.Now, stuck: map[string]stuckError{}, rests: map[string]rest{}}
}

// news are the troubles where they are others than those of the last look.
func (t *tools) news(troubles []string) []string {
	if t == nil {
		return troubles
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.told
	t.told = slices.Clone(troubles)
	if slices.Equal(was, troubles) {
		return nil
	}
	return troubles
}

// askMaker asks the tool of a GPU's maker. That it is not there is told from that
// it does not answer, also when the time is up.
func (t *tools) askMaker(ctx context.Context, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", err
	}
	if t == nil {
		return t.ask(ctx, toolTime, program, args...)
	}
	t.mu.Lock()
	r, rests := t.rests[program]
	t.mu.Unlock()
	if rests && t.now().Before(r.until) {
		return "", r.why
	}
	out, err := t.ask(ctx, toolTime, program, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rests, program)
	if errors.As(err, new(lateError)) {
		t.rests[program] = rest{err, t.now().Add(restTime)}
	}
	return out, err
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
