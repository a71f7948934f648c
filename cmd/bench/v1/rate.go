//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	"relay/cmd/bench/figure"
)

const (
	// asking is how many clients ask, each anew as soon as it has its answer, of
	// short tokens, for burst in each round.
	asking, short = 16, 16
	burst         = 2 * time.Second
)

// rates: how many requests a second a way carries for each core that its processes
// keep busy: requests divided by the seconds of processor time that the peer took
// (both peers, over a hop), without those of the clients and the engine. Prompts of
// 1 KiB, streamed answers of 16 tokens, 16 clients.
func rates(ctx context.Context) error {
	return onMesh(ctx, engine{}, func(m *mesh) error {
		list := map[*way][]float64{}
		for i := range rounds {
			for j := range m.ways {
				w := m.ways[(i+j)%len(m.ways)]
				rate, err := w.perCore(ctx)
				if err != nil {
					return err
				}
				list[w] = append(list[w], rate)
			}
		}
		for _, w := range m.ways {
			of := "_" + w.name
			if w.name == "local" {
				of = ""
			}
			figure.Value("rps_per_core"+of, figure.Median(list[w]), "1/s")
		}
		return nil
	})
}

func (w *way) perCore(ctx context.Context) (float64, error) {
	before, err := processorTime(w.pids)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var served int
	var failed error
	var all sync.WaitGroup
	request := body(1<<10, short)
	end := time.Now().Add(burst)
	for range asking {
		all.Go(func() {
			for time.Now().Before(end) {
				_, err := w.ask(ctx, request, nil)
				mu.Lock()
				served++
				if err != nil {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	after, err := processorTime(w.pids)
	if err != nil {
		return 0, err
	}
	return float64(served) / (after - before).Seconds(), failed
}
