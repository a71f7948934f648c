package ways_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"relay/scheduler/ways"
)

const mib = 1 << 20

func anyShape(t *rapid.T) ways.Shape {
	size := rapid.Uint64Range(0, 40)
	s := ways.Shape{
		Input: size.Draw(t, "input") * mib, Output: size.Draw(t, "output") * mib, Tied: rapid.Bool().Draw(t, "tied"),
		Compute: (1 + size.Draw(t, "compute")) * mib / 4, Host: size.Draw(t, "host") * mib / 4,
	}
	if rapid.Bool().Draw(t, "of experts") {
		s.Experts = rapid.IntRange(1, 8).Draw(t, "experts")
		s.Used = rapid.IntRange(0, s.Experts).Draw(t, "used")
	}
	for range rapid.IntRange(0, 4).Draw(t, "runs") {
		l := ways.Layers{Count: rapid.IntRange(1, 6).Draw(t, "count"), Weights: size.Draw(t, "weights") * mib, KV: size.Draw(t, "kv") * mib / 8}
		if s.Experts > 0 {
			l.Experts = l.Weights / 4 * rapid.Uint64Range(0, 4).Draw(t, "part")
		}
		s.Layers = append(s.Layers, l)
	}
	return s
}

func anyDevice(t *rapid.T, id string, most uint64) ways.Device {
	size := rapid.Uint64Range(0, most)
	d := ways.Device{ID: id, Name: id, GPU: id != ways.HostID, Known: rapid.Float64().Draw(t, "known") < 0.9}
	if d.Known {
		d.Lent = size.Draw(t, "lent") * mib
		d.Free = min(d.Lent, size.Draw(t, "free")*mib)
		d.Evictable = min(d.Lent-d.Free, size.Draw(t, "evictable")*mib)
	}
	if rapid.Float64().Draw(t, "busy") < 0.1 {
		d.Busy = "a game runs there"
	}
	if rapid.Bool().Draw(t, "learnt") {
		d.Decode = rapid.Float64Range(1e6, 1e12).Draw(t, "decode")
		d.Prefill = rapid.Float64Range(1e6, 1e12).Draw(t, "prefill")
	}
	return d
}

func anyMachine(t *rapid.T) ways.Machine {
	m := ways.Machine{Name: "attic", Host: anyDevice(t, ways.HostID, 600)}
	for i := range rapid.IntRange(0, 4).Draw(t, "gpus") {
		g := anyDevice(t, fmt.Sprint("CUDA", i), 500)
		g.Unified = rapid.Float64().Draw(t, "unified") < 0.3
		m.GPUs = append(m.GPUs, g)
	}
	return m
}

// device is a device of a machine by its id.
func device(m ways.Machine, id string) ways.Device {
	for _, d := range m.GPUs {
		if d.ID == id {
			return d
		}
	}
	return m.Host
}

// may says what a way of that verdict may ask of a device.
func may(d ways.Device, v ways.Verdict) uint64 {
	switch {
	case !d.Known || d.Busy != "" && v != ways.Later:
		return 0
	case v == ways.Fits:
		return d.Free
	case v == ways.Evicts:
		return d.Free + d.Evictable
	}
	return d.Lent
}

func TestLadders(t *testing.T) {
	kinds := []ways.Kind{ways.OneGPU, ways.GPUs, ways.Hybrid, ways.CPU}
	rapid.Check(t, func(t *rapid.T) {
		s, m := anyShape(t), anyMachine(t)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		rungs := ways.Ladder(s, m)
		if rapid.Bool().Draw(t, "seen") { // What it was predicted to take turns out to be a little else.
			for _, r := range rungs {
				if len(r.Parts) == 0 || rapid.Bool().Draw(t, "not that") {
					continue
				}
				seen := ways.Seen{Kind: r.Kind, Parts: slices.Clone(r.Parts), CPUExperts: r.CPUExperts, Decode: rapid.Float64Range(0, 100).Draw(t, "measured")}
				for i := range seen.Parts {
					seen.Parts[i].Bytes += rapid.Uint64Range(0, 20).Draw(t, "more") * mib
				}
				m.Seen = append(m.Seen, seen)
			}
			rungs = ways.Ladder(s, m)
		}
		if len(rungs) != len(kinds) {
			t.Fatalf("%d rungs", len(rungs))
		}
		for i, r := range rungs {
			fits := r.Verdict < ways.Later
			if r.Kind != kinds[i] || r.Text == "" || fits != (r.Reason == "") {
				t.Fatalf("%+v", r)
			}
			if r.Verdict == ways.Never {
				if len(r.Parts) > 0 {
					t.Fatalf("%+v", r)
				}
				continue
			}
			holdsWhole(t, s, m, r)
		}
		bestIsOneOf(t, s, m, rungs)
		if !reflect.DeepEqual(rungs, ways.Ladder(s, m)) {
			t.Fatal("the same shape and machine gave another ladder")
		}
	})
}

// holdsWhole: nothing of the model is left out, nothing is there twice, and no
// device is asked for more than the verdict says.
func holdsWhole(t *rapid.T, s ways.Shape, m ways.Machine, r ways.Rung) {
	t.Helper()
	layers, bytes, ofHost := 0, uint64(0), uint64(0)
	for i, part := range r.Parts {
		if d := device(m, part.Device); d.Unified || !d.GPU {
			ofHost += part.Bytes
		}
		layers, bytes = layers+part.Layers, bytes+part.Bytes
		if d := device(m, part.Device); part.Bytes > may(d, r.Verdict) || part.Bytes == 0 || d.GPU != (i < len(r.Parts)-1) || d.GPU && part.Layers == 0 {
			t.Fatalf("%+v asks too much of %+v", r, d)
		}
	}
	if ofHost > may(m.Host, r.Verdict) {
		t.Fatalf("%+v takes %d of the host's memory, %+v", r, ofHost, m.Host)
	}
	if layers != s.Count()+1 || r.Kind == ways.OneGPU && len(r.Parts) != 2 || r.Kind == ways.GPUs && len(r.Parts) < 3 || r.Kind == ways.CPU && len(r.Parts) != 1 {
		t.Fatalf("%+v of %d layers", r, s.Count())
	}
	if len(m.Seen) > 0 {
		return // The bytes are not those of the shape.
	}
	whole := s
	whole.Tied = s.Tied && r.Kind == ways.CPU // A GPU has its own copy.
	computes := uint64(len(r.Parts))
	if r.Kind == ways.OneGPU || r.Kind == ways.GPUs {
		computes--
	}
	if want := whole.CPU() - s.Compute + computes*s.Compute; bytes != want && bytes != want+1 { // One byte where RAM has nothing.
		t.Fatalf("%+v has %d bytes, want %d", r, bytes, want)
	}
}

// bestIsOneOf: Best is a rung of the ladder, none that may be had is really
// faster, and there is one wherever there is a rung.
func bestIsOneOf(t *rapid.T, s ways.Shape, m ways.Machine, rungs []ways.Rung) {
	t.Helper()
	for worst := ways.Fits; worst <= ways.Never; worst++ {
		best, verdict, ok := ways.Best(s, m, worst)
		if ok && verdict > worst {
			t.Fatalf("%s is worse than %s", verdict, worst)
		}
		found := false
		for _, r := range rungs {
			if r.Verdict > worst || r.Verdict == ways.Never {
				continue
			}
			if !ok || ways.Faster(r.Decode, best.Decode) {
				t.Fatalf("%+v was taken before %+v", best, r)
			}
			if r.Kind == ways.CPU && best.Kind == ways.Hybrid && !ways.Faster(best.Decode, r.Decode) {
				t.Fatalf("%+v takes memory of a GPU for nothing: %+v", best, r)
			}
			found = found || reflect.DeepEqual(r.Way, best) && r.Verdict == verdict
		}
		if ok && !found {
			t.Fatalf("%+v (%s) is not on the ladder %+v", best, verdict, rungs)
		}
	}
}

// What is blocked is said so on the ladder and is taken by nobody; the other ways are
// what they were.
func TestBlockedKinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := anyShape(t), anyMachine(t)
		open := ways.Ladder(s, m)
		parked := make(map[ways.Kind]bool)
		for _, r := range open {
			if rapid.Bool().Draw(t, "blocked") {
				parked[r.Kind] = rapid.Bool().Draw(t, "parked")
				m.Blocked = append(m.Blocked, ways.Block{Kind: r.Kind, Parked: parked[r.Kind], Reason: "engine_failed", Text: "it fell on " + string(r.Kind)})
			}
		}
		rungs := ways.Ladder(s, m)
		could, all, hopeless := false, true, true
		for i, r := range rungs {
			is, blocked := parked[r.Kind]
			if open[i].Verdict != ways.Never {
				could, all, hopeless = true, all && blocked, hopeless && is
			}
			if !blocked || open[i].Verdict == ways.Never {
				if !reflect.DeepEqual(r, open[i]) {
					t.Fatalf("%+v, and before %+v", r, open[i])
				}
				continue
			}
			want := ways.Later
			if is {
				want = ways.Never
			}
			if r.Verdict != want || r.Reason != "engine_failed" || r.Text != "it fell on "+string(r.Kind) || !reflect.DeepEqual(r.Way, open[i].Way) {
				t.Fatalf("%+v is blocked, parked %v", r, is)
			}
		}
		for worst := ways.Fits; worst <= ways.Never; worst++ {
			best, verdict, ok := ways.Best(s, m, worst)
			_, blocked := parked[best.Kind]
			if ok && (blocked || verdict > worst) {
				t.Fatalf("%+v (%s)", best, verdict)
			}
			for i, r := range open {
				if _, blocked := parked[r.Kind]; !blocked && r.Verdict != ways.Never && r.Verdict <= worst && (!ok || ways.Faster(r.Decode, best.Decode)) {
					t.Fatalf("%+v was taken before %+v", best, rungs[i])
				}
			}
		}
		why, ok := ways.Of(s).Blocked(&m)
		if ok != (could && all) || ok && why.Parked != hopeless {
			t.Fatalf("blocked %v by %+v: %+v", ok, why, rungs)
		}
	})
}

// Where one GPU, or the RAM alone, has the room, the ladder says so: no more and
// no less than the sums of what lies there.
func TestSumsDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := anyShape(t), anyMachine(t)
		rungs := ways.Ladder(s, m)
		one := false
		whole := s
		whole.Tied, whole.Input, whole.Host = false, 0, 0
		ram, beside := may(m.Host, ways.Fits), max(1, s.Input+s.Host)
		for _, g := range m.GPUs {
			need := beside
			if g.Unified {
				need += whole.CPU()
			}
			one = one || may(g, ways.Fits) >= whole.CPU() && g.Lent > 0 && g.Busy == "" && ram >= need
		}
		if one != (rungs[0].Verdict == ways.Fits) {
			t.Fatalf("%v: %+v", one, rungs[0])
		}
		if cpu := ram >= max(1, s.CPU()); cpu != (rungs[3].Verdict == ways.Fits) {
			t.Fatalf("%v: %+v", cpu, rungs[3])
		}
	})
}

// Of a model on one GPU and RAM as much is on the GPU as goes there: one step
// back and it would not fit.
func TestHybridFillsTheGPU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mixed(rapid.IntRange(2, 40).Draw(t, "layers"))
		if rapid.Bool().Draw(t, "dense") {
			s = dense(s.Count())
		}
		card := gpu("CUDA0", 0, 0)
		card.Lent = rapid.Uint64Range(0, 45*1024).Draw(t, "MiB") * mib
		card.Free = card.Lent
		r := ways.Ladder(s, machine(ram(100, 100), card))[2]
		least := s.Compute + s.Output + gib // On a GPU: its buffer, the output layer and one more.
		if s.Experts > 0 {
			least -= gib / 4 * 3
		}
		if r.Verdict != ways.Fits {
			if card.Free >= least {
				t.Fatalf("%d bytes: %+v", card.Free, r)
			}
			return
		}
		back := uint64(gib) // What the step before would have had on the GPU in addition: a layer,
		if s.Experts > 0 {
			back = gib / 4 // a layer without experts,
			if r.Parts[1].Layers == 0 {
				back = gib / 4 * 3 // or the experts of one.
			}
		}
		first := r.CPUExperts == 1 || s.Experts == 0 && r.Parts[1].Layers == 1
		if !first && r.Parts[0].Bytes+back <= card.Free {
			t.Fatalf("%d bytes more would go on %d: %+v", back, card.Free, r)
		}
	})
}
