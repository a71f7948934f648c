package speed_test

import (
	"maps"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"relay/scheduler/speed"
	"relay/scheduler/ways"
)

const gib = 1 << 30

// sample is a request of 100 tokens of prompt and 100 of answer, at so many a second.
func sample(active uint64, decode, prefill float64) speed.Sample {
	return speed.Sample{Active: active, Tokens: 100, TokenTime: seconds(100 / decode), Prompt: 100, PromptTime: seconds(100 / prefill)}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// about is within a thousandth, for times are in whole nanoseconds.
func about(a, b float64) bool { return math.Abs(a-b) <= math.Abs(b)/1000 }

func TestLearn(t *testing.T) {
	r := speed.Rates{}.Learn(sample(2*gib, 10, 50))
	if !about(r.Decode, 20*gib) || !about(r.Prefill, 100*gib) || r.Samples != 1 {
		t.Errorf("the first sample: %+v", r)
	}
	r = r.Learn(sample(4*gib, 10, 50)) // another model, twice as large and as fast
	if !about(r.Decode, 30*gib) || !about(r.Prefill, 150*gib) || r.Samples != 2 {
		t.Errorf("the second counts like the first: %+v", r)
	}
	for range 100 {
		r = r.Learn(sample(1*gib, 10, 50))
	}
	if !about(r.Decode, 10*gib) || !about(r.Prefill, 50*gib) || r.Samples != 102 {
		t.Errorf("a device that became slower: %+v", r)
	}
	if one := r.Learn(sample(1*gib, 1000, 50)); one.Decode > 250*gib {
		t.Errorf("one sample is believed too much: %+v", one)
	}
}

func TestNothingIsLearnt(t *testing.T) {
	good := sample(2*gib, 10, 50)
	for name, change := range map[string]func(*speed.Sample){
		"nothing":              func(s *speed.Sample) { *s = speed.Sample{} },
		"few tokens":           func(s *speed.Sample) { s.Tokens, s.Prompt = 15, 63 },
		"a short time":         func(s *speed.Sample) { s.TokenTime, s.PromptTime = 100*time.Millisecond-1, 100*time.Millisecond-1 },
		"negative times":       func(s *speed.Sample) { s.TokenTime, s.PromptTime = -time.Second, -time.Second },
		"negative tokens":      func(s *speed.Sample) { s.Tokens, s.Prompt = -100, -100 },
		"no weights":           func(s *speed.Sample) { s.Active = 0 },
		"too fast":             func(s *speed.Sample) { s.Tokens, s.Prompt = math.MaxInt, math.MaxInt },
		"the largest figures":  func(s *speed.Sample) { s.Tokens, s.Prompt, s.Active = math.MaxInt, math.MaxInt, math.MaxUint64 },
		"slower than anything": func(s *speed.Sample) { s.TokenTime, s.PromptTime, s.Active = math.MaxInt64, math.MaxInt64, 1 },
	} {
		s := good
		change(&s)
		for _, before := range []speed.Rates{{}, {Decode: 1e9, Prefill: 4e9, Samples: 7}} {
			if after := before.Learn(s); after != before {
				t.Errorf("%s: %+v became %+v", name, before, after)
			}
			known := map[string]speed.Rates{"RAM": before}
			if after := speed.Share(onCPU, dense, known, s); name != "no weights" && !maps.Equal(after, known) {
				t.Errorf("%s: %+v became %+v", name, known, after)
			}
		}
	}
	r := speed.Rates{}.Learn(speed.Sample{Active: gib, Tokens: 16, TokenTime: time.Second})
	if r != (speed.Rates{Decode: 16 * gib, Samples: 1}) {
		t.Errorf("no prompt: %+v", r)
	}
	if r = r.Learn(speed.Sample{Active: gib, Prompt: 64, PromptTime: time.Second}); r.Decode != 16*gib || r.Prefill != 64*gib {
		t.Errorf("no answer: %+v", r)
	}
	// What was kept wrong is put right by the next sample.
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		if r := (speed.Rates{Decode: bad, Prefill: bad, Samples: -5}).Learn(good); !about(r.Decode, 20*gib) || !about(r.Prefill, 100*gib) {
			t.Errorf("after %v: %+v", bad, r)
		}
	}
}

// dense is of 4 layers and an output of 1 GiB each, experts the same with three
// quarters of each layer in 8 experts, of which 2 are used.
var (
	dense   = ways.Shape{Output: gib, Layers: []ways.Layers{{Count: 4, Weights: gib}}}
	experts = ways.Shape{Output: gib, Experts: 8, Used: 2, Layers: []ways.Layers{{Count: 4, Weights: gib, Experts: gib * 3 / 4}}}
	onCPU   = ways.Way{Kind: ways.CPU, Parts: []ways.Part{{Device: "RAM", Layers: 5, Bytes: 1}}}
)

// split has so many layers on each device.
func split(cpuExperts int, devices []string, layers ...int) ways.Way {
	w := ways.Way{CPUExperts: cpuExperts}
	for i, d := range devices {
		w.Parts = append(w.Parts, ways.Part{Device: d, Layers: layers[i], Bytes: 1})
	}
	return w
}

func TestShare(t *testing.T) {
	both, three := []string{"CUDA0", "RAM"}, []string{"CUDA0", "CUDA1", "RAM"}
	known := map[string]speed.Rates{"CUDA0": {Decode: 400 * gib, Prefill: 4000 * gib, Samples: 1}, "RAM": {Decode: 40 * gib, Prefill: 100 * gib, Samples: 1}}
	for _, tc := range []struct {
		name   string
		way    ways.Way
		shape  ways.Shape
		before map[string]speed.Rates
		gpu    float64 // bytes of weights read for each token
		ram    float64
	}{
		{"all on the CPU", onCPU, dense, known, 0, 5 * gib},
		{"all on a GPU", split(0, both, 5, 0), dense, known, 5 * gib, 0},
		{"layers in RAM", split(0, both, 3, 2), dense, known, 3 * gib, 2 * gib},
		{"all but the output in RAM", split(0, both, 1, 4), dense, known, 1 * gib, 4 * gib},
		{"experts that are used", onCPU, experts, known, 0, 1*gib + 4*gib*7/16},
		{"some experts in RAM", split(2, both, 5, 0), experts, known, 1*gib + 4*gib/4 + 2*gib*3/16, 2 * gib * 3 / 16},
		{"all experts in RAM, and a layer", split(4, both, 4, 1), experts, known, 1*gib + 3*gib/4, gib/4 + 4*gib*3/16},
	} {
		expected := 0.0
		if tc.gpu > 0 {
			expected += tc.gpu / known["CUDA0"].Decode
		}
		if tc.ram > 0 {
			expected += tc.ram / known["RAM"].Decode
		}
		// Twice as slow as expected, each device that computes is half as fast.
		after := speed.Share(tc.way, tc.shape, tc.before, speed.Sample{Tokens: 1000, TokenTime: seconds(1000 * 2 * expected)})
		for device, bytes := range map[string]float64{"CUDA0": tc.gpu, "RAM": tc.ram} {
			want := known[device].Decode
			if bytes > 0 {
				want = (want + want/2) / 2
			}
			if got := after[device]; !about(got.Decode, want) || got.Prefill != known[device].Prefill {
				t.Errorf("%s: %s %+v, want %v", tc.name, device, got, want)
			}
		}
	}
	// What is not known counts as the reference for its kind.
	after := speed.Share(split(0, three, 2, 2, 1), dense, nil, speed.Sample{
		Tokens: 1000, TokenTime: seconds(1000 * gib * (4/float64(ways.ReferenceGPU) + 1/float64(ways.ReferenceRAM)) / 3)})
	for device, want := range map[string]float64{"CUDA0": 3 * ways.ReferenceGPU, "CUDA1": 3 * ways.ReferenceGPU, "RAM": 3 * ways.ReferenceRAM} {
		if got := after[device]; !about(got.Decode, want) || got.Prefill != 0 || got.Samples != 1 {
			t.Errorf("%s %+v, want %v", device, got, want)
		}
	}
	// A way that is none of the shape's says nothing.
	for name, way := range map[string]ways.Way{
		"none": {}, "too few": split(0, both, 2, 2), "too many": split(0, both, 5, 1), "negative": split(0, both, 6, -1), "huge": split(0, both, math.MaxInt, 6)} {
		if after := speed.Share(way, dense, known, sample(gib, 10, 50)); !maps.Equal(after, known) {
			t.Errorf("%s layers: %v", name, after)
		}
	}
	if after := speed.Share(onCPU, ways.Shape{Layers: []ways.Layers{{Count: 1 << 40}}}, known, sample(gib, 10, 50)); !maps.Equal(after, known) {
		t.Errorf("a shape that is none: %v", after)
	}
}

// TestConverges: whatever is believed at first, the predictions of a way come to
// what is measured of it, and devices it does not compute on are left alone.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := rapid.Float64Range(1, 1000)
		devices := []string{"CUDA0", "CUDA1", "RAM"}
		real, known := map[string]float64{}, map[string]speed.Rates{"idle": {Decode: 1e9, Samples: 3}}
		for _, d := range devices {
			real[d] = truth.Draw(t, d) * 1e9
			if rapid.Bool().Draw(t, "known") {
				r := truth.Draw(t, "believed") * 1e9
				known[d] = speed.Rates{Decode: r, Prefill: 4 * r, Samples: rapid.IntRange(1, 100).Draw(t, "samples")}
			}
		}
		a := rapid.IntRange(0, 5).Draw(t, "first")
		b := rapid.IntRange(0, 5-a).Draw(t, "second")
		way := split(0, devices, a, b, 5-a-b)
		perToken := func(rate func(string) float64) (s float64) {
			for i, n := range []int{a, b, 5 - a - b} {
				if n > 0 {
					s += float64(n) * gib / rate(devices[i])
				}
			}
			return s
		}
		took := perToken(func(d string) float64 { return real[d] })
		for range 200 {
			known = speed.Share(way, dense, known, speed.Sample{Tokens: 10000, TokenTime: seconds(10000 * took)})
		}
		if got := perToken(func(d string) float64 { return known[d].Decode }); !about(got, took) {
			t.Fatalf("%v s per token, measured are %v", got, took)
		}
		if known["idle"] != (speed.Rates{Decode: 1e9, Samples: 3}) {
			t.Fatalf("%+v without a sample", known["idle"])
		}
	})
}

// TestAgreesWithWays: a sample of just what package ways predicts teaches
// nothing new. So both see the same bytes on the same devices.
func TestAgreesWithWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := ways.Shape{Input: 1 << 20, Output: rapid.Uint64Range(1<<24, 1<<30).Draw(t, "output"), Compute: 1 << 20}
		if rapid.Bool().Draw(t, "experts") {
			shape.Experts = rapid.IntRange(1, 64).Draw(t, "of")
			shape.Used = rapid.IntRange(1, shape.Experts).Draw(t, "used")
		}
		for range rapid.IntRange(1, 3).Draw(t, "runs") {
			l := ways.Layers{Count: rapid.IntRange(1, 9).Draw(t, "layers"), Weights: rapid.Uint64Range(1<<24, 1<<30).Draw(t, "weights"), KV: 1 << 20}
			if shape.Experts > 0 {
				l.Experts = rapid.Uint64Range(0, l.Weights).Draw(t, "in experts")
			}
			shape.Layers = append(shape.Layers, l)
		}
		rate := rapid.Float64Range(1e9, 1e12)
		before := map[string]speed.Rates{}
		device := func(id string, gpu bool, memory uint64) ways.Device {
			r := speed.Rates{Decode: rate.Draw(t, id), Prefill: rate.Draw(t, id), Samples: 1}
			before[id] = r
			return ways.Device{ID: id, GPU: gpu, Known: true, Lent: memory, Free: memory, Decode: r.Decode, Prefill: r.Prefill}
		}
		m := ways.Machine{Host: device(ways.HostID, false, 1<<40)}
		for _, id := range []string{"CUDA0", "CUDA1"}[:rapid.IntRange(0, 2).Draw(t, "GPUs")] {
			m.GPUs = append(m.GPUs, device(id, true, rapid.Uint64Range(0, shape.CPU()).Draw(t, "memory")))
		}
		way, _, ok := ways.Best(shape, m, ways.Fits)
		if !ok {
			t.Fatal("it does not fit in RAM")
		}
		const tokens = 1 << 20
		after := speed.Share(way, shape, before, speed.Sample{
			Tokens: tokens, TokenTime: seconds(tokens / way.Decode), Prompt: tokens, PromptTime: seconds(tokens / way.Prefill)})
		for id, r := range after {
			if !about(r.Decode, before[id].Decode) || !about(r.Prefill, before[id].Prefill) {
				t.Fatalf("%s of %+v: %+v became %+v", id, way, before[id], r)
			}
		}
		if maps.Equal(after, before) {
			t.Fatalf("nothing was learnt of %+v", way)
		}
	})
}
