package gguf

import "errors"

// A Serving is how a model is served, as far as it counts for memory.
type Serving struct {
	// Context is the tokens that one slot holds, Slots the requests served at
	// once: both at least 1, Slots at most 1024.
	Context, Slots int
	// CacheMiB bounds the engine's prompt cache, in MiB.
	CacheMiB int
	// Args are the engine arguments of the model's record, as llama.CheckArgs
	// lets them pass.
	Args []string
}

// A Shape is the memory that serving a model takes, piece by piece, in bytes.
type Shape struct {
	// Input are the tensors before the layers, which stay in host memory.
	Input uint64
	// Output are the tensors behind the layers. Where Tied, they are a copy of
	// Input's, which costs nothing in host memory.
	Output uint64
	Tied   bool
	// Layers are in order, equal neighbours as one run.
	Layers []Layers
	// Of Experts in each layer Used work on each token; 0 where there are none.
	Experts, Used int
	// Compute is for what is in between, on each device that computes.
	Compute uint64
	// Host is what the process takes in host memory wherever it computes: its
	// program, the vocabulary, the prompt cache.
	Host uint64
}

// Layers are some layers that take the same, in bytes for each of them.
type Layers struct {
	Count int
	// Weights are all its tensors, Experts those of them that are experts', and
	// KV what it keeps of the tokens of all slots.
	Weights, Experts, KV uint64
}

// CPU is the memory that serving on the CPU takes in all.
func (s Shape) CPU() uint64 {
	sum := s.Input + s.Compute + s.Host
	if !s.Tied {
		sum += s.Output
	}
	for _, l := range s.Layers {
		sum += uint64(l.Count) * (l.Weights + l.KV)
	}
	return sum
}

// Shape is the memory that serving the model takes, piece by piece.
func (h Header) Shape(Serving) (Shape, error) { return Shape{}, errors.New("not yet") }
