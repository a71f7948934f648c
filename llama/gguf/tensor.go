package gguf

import (
	"fmt"
	"math/bits"

	parser "github.com/gpustack/gguf-parser-go"
)

// alignment is what the data of each tensor is aligned to, in bytes.
func (w *walk) alignment() (uint64, error) {
	const key = "general.alignment"
	if !w.has(key) {
		return 32, nil
	}
	align, ok := w.get(key).(uint32) // llama.cpp takes no other type
	if !ok || align < 8 || align > maxAlignment || bits.OnesCount32(align) != 1 {
		return 0, fmt.Errorf("it says that its data is aligned to %v bytes", w.get(key))
	}
	return uint64(align), nil
}

// tensor reads one entry of the table of tensors.
func (w *walk) tensor(align uint64) error {
	name, err := w.text(maxName)
	if err != nil {
		return err
	}
	if w.budget.tensors[name] {
		return fmt.Errorf("the tensor %q is there twice", shown(name))
	}
	w.budget.tensors[name] = true
	dims, err := w.uint32()
	if err != nil {
		return err
	}
	if dims < 1 || dims > parser.GGMLMaxDims {
		return fmt.Errorf("the tensor %q has %d dimensions", shown(name), dims)
	}
	info := parser.GGUFTensorInfo{Name: name, NDimensions: dims, Dimensions: make([]uint64, dims)}
	elements := uint64(1)
	for i := range dims {
		d, err := w.uint64()
		if err != nil {
			return err
		}
		hi, lo := bits.Mul64(elements, d)
		if d < 1 || d > maxDimension || hi != 0 {
			return fmt.Errorf("the tensor %q has an impossible shape", shown(name))
		}
		info.Dimensions[i], elements = d, lo
	}
	kind, err := w.uint32()
	if err != nil {
		return err
	}
	info.Type = parser.GGMLType(kind)
	trait, ok := info.Type.Trait()
	if !ok || trait.BlockSize == 0 || trait.TypeSize == 0 {
		return fmt.Errorf("the tensor %q is of type %d, which this relay does not know", shown(name), kind)
	}
	if info.Dimensions[0]%trait.BlockSize != 0 {
		return fmt.Errorf("the tensor %q has rows of %d elements, which its type does not allow", shown(name), info.Dimensions[0])
	}
	hi, size := bits.Mul64(elements/trait.BlockSize, trait.TypeSize)
	if hi != 0 || size > w.budget.data {
		return fmt.Errorf("the tensor %q is impossibly large", shown(name))
	}
	if info.Offset, err = w.uint64(); err != nil {
		return err
	}
	if info.Offset != padded(w.end, align) { // llama.cpp takes no gaps either
		return fmt.Errorf("the tensor %q is not where the ones before it end", shown(name))
	}
	w.budget.data -= size
	w.end = info.Offset + size
	w.elements += elements
	w.bytes += size
	w.tensors = append(w.tensors, info)
	return nil
}

func padded(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }
