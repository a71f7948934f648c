package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"relay/cmd/bench/figure"
)

// roundTrips: what two peers between an engine and its server add to a round trip of
// 16 KiB, held against plain TCP between the same two, all in processes of their own:
// on a connection of its own, which is the rule, and on a stream of the link, where the
// worker cannot be dialled by TCP. From the benchmark of shard streams.
func roundTrips(ctx context.Context) error {
	out, err := figure.GoTest(ctx, "p2p", nil, "-run", "^$", "-bench", "^BenchmarkShardStream$", "-benchtime", fmt.Sprintf("%dx", rounds))
	if err != nil {
		return err
	}
	read := func(metric string) float64 {
		v := math.NaN()
		if m := regexp.MustCompile(`\s([\d.e+-]+) ` + regexp.QuoteMeta(metric) + `\s`).FindStringSubmatch(out); m != nil {
			v, _ = strconv.ParseFloat(m[1], 64)
		}
		if math.IsNaN(v) {
			err = fmt.Errorf("the benchmark printed no %s: %s", metric, out)
		}
		return v
	}
	worst := 0.0
	plain, rate := read("plain-us"), read("plain-MB/s")
	for _, way := range []string{"single", "stream"} {
		added := read(way+"-us") - plain
		worst = max(worst, added)
		figure.Value("tunnel_added_us_"+way, added, "us")
		figure.Ratio("tunnel_bulk_"+way, read(way+"-MB/s"), rate, "MB/s")
	}
	if err != nil {
		return err
	}
	figure.Value("tunnel_added_us", worst, "us")
	return nil
}
