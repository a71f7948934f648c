package ways

import (
	"errors"
	"fmt"
)

// Shape is what a model takes, piece by piece, in bytes, for the context, the
// slots and the arguments that it is served with.
type Shape struct {
	// Input are the tensors before the layers: they stay in host memory.
	Input uint64 `cbor:"1,keyasint"`
	// Output are the tensors behind the layers; where Tied they are a copy of
	// Input's, which costs nothing in host memory.
	Output uint64 `cbor:"2,keyasint"`
	Tied   bool   `cbor:"3,keyasint,omitempty"`
	// Layers are in order; equal neighbours are one run.
	Layers []Layers `cbor:"4,keyasint"`
	// Of Experts in each layer Used work on each token; 0 where there are none.
	Experts int `cbor:"5,keyasint,omitempty"`
	Used    int `cbor:"6,keyasint,omitempty"`
	// Compute is the buffer for what is in between, on each device that computes.
	Compute uint64 `cbor:"7,keyasint"`
	// Host is the host memory that the process takes wherever it computes:
	// program, vocabulary, projector, prompt cache.
	Host uint64 `cbor:"8,keyasint"`
	// Largest is the largest single tensor of the layers: a worker of a group holds one
	// of them twice while it loads. 0 is not known, as in older records.
	Largest uint64 `cbor:"9,keyasint,omitempty"`
}

// Layers is a run of layers that are alike.
type Layers struct {
	Count int `cbor:"1,keyasint"`
	// Weights and KV are the bytes of each layer's tensors and of its part of the
	// KV cache; Experts is the part of Weights that is in tensors of experts.
	Weights uint64 `cbor:"2,keyasint"`
	Experts uint64 `cbor:"3,keyasint,omitempty"`
	KV      uint64 `cbor:"4,keyasint"`
}

// Bounds of a shape. No model comes near them; they keep sums from overflowing
// and work small whatever a record says.
const (
	maxRuns   = 512
	maxLayers = 4096
	maxBytes  = 1 << 50
)

// Check says whether a shape is within bounds: at most 512 runs and 4096 layers,
// each run with one at least; nothing above 1<<50 bytes in all; no more experts used
// than there are, and no more bytes of experts than of weights.
func (s Shape) Check() error {
	if len(s.Layers) > maxRuns {
		return fmt.Errorf("a shape of more than %d runs of layers", maxRuns)
	}
	if s.Largest > maxBytes {
		return fmt.Errorf("a shape with a tensor of more than %d bytes", uint64(maxBytes))
	}
	if s.Used < 0 || s.Used > s.Experts {
		return errors.New("a shape that uses more experts than it has")
	}
	sum, count, err := uint64(0), 0, error(nil)
	add := func(n uint64) {
		if n > maxBytes || sum+n > maxBytes {
			err = fmt.Errorf("a shape of more than %d bytes", uint64(maxBytes))
			n = 0
		}
		sum += n
	}
	for _, n := range [...]uint64{s.Input, s.Output, s.Compute, s.Host} {
		add(n)
	}
	for _, l := range s.Layers {
		if l.Count < 1 || l.Count > maxLayers-count {
			return fmt.Errorf("a run of layers with less than one, or more than %d layers in all", maxLayers)
		}
		if l.Experts > l.Weights {
			return errors.New("a layer whose experts are larger than its weights")
		}
		count += l.Count
		if l.Weights > maxBytes || l.KV > maxBytes {
			return fmt.Errorf("a shape of more than %d bytes", uint64(maxBytes))
		}
		add((l.Weights + l.KV) * uint64(l.Count)) // At most 1<<63.
	}
	return err
}

// Count is how many layers there are, the output layer not counted.
func (s Shape) Count() (n int) {
	for _, l := range s.Layers {
		n += l.Count
	}
	return n
}

// CPU is the memory that the model takes on a CPU, in bytes.
func (s Shape) CPU() uint64 {
	n := s.Input + s.Compute + s.Host
	if !s.Tied {
		n += s.Output
	}
	for _, l := range s.Layers {
		n += (l.Weights + l.KV) * uint64(l.Count)
	}
	return n
}

// Active is how many bytes of weights are read for one token: all but those of
// experts that do not work on it. Of Input only one row is looked up, which
// counts as nothing; Output counts, tied or not.
func (s Shape) Active() uint64 {
	n := s.Output
	for _, l := range s.Layers {
		n += s.active(l.Weights, l.Experts) * uint64(l.Count)
	}
	return n
}

// active is what is read of weights, of which so many are in experts.
func (s Shape) active(weights, experts uint64) uint64 {
	return weights - experts + s.working(experts)
}

// working is what is read of experts for one token.
func (s Shape) working(experts uint64) uint64 {
	if s.Experts == 0 {
		return experts
	}
	return uint64(float64(experts) * float64(s.Used) / float64(s.Experts))
}
