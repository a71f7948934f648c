//go:build linux

// Command routing prints the figures of who serves a request, and when.
package main

import "relay/cmd/bench/figure"

func main() {
	figure.Main([]figure.Part{
		{Name: "batch", Prints: "batch_normal_ttft_p99_ratio batch_without_rule_ratio, the last also _fair_keys", Measure: batch},
	})
}
