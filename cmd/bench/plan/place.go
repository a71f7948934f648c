package main

import (
	"context"
	"errors"
	"time"

	"relay/cmd/bench/figure"
	"relay/scheduler/placement"
	"relay/scheduler/placement/placementtest"
)

// plans is how often everything is planned.
const plans = 25

// placing measures how long a leader of a hundred models takes to plan all of
// them over two hundred peers with and without GPUs.
func placing(ctx context.Context) error {
	models, mesh := placementtest.Models(1, 100), placementtest.Mesh(1, 200)
	var took []float64
	placed := 0
	for range plans {
		began := time.Now()
		placed = 0
		for _, m := range models {
			if len(placement.Place(m, mesh).Orders) > 0 {
				placed++
			}
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if placed == 0 {
		return errors.New("nothing found a place: the mesh that is planned over is wrong")
	}
	figure.Say("%d of %d models found a place", placed, len(models))
	figure.Value("plan_100x200_ms", figure.Median(took), "ms")
	return nil
}
