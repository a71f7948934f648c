//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"relay/cmd/bench/figure"
)

// planning: from the start of a pull of 400 GB until it asks for the first byte
// of the file, with the inner nodes from memory. From the benchmark of content.
func planning(ctx context.Context) error {
	return inMemory(1<<30, func(dir string) error {
		out, err := figure.GoTest(ctx, "store/content", []string{"TMPDIR=" + dir},
			"-run", "^$", "-bench", "^BenchmarkPlan400G$", "-benchtime", "1x", "-count", strconv.Itoa(rounds))
		if err != nil {
			return err
		}
		var took []float64
		for _, m := range regexp.MustCompile(`BenchmarkPlan400G\S*\s.*?([\d.]+) s/plan`).FindAllStringSubmatch(out, -1) {
			t, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return err
			}
			took = append(took, t)
		}
		if len(took) != rounds {
			return fmt.Errorf("the benchmark printed %d figures instead of %d: %s", len(took), rounds, out)
		}
		figure.Say("planning took %.3f s", took)
		figure.Value("dag_400g", figure.Median(took), "s")
		return nil
	})
}
