package gguf

import (
	"fmt"
	"strconv"
	"strings"
)

// A Tensor is where one tensor of a model lies, and what it is of.
type Tensor struct {
	Name string
	// Layer is the transformer block that it is of, counted from 0; -1 where it is
	// of the input, before them, and Header.Layers where it is of the output, behind
	// them. Shape counts the bytes of the same tensors for each.
	Layer int
	// Part is the file that it lies in, an index of Header.Parts; 0 where the model
	// is one file.
	Part int
	// Offset is where its first byte is in that file, and Bytes how many there are,
	// without what fills them up to the next tensor.
	Offset, Bytes int64
}

// Tensors are all tensors of the model, in the order of its files. Each lies
// within its file, as long as that is the one that was read. The engine puts a
// block's tensors on the block's device, input and output where it has those. It
// makes copies of few: the output layer where it has no tensor of its own, which
// is then token_embd.weight, and the small ones that all blocks share, such as
// rope_freqs.weight. The error is ErrInvalid where the header lies.
func (h Header) Tensors() ([]Tensor, error) {
	if h.file == nil {
		return nil, errNoFile
	}
	list := make([]Tensor, 0, len(h.file.TensorInfos))
	err := guarded(func() error {
		part := 0
		for i, t := range h.file.TensorInfos {
			for i >= h.data[part].end {
				part++
			}
			list = append(list, Tensor{t.Name, h.layerOf(t.Name), part, int64(h.data[part].start + t.Offset), int64(t.Bytes())})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: its tensors cannot be told: %w", ErrInvalid, err)
	}
	return list, nil
}

// data is where the tensors' data of one file of a model starts, in bytes, and
// the first of all the model's tensors that lies in a later file.
type data struct {
	start uint64
	end   int
}

// layerOf is what a tensor of that name is of, as Tensor.Layer says. What is of a
// layer that the model does not say it has is of the input.
func (h Header) layerOf(name string) int {
	if m := ofLayer.FindStringSubmatch(name); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < int(h.Layers) {
			return i
		}
	}
	for _, prefix := range []string{"output", "cls", "dense_"} {
		if strings.HasPrefix(name, prefix) {
			return int(h.Layers)
		}
	}
	return -1
}
