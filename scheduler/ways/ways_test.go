package ways_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"relay/scheduler/ways"
)

const gib = 1 << 30

// dense is a model of so many layers of 1 GiB each, of which a tenth is KV cache.
func dense(layers int) ways.Shape {
	return ways.Shape{Input: gib, Output: gib, Compute: gib / 2, Host: gib / 4,
		Layers: []ways.Layers{{Count: layers, Weights: gib - gib/8, KV: gib / 8}}}
}

// mixed is a model of experts: of each layer of 1 GiB three quarters.
func mixed(layers int) ways.Shape {
	return ways.Shape{Input: gib, Output: gib, Compute: gib / 2, Host: gib / 4, Experts: 8, Used: 2,
		Layers: []ways.Layers{{Count: layers, Weights: gib, Experts: gib / 4 * 3}}}
}

func tied(layers int) ways.Shape {
	s := dense(layers)
	s.Tied = true
	return s
}

func ram(lent, free float64) ways.Device {
	return ways.Device{ID: ways.HostID, Name: "RAM", Known: true, Lent: uint64(lent * gib), Free: uint64(free * gib)}
}

func gpu(id string, lent, free float64) ways.Device {
	return ways.Device{ID: id, Name: "a card", GPU: true, Known: true, Lent: uint64(lent * gib), Free: uint64(free * gib)}
}

func machine(host ways.Device, gpus ...ways.Device) ways.Machine {
	return ways.Machine{Name: "attic", Host: host, GPUs: gpus}
}

func knows(change func(*ways.Device), d ways.Device) ways.Device {
	change(&d)
	return d
}

func unknown(d ways.Device) ways.Device {
	return knows(func(d *ways.Device) { d.Known, d.Lent, d.Free = false, 0, 0 }, d)
}
func busy(d ways.Device) ways.Device {
	return knows(func(d *ways.Device) { d.Busy = "another program uses 6.0 GiB of it" }, d)
}
func unified(d ways.Device) ways.Device {
	return knows(func(d *ways.Device) { d.Unified = true }, d)
}
func evictable(more float64, d ways.Device) ways.Device {
	return knows(func(d *ways.Device) { d.Evictable = uint64(more * gib) }, d)
}

// parts writes where the pieces are: layers and GiB by device.
func parts(w ways.Way) string {
	var list []string
	for _, p := range w.Parts {
		list = append(list, fmt.Sprintf("%s:%d:%.2f", p.Device, p.Layers, float64(p.Bytes)/gib))
	}
	text := strings.Join(list, " ")
	if w.CPUExperts > 0 {
		text += fmt.Sprintf(" experts:%d", w.CPUExperts)
	}
	return text
}

func TestLadder(t *testing.T) {
	const no, one = "never: it has no GPU", "never: it has one GPU"
	for _, tc := range []struct {
		name                     string
		s                        ways.Shape
		m                        ways.Machine
		gpu, gpus, hybrid, onCPU string // fits: parts; else verdict: text
		best                     ways.Kind
	}{
		{"no GPU", dense(10), machine(ram(32, 20)), no, no, no, "RAM:11:12.75", ways.CPU},
		{"tied, no GPU", tied(10), machine(ram(32, 20)), no, no, no, "RAM:11:11.75", ways.CPU},
		{"no GPU, idle models in the way", dense(10), machine(evictable(8, ram(32, 8))), no, no, no,
			"evicts: takes 12.8 GiB in RAM, once idle models are unloaded", ""},
		{"no GPU, others in the way", dense(10), machine(evictable(2, ram(32, 8))), no, no, no,
			"later: needs 12.8 GiB, RAM has 8.0 GiB free of the 32.0 GiB it lends", ""},
		{"too small", dense(10), machine(ram(12, 12)), no, no, no, "never: needs 12.8 GiB, RAM lends 12.0 GiB in all", ""},
		{"lends nothing", dense(10), machine(ram(0, 0)), no, no, no, "never: RAM lends no memory", ""},
		{"unknown is not zero", dense(10), machine(unknown(ram(0, 0))), no, no, no, "never: the memory of RAM is not known", ""},
		{"a large GPU", dense(10), machine(ram(32, 20), gpu("CUDA0", 24, 24)), "CUDA0:11:11.50 RAM:0:1.25", one,
			"CUDA0:10:10.50 RAM:1:2.75", "RAM:11:12.75", ways.OneGPU},
		{"tied, a GPU has its copy", tied(10), machine(ram(32, 20), gpu("CUDA0", 24, 24)), "CUDA0:11:11.50 RAM:0:1.25", one,
			"CUDA0:10:10.50 RAM:1:2.75", "RAM:11:11.75", ways.OneGPU},
		{"a GPU to the byte", dense(10), machine(ram(1.25, 1.25), gpu("CUDA0", 11.5, 11.5)), "CUDA0:11:11.50 RAM:0:1.25", one,
			"never: needs 2.8 GiB, RAM lends 1.2 GiB in all", "never: needs 12.8 GiB, RAM lends 1.2 GiB in all", ways.OneGPU},
		{"not enough RAM for a GPU", dense(10), machine(ram(1, 1), gpu("CUDA0", 24, 24)), "never: needs 1.3 GiB, RAM lends 1.0 GiB in all", one,
			"never: needs 2.8 GiB, RAM lends 1.0 GiB in all", "never: needs 12.8 GiB, RAM lends 1.0 GiB in all", ""},
		{"a small GPU", dense(10), machine(ram(32, 20), gpu("CUDA0", 8, 8)), "never: needs 11.5 GiB, CUDA0 lends 8.0 GiB in all", one,
			"CUDA0:7:7.50 RAM:4:5.75", "RAM:11:12.75", ways.Hybrid},
		{"experts to RAM first", mixed(10), machine(ram(32, 20), gpu("CUDA0", 8, 8)), "never: needs 11.5 GiB, CUDA0 lends 8.0 GiB in all", one,
			"CUDA0:11:7.75 RAM:0:5.50 experts:5", "RAM:11:12.75", ways.Hybrid},
		{"then layers", mixed(10), machine(ram(32, 20), gpu("CUDA0", 3, 3)), "never: needs 11.5 GiB, CUDA0 lends 3.0 GiB in all", one,
			"CUDA0:7:3.00 RAM:4:10.25 experts:10", "RAM:11:12.75", ways.Hybrid},
		{"no layer goes on it", dense(10), machine(ram(32, 20), gpu("CUDA0", 2, 2)), "never: needs 11.5 GiB, CUDA0 lends 2.0 GiB in all", one,
			"never: least on a GPU needs 2.5 GiB, CUDA0 lends 2.0 GiB in all", "RAM:11:12.75", ways.CPU},
		{"a busy GPU", dense(10), machine(ram(32, 20), busy(gpu("CUDA0", 24, 24))),
			"later: nothing new goes to CUDA0 for now: another program uses 6.0 GiB of it", one,
			"later: nothing new goes to CUDA0 for now: another program uses 6.0 GiB of it", "RAM:11:12.75", ways.CPU},
		{"a GPU that nobody knows", dense(10), machine(ram(32, 20), unknown(gpu("CUDA0", 24, 24))), "never: the memory of CUDA0 is not known", one,
			"never: the memory of CUDA0 is not known", "RAM:11:12.75", ways.CPU},
		{"idle models on the GPU", dense(10), machine(ram(13, 13), evictable(16, gpu("CUDA0", 24, 1))),
			"evicts: takes 11.5 GiB on CUDA0 and 1.3 GiB in RAM, once idle models are unloaded", one,
			"evicts: takes 10.5 GiB on CUDA0 and 2.8 GiB in RAM, once idle models are unloaded", "RAM:11:12.75", ways.CPU},
		{"others on the GPU", dense(10), machine(ram(4, 4), gpu("CUDA0", 24, 9)),
			"later: needs 11.5 GiB, CUDA0 has 9.0 GiB free of the 24.0 GiB it lends", one,
			"later: needs 10.5 GiB, CUDA0 has 9.0 GiB free of the 24.0 GiB it lends", "never: needs 12.8 GiB, RAM lends 4.0 GiB in all", ""},
		{"two GPUs, in proportion", dense(10), machine(ram(4, 4), gpu("CUDA0", 10, 8.5), gpu("CUDA1", 8, 4.5)),
			"never: needs 11.5 GiB, CUDA0 lends 10.0 GiB in all", "CUDA0:7:7.50 CUDA1:4:4.50 RAM:0:1.25",
			"CUDA0:7:7.50 CUDA1:3:3.50 RAM:1:2.75", "never: needs 12.8 GiB, RAM lends 4.0 GiB in all", ways.GPUs},
		{"the fewest GPUs", dense(10), machine(ram(2, 2), gpu("CUDA0", 4, 4), gpu("CUDA1", 8, 8), gpu("CUDA2", 8, 8)),
			"never: needs 11.5 GiB, CUDA1 lends 8.0 GiB in all", "CUDA1:5:5.50 CUDA2:6:6.50 RAM:0:1.25",
			"never: needs 2.8 GiB, RAM lends 2.0 GiB in all", "never: needs 12.8 GiB, RAM lends 2.0 GiB in all", ways.GPUs},
		{"two GPUs, not enough", dense(20), machine(ram(4, 4), gpu("CUDA0", 8, 8), gpu("CUDA1", 8, 8)),
			"never: needs 21.5 GiB, CUDA0 lends 8.0 GiB in all", "never: needs 22.0 GiB, CUDA0 and CUDA1 lend 16.0 GiB in all",
			"never: needs 8.8 GiB, RAM lends 4.0 GiB in all", "never: needs 22.8 GiB, RAM lends 4.0 GiB in all", ""},
		{"a second GPU that helps little", dense(20), machine(ram(32, 32), gpu("CUDA0", 8, 8), gpu("CUDA1", 1.6, 1.6)),
			"never: needs 21.5 GiB, CUDA0 lends 8.0 GiB in all", "never: needs 22.0 GiB, CUDA0 and CUDA1 lend 9.6 GiB in all",
			"CUDA0:7:7.50 RAM:14:15.75", "RAM:21:22.75", ways.Hybrid},
		{"one of two GPUs known", dense(20), machine(ram(4, 4), gpu("CUDA0", 8, 8), unknown(gpu("CUDA1", 8, 8))),
			"never: needs 21.5 GiB, CUDA0 lends 8.0 GiB in all", "never: of its GPUs only the memory of CUDA0 is known",
			"never: needs 15.8 GiB, RAM lends 4.0 GiB in all", "never: needs 22.8 GiB, RAM lends 4.0 GiB in all", ""},
		{"a GPU on the host's memory", dense(10), machine(ram(16, 16), unified(gpu("iGPU0", 14, 14))), "iGPU0:11:11.50 RAM:0:1.25", one,
			"iGPU0:10:10.50 RAM:1:2.75", "RAM:11:12.75", ways.OneGPU},
		{"only the CPU does, on the host's memory", tied(10), machine(ram(12.5, 12.5), unified(gpu("iGPU0", 12, 12))),
			"never: needs 12.8 GiB, RAM lends 12.5 GiB in all (iGPU0 has no memory of its own)", one,
			"never: needs 13.3 GiB, RAM lends 12.5 GiB in all (iGPU0 has no memory of its own)", "RAM:11:11.75", ways.CPU},
		{"the host's memory is unloaded once", dense(10), machine(evictable(.5, ram(14, 12)), evictable(.5, unified(gpu("iGPU0", 12.25, 11.5)))),
			"later: needs 12.8 GiB, RAM has 12.0 GiB free of the 14.0 GiB it lends (iGPU0 has no memory of its own)", one,
			"later: needs 13.3 GiB, RAM has 12.0 GiB free of the 14.0 GiB it lends (iGPU0 has no memory of its own)",
			"later: needs 12.8 GiB, RAM has 12.0 GiB free of the 14.0 GiB it lends", ""},
		{"two GPUs on the host's memory", dense(10), machine(ram(13, 13), unified(gpu("iGPU0", 7.25, 7.25)), unified(gpu("iGPU1", 7.25, 7.25))),
			"never: needs 11.5 GiB, iGPU0 lends 7.2 GiB in all", "never: needs 13.3 GiB, RAM lends 13.0 GiB in all (iGPU0 and iGPU1 have no memory of their own)",
			"never: needs 13.3 GiB, RAM lends 13.0 GiB in all (iGPU0 and iGPU1 have no memory of their own)", "RAM:11:12.75", ways.CPU},
		{"a GPU of its own memory before one on the host's", dense(10), machine(ram(10, 10), unified(gpu("iGPU0", 8.75, 8.75)), gpu("CUDA0", 6, 6)),
			"never: needs 11.5 GiB, iGPU0 lends 8.7 GiB in all", "iGPU0:7:7.50 CUDA0:4:4.50 RAM:0:1.25",
			"CUDA0:5:5.50 RAM:6:7.75", "never: needs 12.8 GiB, RAM lends 10.0 GiB in all", ways.Hybrid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rungs := ways.Ladder(tc.s, tc.m)
			for i, want := range []string{tc.gpu, tc.gpus, tc.hybrid, tc.onCPU} {
				got := fmt.Sprintf("%s: %s", rungs[i].Verdict, rungs[i].Text)
				if rungs[i].Verdict == ways.Fits {
					got = parts(rungs[i].Way)
				}
				if got != want {
					t.Errorf("%s\n%s\nwant\n%s", rungs[i].Kind, got, want)
				}
			}
			if w, _, _ := ways.Best(tc.s, tc.m, ways.Fits); w.Kind != tc.best {
				t.Errorf("the best is %q, want %q", w.Kind, tc.best)
			}
		})
	}
}

// What was seen takes the place of what was predicted, where it was the same way.
func TestSeenCorrects(t *testing.T) {
	m := machine(ram(32, 20), gpu("CUDA0", 24, 12))
	m.Seen = []ways.Seen{
		{Kind: ways.OneGPU, Parts: []ways.Part{{"CUDA0", 11, 13 * gib}, {"RAM", 0, gib}}},
		{Kind: ways.CPU, Parts: []ways.Part{{"RAM", 11, 19 * gib}}, Decode: 3.5, Prefill: 20},
		{Kind: ways.Hybrid, Parts: []ways.Part{{"CUDA0", 9, 11 * gib}, {"RAM", 2, gib}}, Decode: 100}, // cut otherwise
	}
	rungs := ways.Ladder(dense(10), m)
	if r := rungs[0]; r.Verdict != ways.Later || r.Parts[0].Bytes != 13*gib || r.Text != "needs 13.0 GiB, CUDA0 has 12.0 GiB free of the 24.0 GiB it lends" {
		t.Errorf("gpu: %+v", r)
	}
	if r := rungs[2]; parts(r.Way) != "CUDA0:10:10.50 RAM:1:2.75" || r.Decode == 100 || !r.Guessed {
		t.Errorf("gpu+ram: %+v", r)
	}
	if r := rungs[3]; parts(r.Way) != "RAM:11:19.00" || r.Decode != 3.5 || r.Prefill != 20 || r.Guessed {
		t.Errorf("cpu: %+v", r)
	}
	// A cut that took more than is there gives way to one with less on the GPU.
	m.Seen = []ways.Seen{{Kind: ways.Hybrid, Parts: []ways.Part{{"CUDA0", 10, 13 * gib}, {"RAM", 1, 3 * gib}}}}
	if w, v, _ := ways.Best(dense(10), m, ways.Fits); v != ways.Fits || parts(w) != "CUDA0:11:11.50 RAM:0:1.25" {
		t.Errorf("%v %+v", v, w)
	}
	if r := ways.Ladder(dense(10), m)[2]; parts(r.Way) != "CUDA0:9:9.50 RAM:2:3.75" {
		t.Errorf("%+v", r)
	}
	// One that took less than was predicted goes where the prediction did not.
	o := machine(ram(4.5, 4.5), gpu("CUDA0", 8, 8))
	o.Seen = []ways.Seen{{Kind: ways.Hybrid, Parts: []ways.Part{{"CUDA0", 7, 7 * gib}, {"RAM", 4, 4 * gib}}}}
	if w, _, _ := ways.Best(dense(10), o, ways.Fits); parts(w) != "CUDA0:7:7.00 RAM:4:4.00" {
		t.Errorf("%+v", w)
	}
	// The same layers with other experts in RAM are another way.
	n := machine(ram(32, 20), gpu("CUDA0", 8, 8))
	n.Seen = []ways.Seen{{Kind: ways.Hybrid, Parts: []ways.Part{{"CUDA0", 11, 5 * gib}, {"RAM", 0, 9 * gib}}, CPUExperts: 9}}
	if r := ways.Ladder(mixed(10), n)[2]; parts(r.Way) != "CUDA0:11:7.75 RAM:0:5.50 experts:5" {
		t.Errorf("%+v", r)
	}
}

func TestSpeed(t *testing.T) {
	s := mixed(10) // Of each layer a quarter, and of the rest a quarter, works on a token.
	if want := uint64(gib + 10*(gib/4+gib/4*3/4)); s.Active() != want {
		t.Errorf("active %d, want %d", s.Active(), want)
	}
	host, card := ram(32, 20), gpu("CUDA0", 8, 8)
	host.Decode, host.Prefill, card.Decode, card.Prefill = 10*gib, 40*gib, 100*gib, 2000*gib
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 1e-9 }
	w, _, _ := ways.Best(s, machine(host, card), ways.Fits)
	inRAM, onGPU := 5*.75/4, 1+10*.25+5*.75/4 // GiB: the experts of five layers; all the rest.
	if w.Kind != ways.Hybrid || w.Guessed || !near(w.Decode, 1/(inRAM/10+onGPU/100)) || !near(w.Prefill, 1/(inRAM/40+onGPU/2000)) {
		t.Errorf("%+v", w)
	}
	card.Decode = 0
	if w, _, _ = ways.Best(s, machine(host, card), ways.Fits); !w.Guessed || !near(w.Decode, 1/(inRAM/10+onGPU*gib/ways.ReferenceGPU)) {
		t.Errorf("%+v", w)
	}
	// Where the CPU was measured to be faster, it is taken.
	m := machine(host, card)
	m.Seen = []ways.Seen{{Kind: ways.CPU, Parts: []ways.Part{{"RAM", 11, 0}}, Decode: 1000}}
	if w, _, _ = ways.Best(s, m, ways.Fits); w.Kind != ways.CPU || w.Decode != 1000 || w.Guessed {
		t.Errorf("%+v", w)
	}
	// What cannot be is not believed.
	for _, bad := range []float64{math.NaN(), math.Inf(1), -5, 1e300} {
		m.Host.Decode, m.Host.Prefill = bad, bad
		m.Seen[0].Decode, m.Seen[0].Prefill = bad, bad
		r := ways.Ladder(s, m)[3]
		if !r.Guessed || !near(r.Decode, ways.ReferenceRAM/float64(s.Active())) || !near(r.Prefill, ways.PrefillFactorOnCPU*r.Decode) {
			t.Errorf("%v: %+v", bad, r)
		}
	}
}

// A GPU on the host's memory is taken to be as fast as that until it is known.
func TestSpeedOfTheHostsMemory(t *testing.T) {
	s, host, card := dense(10), ram(32, 32), unified(gpu("iGPU0", 28, 28))
	decode := func() ways.Rung { return ways.Ladder(s, machine(host, card))[0] }
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 1e-9 }
	active := float64(s.Active())
	if r := decode(); !r.Guessed || !near(r.Decode, ways.ReferenceRAM/active) || !near(r.Prefill, 2*ways.PrefillFactorOnCPU*r.Decode) {
		t.Errorf("nothing known: %+v", r)
	}
	host.Decode, host.Prefill = 60e9, 100e9
	if r := decode(); !r.Guessed || !near(r.Decode, 60e9/active) || !near(r.Prefill, 2*100e9/active) {
		t.Errorf("the host's known: %+v", r)
	}
	card.Decode, card.Prefill = 50e9, 900e9
	if r := decode(); r.Guessed || !near(r.Decode, 50e9/active) || !near(r.Prefill, 900e9/active) {
		t.Errorf("known: %+v", r)
	}
}

func TestShapeCheck(t *testing.T) {
	ok := dense(10)
	if err := ok.Check(); err != nil || ok.Count() != 10 {
		t.Fatal(err, ok.Count())
	}
	for name, change := range map[string]func(*ways.Shape){
		"input":       func(s *ways.Shape) { s.Input = 1<<50 + 1 },
		"host":        func(s *ways.Shape) { s.Host = math.MaxUint64 },
		"largest":     func(s *ways.Shape) { s.Largest = 1<<50 + 1 },
		"sum":         func(s *ways.Shape) { s.Compute, s.Host = 1<<49, 1<<49 },
		"layers":      func(s *ways.Shape) { s.Layers[0].Count = 4097 },
		"no layers":   func(s *ways.Shape) { s.Layers[0].Count = 0 },
		"sum of runs": func(s *ways.Shape) { s.Layers = append(s.Layers, ways.Layers{Count: math.MaxInt, Weights: 1}) },
		"runs":        func(s *ways.Shape) { s.Layers = make([]ways.Layers, 513) },
		"weights":     func(s *ways.Shape) { s.Layers[0].Weights, s.Layers[0].Count = 1<<50, 4096 },
		"kv":          func(s *ways.Shape) { s.Layers[0].KV = math.MaxUint64 },
		"used":        func(s *ways.Shape) { s.Used = 1 },
		"negative":    func(s *ways.Shape) { s.Experts, s.Used = -2, -3 },
		"experts":     func(s *ways.Shape) { s.Layers[0].Experts = s.Layers[0].Weights + 1 },
	} {
		bad := dense(10)
		if change(&bad); bad.Check() == nil {
			t.Errorf("%s: %+v passes", name, bad)
		}
		for _, r := range ways.Ladder(bad, machine(ram(1<<30, 1<<30), gpu("CUDA0", 1<<30, 1<<30))) {
			if r.Verdict != ways.Never || r.Text == "" {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}
