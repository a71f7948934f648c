//go:build linux

// Command routing prints the figures of who serves a request, and when, through the doors
// of real peers with stand-ins for engines: `make bench-routing` runs it. One line per
// figure; what it does goes to stderr.
package main

import "relay/cmd/bench/figure"

func main() {
	figure.Main([]figure.Part{
		{Name: "talks", Prints: "prefix_hit_share load_spread, each also _one_entrance _three_entrances _any_of_three", Measure: talks},
		{Name: "batch", Prints: "batch_normal_ttft_p99_ratio batch_without_rule_ratio, the last also _fair_keys", Measure: batch},
	})
}
