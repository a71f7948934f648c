package gguf

import (
	"errors"
	"fmt"
	"math"

	parser "github.com/gpustack/gguf-parser-go"
)

// Memory is the RAM that serving a model takes, in bytes.
type Memory struct {
	// Weights are the model's tensors.
	Weights uint64
	// KV is the cache of keys and values of all slots.
	KV uint64
	// Compute is what is in between, and the engine's program itself.
	Compute uint64
	// Total is the sum.
	Total uint64
}

const (
	// processBytes is what a llama-server takes by itself: its code, threads
	// and HTTP server. With the demo model it was 17 MiB.
	processBytes = 32 << 20
	// pieceBytes is what one piece of the vocabulary takes: its text, its entry
	// in a map, its merges.
	pieceBytes = 256
	// maxEmbedBatch is the longest text to embed, in tokens: the engine is
	// started so that it takes it in one batch.
	maxEmbedBatch = 8192
)

// maxMemory is more than any machine has: an estimate above it comes from a
// header that lies.
const maxMemory = 1 << 50

// Memory estimates the RAM for serving the model on the CPU, slots requests at
// once with ctx tokens for each. Both must be at least 1.
func (h Header) Memory(ctx, slots int) (Memory, error) {
	switch {
	case h.file == nil:
		return Memory{}, errors.New("the header was not read from a file")
	case ctx < 1 || slots < 1 || ctx > math.MaxInt32/slots:
		return Memory{}, fmt.Errorf("no engine serves %d slots of %d tokens", slots, ctx)
	}
	var m Memory
	options := []parser.GGUFRunEstimateOption{
		parser.WithLLaMACppContextSize(int32(ctx * slots)),
		parser.WithParallelSize(int32(slots)),
		parser.WithLLaMACppOffloadLayers(0),
		parser.WithFlashAttention(), // as the engine chooses where it can
	}
	if h.Kind == KindEmbed || h.Kind == KindRerank {
		batch := int32(max(32, min(ctx, maxEmbedBatch)))
		options = append(options, parser.WithLLaMACppLogicalBatchSize(batch), parser.WithLLaMACppPhysicalBatchSize(batch))
	}
	err := guarded(func() error {
		e := h.file.EstimateLLaMACppRun(options...)
		if len(e.Devices) == 0 {
			return errors.New("nothing is known of how it runs")
		}
		host := e.Devices[0]
		m.Weights = uint64(host.Weight.Sum())
		m.KV = uint64(host.KVCache.Sum())
		m.Compute = uint64(host.Computation.Sum()) + uint64(host.Footprint)
		return nil
	})
	if err != nil {
		return Memory{}, fmt.Errorf("%w: its memory cannot be estimated: %w", ErrInvalid, err)
	}
	// All of the tensors are mapped, also those that the estimate has no use for.
	m.Weights = max(m.Weights, h.TensorBytes)
	for _, part := range []uint64{m.Weights, m.KV, m.Compute} {
		if part > maxMemory {
			return Memory{}, fmt.Errorf("%w: it would take more memory than any machine has", ErrInvalid)
		}
	}
	m.Compute += processBytes + pieceBytes*h.Vocab
	m.Total = m.Weights + m.KV + m.Compute
	return m, nil
}
