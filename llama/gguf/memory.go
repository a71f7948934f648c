package gguf

import (
	"fmt"

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
	// and HTTP server. It was 17 MiB with the demo model, and
	// 21 with a vocabulary of 32,000 pieces.
	processBytes = 16 << 20
	// pieceBytes is what one piece of the vocabulary takes: its text, its entry
	// in a map, its merges.
	pieceBytes = 256
	// maxSlots is how many slots an engine may have.
	maxSlots = 1024
)

// maxMemory is more than any machine has: an estimate above it comes from a
// header that lies.
const maxMemory = 1 << 50

// errNoMachine is what a header gets that lies about how wide the model is.
var errNoMachine = fmt.Errorf("%w: it would take more memory than any machine has", ErrInvalid)

// Memory estimates the RAM for serving the model on the CPU: its Shape in sum.
// Of a projector it is what comes on top of its model's, for every context.
func (h Header) Memory(s Serving) (Memory, error) {
	shape, err := h.Shape(s)
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	m.Weights, m.KV = shape.sums()
	m.Compute = shape.Compute + shape.Host
	m.Total = m.Weights + m.KV + m.Compute
	return m, nil
}

// mostKV is more than the cache of keys and values can take for that many
// tokens, in bytes, in numbers that cannot overflow: the parser's do.
func (h Header) mostKV(tokens uint64) float64 {
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
