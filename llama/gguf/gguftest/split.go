package gguftest

import (
	"fmt"
	"os"
	"path/filepath"
)

// Split is the model in n parts as llama.cpp splits them: all keys are in the
// first, and the tensors are shared out in order. With bare, the first part has
// keys alone and the others, of which there is at least one, share the tensors.
func (f File) Split(n int, bare bool) []File {
	parts := make([]File, n)
	for i := range parts {
		p := File{Version: f.Version}
		if i == 0 {
			p = f.Without("split.no").Without("split.count").Without("split.tensors.count")
			p.Tensors = nil
		}
		parts[i] = p.With("split.no", uint16(i)).With("split.count", uint16(n)).With("split.tensors.count", int32(len(f.Tensors)))
	}
	into := parts
	if bare {
		into = parts[1:]
	}
	for i, t := range f.Tensors {
		p := &into[i*len(into)/len(f.Tensors)]
		p.Tensors = append(p.Tensors, t)
	}
	return parts
}

// PartName is llama.cpp's name for a part of a split model, counted from 0.
func PartName(name string, part, n int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", name, part+1, n)
}

// WriteParts writes the parts of a model into dir, named as llama.cpp wants it,
// and returns their paths in order.
func WriteParts(dir, name string, parts []File) ([]string, error) {
	paths := make([]string, len(parts))
	for i, p := range parts {
		paths[i] = filepath.Join(dir, PartName(name, i, len(parts)))
		if err := os.WriteFile(paths[i], p.Bytes(), 0o600); err != nil {
			return nil, err
		}
	}
	return paths, nil
}
