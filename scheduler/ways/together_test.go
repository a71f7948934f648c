package ways_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"relay/scheduler/ways"
)

// four is a model of 4 layers of 110 bytes; the sums are easy to follow.
var four = ways.Shape{Input: 10, Output: 20, Layers: []ways.Layers{{Count: 4, Weights: 100, KV: 10}}, Compute: 5, Host: 3, Largest: 40}

func share(peer string, from int, parts ...ways.Part) ways.Share {
	return ways.Share{Peer: peer, From: from, Parts: parts}
}

func on(device string, layers int) ways.Part { return ways.Part{Device: device, Layers: layers} }

func together(parts []ways.Part, shares ...ways.Share) ways.Way {
	return ways.Way{Kind: ways.Shards, Parts: parts, Group: &ways.Group{ID: "g", Shares: shares}}
}

func TestShareCost(t *testing.T) {
	const server = ways.ServerHost + 40
	pieces := ways.Of(four)
	for name, tc := range map[string]struct {
		from  int
		parts []ways.Part
		want  map[string]uint64 // nil: it is none.
	}{
		"in RAM":           {1, []ways.Part{on("RAM", 2)}, map[string]uint64{"RAM": server + 225}},
		"all layers":       {0, []ways.Part{on("RAM", 4)}, map[string]uint64{"RAM": server + 445}},
		"on a GPU":         {1, []ways.Part{on("CUDA0", 2), on("RAM", 0)}, map[string]uint64{"CUDA0": 225, "RAM": server}},
		"on two":           {0, []ways.Part{on("CUDA1", 1), on("CUDA0", 3), on("RAM", 0)}, map[string]uint64{"CUDA1": 115, "CUDA0": 335, "RAM": server}},
		"the output layer": {1, []ways.Part{on("RAM", 4)}, nil},
		"nothing":          {1, []ways.Part{on("RAM", 0)}, nil},
		"no parts":         {1, nil, nil},
		"no RAM":           {1, []ways.Part{on("CUDA0", 1)}, nil},
		"both":             {1, []ways.Part{on("CUDA0", 1), on("RAM", 1)}, nil},
		"twice":            {0, []ways.Part{on("CUDA0", 1), on("CUDA0", 1), on("RAM", 0)}, nil},
		"RAM twice":        {0, []ways.Part{on("RAM", 1), on("RAM", 0)}, nil},
		"before the first": {-1, []ways.Part{on("RAM", 1)}, nil},
		"behind the last":  {5, []ways.Part{on("RAM", 1)}, nil},
		"less than none":   {2, []ways.Part{on("CUDA0", -1), on("CUDA1", 2), on("RAM", 0)}, nil},
		"overflowing":      {2, []ways.Part{on("CUDA0", math.MaxInt), on("RAM", 0)}, nil},
	} {
		need, ok := pieces.Share(tc.from, tc.parts)
		if ok != (tc.want != nil) || !reflect.DeepEqual(need, tc.want) {
			t.Errorf("%s: %v, %v, want %v", name, need, ok, tc.want)
		}
	}
	older := four
	older.Largest = 0 // No tensor is larger than its layer.
	if need, _ := ways.Of(older).Share(1, []ways.Part{on("RAM", 2)}); need["RAM"] != ways.ServerHost+100+225 {
		t.Errorf("%v", need)
	}
	if need, ok := ways.Of(ways.Shape{Largest: 1 << 51}).Share(0, []ways.Part{on("RAM", 1)}); ok || need != nil {
		t.Errorf("%v of a shape out of bounds", need)
	}
}

func TestCoordinatorCost(t *testing.T) {
	pieces := ways.Of(four)
	ram, gpu := []ways.Part{on("RAM", 2)}, []ways.Part{on("CUDA0", 2), on("RAM", 1)}
	barn := share("barn", 1, on("RAM", 3))
	for name, tc := range map[string]struct {
		w     ways.Way
		first int
		want  map[string]uint64 // nil: it is none.
	}{
		"a layer and the output in RAM": {together(ram, barn), 1, map[string]uint64{"RAM": 10 + 3 + 110 + 20 + 5}},
		"the output alone":              {together([]ways.Part{on("RAM", 1)}, share("barn", 0, on("RAM", 4))), 0, map[string]uint64{"RAM": 10 + 3 + 20 + 5}},
		"on a GPU":                      {together(gpu, share("barn", 1, on("CUDA0", 2), on("RAM", 0))), 1, map[string]uint64{"CUDA0": 110 + 20 + 5, "RAM": 10 + 3 + 110 + 5}},
		"all of its own on a GPU":       {together([]ways.Part{on("CUDA0", 1), on("RAM", 0)}, share("barn", 0, on("RAM", 4))), 0, map[string]uint64{"CUDA0": 20 + 5, "RAM": 10 + 3}},
		"two shares":                    {together(ram, share("barn", 1, on("RAM", 1)), share("cellar", 2, on("RAM", 2))), 1, map[string]uint64{"RAM": 148}},
		"a layer too few":               {together(ram, share("barn", 1, on("RAM", 2))), 1, nil},
		"a layer too many":              {together(ram, share("barn", 1, on("RAM", 4))), 1, nil},
		"a gap":                         {together(ram, share("barn", 2, on("RAM", 2))), 1, nil},
		"the wrong order":               {together(ram, share("cellar", 2, on("RAM", 2)), share("barn", 1, on("RAM", 1))), 1, nil},
		"a peer twice":                  {together(ram, share("barn", 1, on("RAM", 1)), share("barn", 2, on("RAM", 2))), 1, nil},
		"nobody's share":                {together(ram, share("", 1, on("RAM", 3))), 1, nil},
		"no share":                      {together([]ways.Part{on("RAM", 5)}), 4, nil},
		"no group":                      {ways.Way{Kind: ways.Shards, Parts: ram}, 1, nil},
		"no RAM":                        {together([]ways.Part{on("CUDA0", 2)}, barn), 0, nil},
		"RAM first":                     {together([]ways.Part{on("RAM", 1), on("CUDA0", 1)}, barn), 1, nil},
		"experts elsewhere":             {ways.Way{Kind: ways.Shards, Parts: ram, CPUExperts: 1, Group: &ways.Group{Shares: []ways.Share{barn}}}, 1, nil},
		"no output":                     {together([]ways.Part{on("RAM", 0)}, share("barn", 0, on("RAM", 4))), -1, nil},
		"overflowing":                   {together([]ways.Part{on("CUDA0", math.MaxInt), on("RAM", 1)}, barn), 1, nil},
	} {
		need, ok := pieces.Cost(tc.w)
		if ok != (tc.want != nil) || !reflect.DeepEqual(need, tc.want) || tc.w.First() != tc.first {
			t.Errorf("%s: %v, %v, %d first, want %v, %d", name, need, ok, tc.w.First(), tc.want, tc.first)
		}
	}
	tied := four
	tied.Tied = true // The output layer is the copy of the input that is there.
	if need, _ := ways.Of(tied).Cost(together(ram, barn)); need["RAM"] != 128 {
		t.Errorf("%v", need)
	}
}

// A token goes through all devices in turn and waits for each worker's link; a prompt
// waits once for a batch.
func TestTogether(t *testing.T) {
	s := four
	s.Output = 100
	pieces := ways.Of(s)
	rate := func(id string, decode float64) ways.Device {
		return ways.Device{ID: id, GPU: id != ways.HostID, Decode: decode, Prefill: 10 * decode}
	}
	attic, barn := machine(rate(ways.HostID, 100), rate("CUDA0", 400)), machine(rate(ways.HostID, 50), rate("CUDA0", 200))
	guess := machine(ways.Device{ID: ways.HostID})
	at := func(peer string) (*ways.Machine, float64) {
		switch peer {
		case "barn":
			return &barn, 0.5
		case "guess":
			return &guess, 0
		}
		return nil, 0
	}
	for name, tc := range map[string]struct {
		w       ways.Way
		seconds float64 // For a token; 0 is that it is none.
		prefill float64
	}{
		"in RAM":             {together([]ways.Part{on("RAM", 2)}, share("barn", 1, on("RAM", 3))), 1 + 6 + 1 + 0.5, 0.8 + 0.5/512},
		"on GPUs":            {together([]ways.Part{on("CUDA0", 2), on("RAM", 1)}, share("barn", 1, on("CUDA0", 2), on("RAM", 0))), 1 + 1 + 0.5 + 0.5, 0.25 + 0.5/512},
		"nobody knows it":    {together([]ways.Part{on("RAM", 2)}, share("cellar", 1, on("RAM", 3))), 0, 0},
		"no such GPU":        {together([]ways.Part{on("RAM", 2)}, share("barn", 1, on("CUDA1", 3), on("RAM", 0))), 0, 0},
		"no such GPU of its": {together([]ways.Part{on("CUDA1", 1), on("RAM", 1)}, share("barn", 1, on("RAM", 3))), 0, 0},
		"none":               {together([]ways.Part{on("RAM", 2)}, share("barn", 1, on("RAM", 2))), 0, 0},
		"alone":              {ways.Way{Kind: ways.CPU, Parts: []ways.Part{on("RAM", 5)}, Decode: 3}, 0, 0},
	} {
		w := pieces.Together(&attic, tc.w, at)
		near := func(a, seconds float64) bool {
			return seconds == 0 && a == 0 || seconds > 0 && math.Abs(a*seconds-1) < 1e-9
		}
		if !near(w.Decode, tc.seconds) || !near(w.Prefill, tc.prefill) || w.Guessed || !reflect.DeepEqual(w.Parts, tc.w.Parts) {
			t.Errorf("%s: %+v, want %v s and %v s", name, w, tc.seconds, tc.prefill)
		}
	}
	if w := pieces.Together(&attic, together([]ways.Part{on("RAM", 2)}, share("guess", 1, on("RAM", 3))), at); !w.Guessed || w.Decode == 0 {
		t.Errorf("%+v", w)
	}
	w := together([]ways.Part{on("RAM", 2)}, share("barn", 1, on("RAM", 3)))
	w.Decode = 7 // One machine says nothing about a group.
	if got := pieces.Predicted(&attic, w); !reflect.DeepEqual(got, w) || pieces.Decode(&attic, &w) != 7 {
		t.Errorf("%+v", got)
	}
}

// Records without the largest tensor are read as ever, and those with it by who does not
// know it.
func TestOlderShapes(t *testing.T) {
	type older struct {
		Input  uint64        `cbor:"1,keyasint"`
		Layers []ways.Layers `cbor:"4,keyasint"`
		Host   uint64        `cbor:"8,keyasint"`
	}
	bytes, err := cbor.Marshal(four)
	if err != nil {
		t.Fatal(err)
	}
	var old older
	if err := cbor.Unmarshal(bytes, &old); err != nil || old.Input != 10 || old.Host != 3 {
		t.Errorf("%+v: %v", old, err)
	}
	if bytes, err = cbor.Marshal(old); err != nil {
		t.Fatal(err)
	}
	var s ways.Shape
	if err := cbor.Unmarshal(bytes, &s); err != nil || s.Largest != 0 || s.Count() != 4 {
		t.Errorf("%+v: %v", s, err)
	}
}
