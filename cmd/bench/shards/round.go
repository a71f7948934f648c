package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"relay/cmd/bench/figure"
)

// roundTrips: what two peers between an engine and its server add to a round trip of
// 16 KiB, held against plain TCP between the same two, all in processes of their own.
// From the benchmark of shard streams.
func roundTrips(ctx context.Context) error {
	out, err := figure.GoTest(ctx, "p2p", nil, "-run", "^$", "-bench", "^BenchmarkShardStream$", "-benchtime", fmt.Sprintf("%dx", rounds))
	if err != nil {
		return err
	}
	for _, f := range []struct{ metric, name, unit string }{
		{"plain-us", "tunnel_plain_us", "us"},
		{"added-us", "tunnel_added_us", "us"},
		{"plain-MB/s", "tunnel_plain_mb_s", "MB/s"},
		{"tunnel-MB/s", "tunnel_mb_s", "MB/s"},
	} {
		m := regexp.MustCompile(`\s([\d.e+-]+) ` + regexp.QuoteMeta(f.metric) + `\b`).FindStringSubmatch(out)
		if m == nil {
			return fmt.Errorf("the benchmark printed no %s: %s", f.metric, out)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return err
		}
		figure.Value(f.name, v, f.unit)
	}
	return nil
}
