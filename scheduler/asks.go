package scheduler

import (
	"context"
	"sync"
	"time"
)

const (
	// askEvery is how often the leader is told that somebody still waits for a model.
	askEvery = 2 * time.Second
	// askTime bounds one such word, and maxAsks how many are under way.
	askTime = 5 * time.Second
	maxAsks = 32
)

// asker tells the leaders of models that somebody waits for them: requests that
// no replica takes.
type asker struct {
	s     *Scheduler
	queue chan string // Uids.

	mu   sync.Mutex
	last map[string]time.Time // When it was last asked for; by uid.
}

func newAsker(s *Scheduler) *asker {
	return &asker{s: s, queue: make(chan string, maxAsks), last: map[string]time.Time{}}
}

// want has the leader told that a model is waited for, unless it just was.
func (a *asker) want(uid string) {
	a.mu.Lock()
	now := time.Now()
	due := now.Sub(a.last[uid]) >= askEvery
	if due {
		a.last[uid] = now
	}
	a.mu.Unlock()
	if !due {
		return
	}
	select {
	case a.queue <- uid:
	default: // Whoever waits says so again.
	}
}

// run tells the leaders until ctx ends.
func (a *asker) run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	room := make(chan struct{}, maxAsks)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case uid := <-a.queue:
			room <- struct{}{}
			under.Go(func() {
				defer func() { <-room }()
				ctx, cancel := context.WithTimeout(ctx, askTime)
				defer cancel()
				if _, err := a.s.Act(ctx, uid, ActWant); err != nil {
					a.s.log.Debug("a model's leader was not told that it is waited for", "uid", uid, "error", err)
				}
			})
		}
	}
}

// forget drops what is kept of models that are no more.
func (a *asker) forget(v *view) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.last {
		if v.model[uid] == nil {
			delete(a.last, uid)
		}
	}
}
