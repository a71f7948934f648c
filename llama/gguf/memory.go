package gguf

import (
	"errors"
	"fmt"
	"math"

	parser "github.com/gpustack/gguf-parser-go"
	"github.com/gpustack/gguf-parser-go/util/anyx"
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
	// maxSlots is how many slots an engine may have.
	maxSlots = 1024
	// maxEmbedBatch is the longest text to embed, in tokens: the engine is
	// started so that it takes it in one batch.
	maxEmbedBatch = 8192
)

// maxMemory is more than any machine has: an estimate above it comes from a
// header that lies.
const maxMemory = 1 << 50

// errNoMachine is what a header gets that lies about how wide the model is.
var errNoMachine = fmt.Errorf("%w: it would take more memory than any machine has", ErrInvalid)

// Memory estimates the RAM for serving the model on the CPU, slots requests at
// once with ctx tokens for each. Both must be at least 1, slots at most 1024. A
// projector is read by the process of its model, to which its memory comes on
// top: it is the same for every context.
func (h Header) Memory(ctx, slots int) (Memory, error) {
	switch {
	case h.file == nil:
		return Memory{}, errors.New("the header was not read from a file")
	case ctx < 1 || slots < 1 || slots > maxSlots || ctx > math.MaxInt32/slots:
		return Memory{}, fmt.Errorf("no engine serves %d slots of %d tokens", slots, ctx)
	case h.mostKV(ctx*slots) > math.MaxInt64/2:
		return Memory{}, errNoMachine
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
			return Memory{}, errNoMachine
		}
	}
	if h.Kind != KindProjector { // it is read by the model's process
		m.Compute += processBytes
	}
	m.Compute += pieceBytes * h.Vocab
	m.Total = m.Weights + m.KV + m.Compute
	return m, nil
}

// mostKV is more than the cache of keys and values can take for that many
// tokens, in bytes, in numbers that cannot overflow: the parser's do.
func (h Header) mostKV(tokens int) float64 {
	most := func(names ...string) float64 {
		n := 1.
		for _, name := range names {
			v, ok := h.file.Header.MetadataKV.Get(h.Arch + name)
			if !ok {
				continue
			}
			list, ok := v.Value.(parser.GGUFMetadataKVArrayValue)
			if !ok {
				list.Array = []any{v.Value}
			}
			for _, v := range list.Array {
				n = max(n, anyx.Number[float64](v))
			}
		}
		return n
	}
	layers := most(".block_count")
	if h.Layers == 0 { // the parser counts tensors
		layers = max(layers, float64(len(h.file.TensorInfos)))
	}
	heads := most(".attention.head_count", ".attention.head_count_kv")
	width := most(".embedding_length", ".attention.key_length", ".attention.value_length", ".attention.key_length_mla",
		".attention.value_length_mla", ".attention.key_length_swa", ".attention.value_length_swa")
	return 4 * layers * heads * width * float64(tokens) // two bytes for each key and each value
}
