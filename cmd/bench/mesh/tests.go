//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"relay/cmd/bench/figure"
)

// comparing: what two peers say to one another for each record that one of them
// lacks, of a thousand. From the benchmark of the tables.
func comparing(ctx context.Context) error {
	out, err := figure.GoTest(ctx, "p2p/record", nil, "-run", "^$", "-bench", "^BenchmarkSync$", "-benchtime", "3x")
	if err != nil {
		return err
	}
	worst := 0.0
	for _, m := range regexp.MustCompile(`BenchmarkSync/differ=(\d+)\S*\s.*?([\d.]+) B/sync`).FindAllStringSubmatch(out, -1) {
		differ, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return err
		}
		total, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		if differ == 0 {
			continue
		}
		figure.Value("sync_bytes_per_change_"+m[1], total/differ, "B")
		worst = max(worst, total/differ)
	}
	if worst == 0 {
		return fmt.Errorf("the benchmark printed no figure: %s", out)
	}
	figure.Value("sync_bytes_per_change", worst, "B")
	return nil
}

// simulating: what 200 peers on a simulated network send when nothing happens.
// The test prints its own line.
func simulating(ctx context.Context) error {
	out, err := figure.GoTest(ctx, "p2p", []string{"RELAY_BENCH_IDLE=1"}, "-run", "^TestIdle200$", "-count", "1")
	if err != nil {
		return err
	}
	lines := regexp.MustCompile(`(?m)^BENCH .*$`).FindAllString(out, -1)
	if len(lines) == 0 {
		return fmt.Errorf("the test printed no figure: %s", out)
	}
	for _, line := range lines {
		fmt.Println(line)
	}
	return nil
}
