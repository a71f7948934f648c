//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

// comparing: what two peers say to one another for each record that one of them
// lacks, of a thousand. From the benchmark of the tables.
func comparing(ctx context.Context) error {
	out, err := goTest(ctx, "p2p/record", "-run", "^$", "-bench", "^BenchmarkSync$", "-benchtime", "3x")
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
		value("sync_bytes_per_change_"+m[1], total/differ, "B")
		worst = max(worst, total/differ)
	}
	if worst == 0 {
		return fmt.Errorf("the benchmark printed no figure: %s", out)
	}
	value("sync_bytes_per_change", worst, "B")
	return nil
}

// simulating: what 200 peers on a simulated network send when nothing happens.
// The test prints its own line.
func simulating(ctx context.Context) error {
	out, err := goTest(ctx, "p2p", "-run", "^TestIdle200$", "-count", "1")
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

// goTest runs tests in the folder of their package: elsewhere go shows nothing of
// what they print.
func goTest(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "RELAY_BENCH_IDLE=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return string(out), nil
}
