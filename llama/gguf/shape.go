package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"
)

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
	// Largest is the largest single tensor of the layers: an engine that computes
	// layers for another holds one whole in host memory while it is loaded.
	Largest uint64
	// Of Experts in each layer Used work on each token; 0 where there are none.
	Experts, Used int
	// Compute is for what is in between, on each device that computes.
	Compute uint64
	// Host is what the process takes in host memory wherever it computes: its
	// program, the vocabulary, what comes out of a batch, and
	// states of sliding windows and recurrent layers to go back to.
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
	weights, kv := s.sums()
	return weights + kv + s.Compute + s.Host
}

// sums are the weights in host memory on the CPU, and the cache of all layers.
func (s Shape) sums() (weights, kv uint64) {
	weights = s.Input
	if !s.Tied {
		weights += s.Output
	}
	for _, l := range s.Layers {
		weights += uint64(l.Count) * l.Weights
		kv += uint64(l.Count) * l.KV
	}
	return weights, kv
}

// errNoFile is for the zero Header.
var errNoFile = errors.New("the header was not read from a file")

// Shape is the memory that serving the model takes, piece by piece. A projector
// has only Input and Compute: it is read by the process of its model, to whose
// memory its own comes on top. The error is ErrInvalid where the header lies.
func (h Header) Shape(s Serving) (Shape, error) {
	if h.file == nil {
		return Shape{}, errNoFile
	}
	if err := s.validate(); err != nil {
		return Shape{}, err
	}
	s.Kind = cmp.Or(s.Kind, h.Kind)
	f := s.flags()
	f.batch, f.ubatch = Batch(s.Kind, s.Context, s.Args)
	var shape Shape
	err := guarded(func() (err error) {
		shape, err = h.shape(s, f)
		return err
	})
	switch {
	case errors.Is(err, ErrInvalid):
		return Shape{}, err
	case err != nil:
		return Shape{}, fmt.Errorf("%w: its memory cannot be estimated: %w", ErrInvalid, err)
	}
	weights, kv := shape.sums()
	for _, part := range []uint64{weights, kv, shape.Compute, shape.Host} {
		if part > maxMemory {
			return Shape{}, errNoMachine
		}
	}
	return shape, nil
}

// shape does it, and may panic where the parser does.
func (h Header) shape(s Serving, f flags) (Shape, error) {
	var shape Shape
	e, err := h.estimate(s, f)
	if err != nil {
		return Shape{}, err
	}
	if h.Kind == KindProjector {
		host := h.file.EstimateLLaMACppRun(parser.WithLLaMACppOffloadLayers(0)).Devices[0]
		return Shape{Input: h.TensorBytes, Compute: uint64(host.Computation.Sum()) + uint64(host.Footprint)}, nil
	}
	layers := make([]Layers, h.Layers)
	h.addWeights(&shape, layers, f)
	for i, kv := range e.layers(len(layers)) {
		layers[i].KV = kv * uint64(s.Slots)
	}
	for _, l := range layers {
		if n := len(shape.Layers); n > 0 && shape.Layers[n-1].like(l) {
			shape.Layers[n-1].Count++
		} else {
			l.Count = 1
			shape.Layers = append(shape.Layers, l)
		}
	}
	experts, _ := h.number(".expert_count")
	used, _ := h.number(".expert_used_count")
	if experts > 0 {
		shape.Experts, shape.Used = int(experts), int(min(used, experts))
	}
	var outputs uint64
	shape.Compute = e.compute
	if s.Kind.embeds() {
		host, compute := h.outputs(f.batch)
		outputs, shape.Compute = host, max(shape.Compute, compute)
	}
	shape.Host = processBytes + pieceBytes*h.Vocab + 4*h.Vocab*uint64(s.Slots) + outputs +
		e.state*uint64(s.Slots*min(checkpoints, 2+s.Context/checkpointStep))
	return shape, nil
}

func (l Layers) like(m Layers) bool {
	return l.Weights == m.Weights && l.Experts == m.Experts && l.KV == m.KV
}

// ofLayer finds the number of a tensor's layer; encoders and decoders beside
// one another have their own in front.
var ofLayer = regexp.MustCompile(`\A(?:[a-z]+\.)?blk\.([0-9]{1,5})\.`)

// addWeights adds the tensors to where they belong.
func (h Header) addWeights(s *Shape, layers []Layers, f flags) {
	var embedding, head uint64
	repacked := false // whether an output layer that is the input layer is copied
	for _, t := range h.file.TensorInfos {
		n := t.Bytes()
		switch i := h.layerOf(t.Name); {
		case i >= 0 && i < len(layers):
			layers[i].Weights += n
			if strings.Contains(t.Name, "_exps.") || strings.Contains(t.Name, "_chexps.") {
				layers[i].Experts += n
			}
			s.Largest = max(s.Largest, n)
		case i >= 0:
			s.Output += n
			if t.Name == "output.weight" {
				head = n
			}
		default:
			s.Input += n
			if t.Name == "token_embd.weight" {
				// It is told to machines of all kinds: the worse counts.
				embedding, repacked = n, f.repack && (repacks("amd64", t) || repacks("arm64", t))
			}
		}
	}
	if head == 0 && !strings.Contains(h.Arch, "bert") && !strings.Contains(h.Arch, "t5encoder") {
		// On the CPU, a repacked output layer is memory of its own, and the norm
		// before it always is: what is tied is only the rest.
		if s.Tied = !repacked; s.Tied {
			s.Input += s.Output
		}
		s.Output += embedding
	}
}
