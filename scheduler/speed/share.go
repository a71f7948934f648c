package speed

import (
	"maps"
	"slices"

	"relay/scheduler/ways"
)

// Share corrects the rates of the devices that a way computes on by a sample of
// it; s.Active is not looked at. Where they are several the sample does not say
// which of them was slow: each is corrected by the ratio of what was measured to
// what their rates before make of it, and one that is not known yet counts there
// as the reference for its kind. A way that is none of the shape's changes
// nothing.
func Share(way ways.Way, shape ways.Shape, before map[string]Rates, s Sample) map[string]Rates {
	after := maps.Clone(before)
	if after == nil {
		after = map[string]Rates{}
	}
	var decode, prefill float64 // seconds for each token, as was to be expected
	read := reads(way, shape)
	devices := slices.Sorted(maps.Keys(read)) // Sums come out the same each time.
	for _, device := range devices {
		a := assumed(device, before)
		decode += read[device] / a.Decode
		prefill += read[device] / a.Prefill
	}
	for _, device := range devices {
		a := assumed(device, before)
		after[device] = before[device].learn(
			a.Decode*decode*rate(s.Tokens, minTokens, s.TokenTime, 1),
			a.Prefill*prefill*rate(s.Prompt, minPrompt, s.PromptTime, 1))
	}
	return after
}

// assumed are the rates of a device, the references where they are not known.
func assumed(device string, known map[string]Rates) Rates {
	r := Rates{Decode: ways.ReferenceGPU, Prefill: ways.ReferenceGPU * ways.PrefillFactorOnGPU}
	if device == ways.HostID {
		r = Rates{Decode: ways.ReferenceRAM, Prefill: ways.ReferenceRAM * ways.PrefillFactorOnCPU}
	}
	if k := known[device]; possible(k.Decode) {
		r.Decode = k.Decode
	}
	if k := known[device]; possible(k.Prefill) {
		r.Prefill = k.Prefill
	}
	return r
}

// reads are the bytes of weights that each device that computes works through
// for a token: the first layers are in host memory, those behind on the GPUs in
// order, and the output layer with the last of all.
func reads(way ways.Way, shape ways.Shape) map[string]float64 {
	count := shape.Count() + 1
	if shape.Check() != nil {
		return nil
	}
	var host, gpus []string // the device of each layer
	for _, p := range way.Parts {
		if p.Layers < 0 || p.Layers > count-len(host)-len(gpus) {
			return nil
		}
		layers := slices.Repeat([]string{p.Device}, p.Layers)
		if p.Device == ways.HostID {
			host = append(host, layers...)
		} else {
			gpus = append(gpus, layers...)
		}
	}
	at := slices.Concat(host, gpus)
	if len(at) != count {
		return nil
	}
	read := map[string]float64{}
	add := func(device string, bytes float64) {
		if bytes > 0 {
			read[device] += bytes
		}
	}
	layer := 0
	for _, l := range shape.Layers {
		working := float64(l.Experts)
		if shape.Experts > 0 {
			working *= float64(shape.Used) / float64(shape.Experts)
		}
		for range l.Count {
			add(at[layer], float64(l.Weights-l.Experts))
			if layer < way.CPUExperts {
				add(ways.HostID, working)
			} else {
				add(at[layer], working)
			}
			layer++
		}
	}
	add(at[layer], float64(shape.Output))
	return read
}
