//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"relay/cmd/bench/figure"
)

const (
	// streams is how many are read at a time, each with pace tokens a second, for a
	// second.
	streams, pace = 16, 50
)

// eventDelays: how much later than from the engine itself an event of a stream
// comes through. An event's delay is from when the engine writes it, which the
// event says, to when the client has read it; what a way adds is the median of its
// delays less that of the direct ones, 16 streams at a time.
func eventDelays(ctx context.Context) error {
	return onMesh(ctx, engine{decode: pace, stamped: true}, func(m *mesh) error {
		p50, p99 := map[*way][]float64{}, map[*way][]float64{}
		var bases []float64
		for i := range rounds {
			list := map[*way][]float64{}
			for j := range m.all() {
				w := m.all()[(i+j)%len(m.all())]
				delays, err := w.delays(ctx)
				if err != nil {
					return err
				}
				list[w] = delays
			}
			base := list[m.direct]
			bases = append(bases, figure.Median(base))
			for _, w := range m.ways {
				p50[w] = append(p50[w], figure.Median(list[w])-figure.Median(base))
				p99[w] = append(p99[w], figure.Rank(list[w], 0.99)-figure.Rank(base, 0.99))
			}
		}
		figure.Say("direct %.3f ms", figure.Median(bases))
		for name, list := range map[string]map[*way][]float64{"event_added_p50_ms": p50, "event_added_p99_ms": p99} {
			worst := 0.0
			for _, w := range m.ways {
				figure.Value(name+"_"+w.name, figure.Median(list[w]), "ms")
				if w.name != "nginx" {
					worst = max(worst, figure.Median(list[w]))
				}
			}
			figure.Value(name, worst, "ms")
		}
		return nil
	})
}

// delays reads some streams at a time and returns the delays of their events, in
// ms.
func (w *way) delays(ctx context.Context) ([]float64, error) {
	var mu sync.Mutex
	var list []float64
	var failed error
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			// Spread over the time between two tokens.
			if pass(ctx, time.Second/pace*time.Duration(i)/streams) != nil {
				return
			}
			_, err := w.ask(ctx, body(1<<10, pace), func(data []byte, at time.Time) {
				if delay, ok := sinceStamp(data, at); ok {
					mu.Lock()
					list = append(list, ms(delay))
					mu.Unlock()
				}
			})
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if failed == nil && len(list) < streams*pace*9/10 {
		failed = fmt.Errorf("%s: of %d events %d say when they were sent", w.name, streams*pace, len(list))
	}
	return list, failed
}
