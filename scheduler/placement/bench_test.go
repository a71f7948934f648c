package placement_test

import (
	"testing"

	"relay/scheduler/placement"
	"relay/scheduler/placement/placementtest"
)

// BenchmarkPlan100x200 plans a hundred models over two hundred peers, as a
// leader of all of them does after each change.
func BenchmarkPlan100x200(b *testing.B) {
	models, mesh := placementtest.Models(1, 100), placementtest.Mesh(1, 200)
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range models {
			placement.Place(m, mesh)
		}
	}
}
