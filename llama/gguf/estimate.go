package gguf

import (
	"errors"
	"math"

	parser "github.com/gpustack/gguf-parser-go"
)

const (
	// maxPad is what llama.cpp rounds the context of a slot up to.
	maxPad = 256
	// checkpoints and checkpointStep are how many states a slot keeps to go
	// back to, and how many tokens are between them at least, but for the last
	// two of a prompt. The first is what relay starts engines with, the second
	// llama.cpp's own default.
	checkpoints    = 4
	checkpointStep = 8192
	// maxSplit is how many layers are looked at one by one.
	maxSplit = 256
)

// An estimate is what the parser knows about the memory of one slot.
type estimate struct {
	kv      uint64   // of all layers
	each    []uint64 // of each layer; nil where that is not known
	compute uint64
	state   uint64 // one checkpoint
}

// estimate asks the parser about one slot. It is not asked about several: with
// --no-kv-unified each has its own cache, and attends to that alone. Nor is it
// asked about the CPU: what it says of that has the whole vocabulary for every
// token of a batch, which llama-server no longer computes, and leaves out the
// layers.
func (h Header) estimate(s Serving, f flags) (estimate, error) {
	context := min(padded(uint64(s.Context), maxPad), math.MaxInt32)
	window, _ := h.number(".attention.sliding_window")
	long := 2 * padded(window+uint64(f.ubatch)+maxPad, maxPad)
	if h.mostKV(max(2*context, long)*uint64(s.Slots)) > math.MaxInt64/2 {
		return estimate{}, errNoMachine
	}
	options := func(context uint64, more ...parser.GGUFRunEstimateOption) []parser.GGUFRunEstimateOption {
		list := []parser.GGUFRunEstimateOption{
			parser.WithLLaMACppContextSize(int32(context)), parser.WithParallelSize(1),
			parser.WithLLaMACppLogicalBatchSize(int32(max(f.ubatch, leastBatch))), parser.WithLLaMACppPhysicalBatchSize(int32(max(f.ubatch, leastBatch))),
			parser.WithLLaMACppCacheKeyType(f.keys), parser.WithLLaMACppCacheValueType(f.values),
		}
		if !f.slowAttention {
			list = append(list, parser.WithFlashAttention()) // as the engine chooses where it can
		}
		return append(list, more...)
	}
	kv := func(context uint64, more ...parser.GGUFRunEstimateOption) (sum uint64) {
		for _, d := range h.file.EstimateLLaMACppRun(options(context, more...)...).Devices {
			sum += uint64(d.KVCache.Sum())
		}
		return sum
	}
	var whole []parser.GGUFRunEstimateOption
	if f.wholeSWA {
		whole = append(whole, parser.WithLLaMACppFullSizeSWACache())
	}
	run := h.file.EstimateLLaMACppRun(options(context, whole...)...)
	if len(run.Devices) < 2 {
		return estimate{}, errors.New("nothing is known of how it runs")
	}
	var e estimate
	for _, d := range run.Devices {
		e.kv += uint64(d.KVCache.Sum())
	}
	e.compute = uint64(run.Devices[1].Computation.Compute)
	if heads, _ := h.number(".attention.head_count"); f.slowAttention {
		// The parser leaves out that the CPU multiplies what each token attends
		// to, for all heads at once, in halves of its own.
		e.compute += 2 * min(heads, 1<<12) * context * uint64(min(f.ubatch, s.Context))
	}

	// Each layer on a device of its own tells what each of them keeps.
	if n := int(h.Layers); n > 1 && n <= maxSplit {
		fractions := make([]float64, n)
		for i := range fractions {
			fractions[i] = (float64(i) + 0.5) / float64(n+1)
		}
		fractions[n-1] = 1
		split := h.file.EstimateLLaMACppRun(options(context, append(whole, parser.WithTensorSplitFraction(fractions))...)...)
		for _, d := range split.Devices[1:] {
			e.each = append(e.each, uint64(d.KVCache.Sum()))
		}
	}

	switch {
	case window > 0 && !f.wholeSWA && long <= math.MaxInt32:
		// The layers with a window keep less of a long context; a checkpoint
		// has what the window shows.
		all, windowed := kv(long, parser.WithLLaMACppFullSizeSWACache()), kv(long)
		if kept := padded(window+uint64(f.ubatch), maxPad); all > windowed && long > kept {
			e.state = (all - windowed) / (long - kept) * min(window, context)
		}
	case window == 0 && e.kv > 0 && 2*context <= math.MaxInt32:
		// What does not grow with the context is the state of recurrent layers.
		if twice := kv(2 * context); twice < 2*e.kv {
			e.state = 2*e.kv - twice
		}
	}
	if e.state > maxMemory {
		return estimate{}, errNoMachine
	}
	return e, nil
}

// layers are the bytes that each of n layers keeps.
func (e estimate) layers(n int) []uint64 {
	var sum uint64
	for _, kv := range e.each {
		sum += kv
	}
	if len(e.each) == n && sum == e.kv {
		return e.each
	}
	each := make([]uint64, n)
	for i := range each {
		each[i] = (e.kv + uint64(n) - 1) / uint64(n)
	}
	return each
}
