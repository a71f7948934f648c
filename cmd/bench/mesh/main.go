//go:build linux

// Command mesh prints the figures of the mesh, measured with the real binary in
// network namespaces: `make bench-mesh` runs it, as root. One line per figure;
// what it does goes to stderr.
package main

import (
	"context"
	"time"

	"relay/cmd/bench/figure"
)

func main() {
	figure.Main([]figure.Part{
		{Name: "join", Prints: "join_to_first_answer_s", Measure: joining},
		{Name: "converge", Prints: "converge_p99_s_50", Measure: converging},
		{Name: "sync", Prints: "sync_bytes_per_change", Measure: comparing},
		{Name: "idle", Prints: "idle_bytes_s_10|25|50 memory_mib_10|25|50", Measure: idling},
		{Name: "sim", Prints: "idle_bytes_s_200_sim", Measure: simulating},
		{Name: "silence", Prints: "suspect_s gone_s, each also _kill _freeze _cut", Measure: silences},
		{Name: "false", Prints: "false_suspects_per_hour", Measure: falseSuspects},
	})
}

// p99 is the smallest value that 99 of 100 do not exceed: of 20, the largest.
func p99(list []float64) float64 { return figure.Rank(list, 0.99) }

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
