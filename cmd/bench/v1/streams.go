//go:build linux

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"relay/cmd/bench/figure"
)

const (
	// crowded is how many streams are open at a time through one entrance.
	crowded = 1000
	// slow and slowTokens make an answer of some seconds.
	slow, slowTokens = 5, 20
)

// manyStreams: so many requests at once through one entrance over a hop. One has
// failed unless its whole answer comes. stream_kib is how much resident memory of
// both peers each of them takes: the most that they have meanwhile, less what they
// had before. So too through nginx, and without the memory through the door of the peer
// that serves.
func manyStreams(ctx context.Context) error {
	return onMesh(ctx, engine{decode: slow}, func(m *mesh) error {
		// The hop first: what a peer has once taken it keeps for a while.
		slices.SortStableFunc(m.ways, func(a, b *way) int { return len(b.pids) - len(a.pids) })
		for _, w := range m.ways {
			before, err := rss(w.pids)
			if err != nil {
				return err
			}
			failed, most, err := w.rush(ctx)
			if err != nil {
				return err
			}
			var kib float64
			names := []string{"_entrance", "_serving"}
			for i := range w.pids {
				one := float64(most[i]-before[i]) / crowded
				kib += one
				if w.name == "hop" {
					figure.Value("stream_kib"+names[i], one, "KiB")
				}
			}
			of := ""
			if w.name != "hop" {
				of = "_" + w.name
			}
			if w.name != "local" {
				figure.Value("stream_kib"+of, kib, "KiB")
			}
			figure.Value("streams_1000_failed"+of, float64(failed), "")
		}
		return nil
	})
}

// rush opens all streams at once, reads them to their end, and returns how many
// failed, and the most memory that each process on the way had meanwhile, in KiB.
func (w *way) rush(ctx context.Context) (failed int, most []int64, err error) {
	most = make([]int64, len(w.pids))
	over := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			now, err2 := rss(w.pids)
			if err2 != nil {
				err = err2
				return
			}
			for i, kib := range now {
				most[i] = max(most[i], kib)
			}
			select {
			case <-tick.C:
			case <-over:
				tick.Stop()
				return
			}
		}
	})
	var mu sync.Mutex
	var all sync.WaitGroup
	request := body(1<<10, slowTokens)
	began := time.Now()
	for range crowded {
		all.Go(func() {
			if _, err := w.ask(ctx, request, nil); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed++; failed <= 3 {
					figure.Say("%v", err)
				}
			}
		})
	}
	all.Wait()
	figure.Say("%s: %d streams in %.1f s", w.name, crowded, time.Since(began).Seconds())
	close(over)
	looking.Wait()
	return failed, most, err
}
