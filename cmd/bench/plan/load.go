package main

import (
	"context"
	"sync"
	"time"

	"relay/cmd/bench/figure"
)

// load is clients that ask, each anew as soon as it has its answer.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	served  int
	failed  int
	longest time.Duration // That one request took.
}

// start has so many clients ask for answers of up to longest tokens, and returns once
// each has had a piece of one.
func (t *trio) start(ctx context.Context, clients, longest int) (*load, error) {
	ctx, stop := context.WithCancel(ctx)
	l := &load{stop: stop}
	begun := make(chan struct{}, clients)
	for range clients {
		l.clients.Go(func() {
			first := sync.OnceFunc(func() { begun <- struct{}{} })
			for ctx.Err() == nil {
				began := time.Now()
				err := t.Chat(ctx, t.asked, t.model, question, longest, func(string) { first() })
				if ctx.Err() != nil {
					return
				}
				l.note(err, time.Since(began))
				if err != nil {
					_ = pass(ctx, looks)
				}
			}
		})
	}
	for range clients {
		select {
		case <-begun:
		case <-time.After(time.Minute):
			l.end()
			return nil, context.DeadlineExceeded
		case <-ctx.Done():
			l.end()
			return nil, ctx.Err()
		}
	}
	return l, nil
}

// end ends the clients, and with them what they are in the middle of.
func (l *load) end() {
	l.stop()
	l.clients.Wait()
}

func (l *load) note(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, took)
	if err == nil {
		l.served++
		return
	}
	if l.failed++; l.failed <= 3 {
		figure.Say("a request failed after %s: %v", took, err)
	}
}
