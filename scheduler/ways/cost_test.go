package ways_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/ways"
)

// What a way costs by its layers is what the ladder says that it takes.
func TestCostIsWhatTheLadderSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, machine := anyShape(t), anyMachine(t)
		machine.Seen = nil
		pieces := ways.Of(shape)
		for _, r := range pieces.Ladder(&machine) {
			if r.Verdict == ways.Never {
				continue
			}
			need, ok := pieces.Cost(r.Way)
			if want := r.Need(); !ok || !maps.Equal(need, want) {
				t.Fatalf("%s: %v, want %v (%+v of %+v)", r.Kind, need, want, r.Way, shape)
			}
		}
	})
}

func TestWhatIsNoWayCostsNothing(t *testing.T) {
	pieces := ways.Of(ways.Shape{Input: 10, Output: 10, Layers: []ways.Layers{{Count: 4, Weights: 100, KV: 10}}, Compute: 5, Host: 3})
	for name, w := range map[string]ways.Way{
		"unknown":     {Kind: "magic", Parts: []ways.Part{{ways.HostID, 5, 1}}},
		"shards":      {Kind: ways.Shards},
		"too many":    {Kind: ways.OneGPU, Parts: []ways.Part{{"CUDA0", 6, 1}}},
		"too few":     {Kind: ways.OneGPU, Parts: []ways.Part{{"CUDA0", 3, 1}}},
		"none":        {Kind: ways.Hybrid, Parts: []ways.Part{{ways.HostID, 5, 1}}},
		"negative":    {Kind: ways.GPUs, Parts: []ways.Part{{"CUDA0", -1, 1}, {"CUDA1", 6, 1}}},
		"twice":       {Kind: ways.GPUs, Parts: []ways.Part{{"CUDA0", 2, 1}, {"CUDA0", 3, 1}}},
		"experts":     {Kind: ways.Hybrid, Parts: []ways.Part{{"CUDA0", 5, 1}}, CPUExperts: 5},
		"other count": {Kind: ways.Hybrid, Parts: []ways.Part{{"CUDA0", 3, 1}, {ways.HostID, 1, 1}}},
	} {
		if need, ok := pieces.Cost(w); ok {
			t.Errorf("%s: %v", name, need)
		}
	}
	if need, ok := pieces.Cost(ways.Way{Kind: ways.CPU}); !ok || need[ways.HostID] != 468 {
		t.Errorf("on the CPU: %v", need)
	}
}
