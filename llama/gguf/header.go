package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	parser "github.com/gpustack/gguf-parser-go"
)

// maxParts is how many files a split model may have.
const maxParts = 1000

// Kind is what a model is for, as far as its header tells.
type Kind string

// The kinds.
const (
	// KindChat generates text; also models without a chat template.
	KindChat Kind = "chat"
	// KindEmbed turns text into vectors.
	KindEmbed Kind = "embed"
	// KindRerank scores documents against a query.
	KindRerank Kind = "rerank"
	// KindPart is no model by itself: a projector for images, an adapter, a
	// matrix of importance, a vocabulary.
	KindPart Kind = "part"
)

// Header is what a GGUF file says about its model. Of a split model it is about
// all parts together.
type Header struct {
	// Name is general.name, as one line; it may be empty.
	Name string
	// Arch is general.architecture, such as "llama".
	Arch string
	Kind Kind
	// Params is the number of parameters.
	Params uint64
	// Layers is the number of transformer blocks.
	Layers uint64
	// ContextTrain is the context that the model was trained for, in tokens; 0
	// where the file does not say.
	ContextTrain uint64
	// EmbeddingLength is the width of the model.
	EmbeddingLength uint64
	// Vocab is the number of tokens in the vocabulary.
	Vocab uint64
	// HasChatTemplate says whether the file carries a chat template.
	HasChatTemplate bool
	// Quantization names the mix of tensor types, such as "Q4_K_M".
	Quantization string
	// FileBytes is the length of the file, or of all parts.
	FileBytes uint64
	// TensorBytes is the length of its tensors.
	TensorBytes uint64
	// Parts are the paths of all parts of a split model, in order; nil where
	// the model is one file.
	Parts []string

	file *parser.GGUFFile
}

// Read reads the header of the GGUF file at path; of a split model, path is any
// of its parts and all are read. The file is checked to be as long as its
// tensors say. The error is ErrMissing where a file cannot be read, and else
// ErrInvalid with a sentence about what is wrong.
func Read(path string) (Header, error) {
	parts, err := partsOf(path)
	if err != nil {
		return Header{}, err
	}
	var h Header
	for i, part := range parts {
		w, err := walkFile(part)
		if err != nil {
			return Header{}, err
		}
		if i == 0 {
			h.describe(w)
		}
		if n, ok := w.numbers["split.count"]; ok && n > 1 && n != uint64(len(parts)) {
			return Header{}, fmt.Errorf("%w: %s is one of %d parts of a split model, of which %d are named as llama.cpp wants them", ErrInvalid, part, n, len(parts))
		}
		h.Params += w.elements
		h.FileBytes += w.size
		h.TensorBytes += w.bytes
	}
	if h.Arch == "" {
		return Header{}, fmt.Errorf("%w: %s: it does not say its architecture", ErrInvalid, path)
	}
	if h.Params == 0 && h.Kind != KindPart {
		h.Kind = KindPart // a vocabulary
	}
	if len(parts) > 1 {
		h.Parts = parts
	}
	err = guarded(func() error {
		file, err := parser.ParseGGUFFile(parts[0], parser.SkipLargeMetadata())
		if err == nil {
			h.file = file
			h.Quantization = strings.TrimPrefix(file.Metadata().FileType.String(), "MOSTLY_")
		}
		return err
	})
	if err != nil {
		return Header{}, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return h, nil
}

// partsOf lists the files of the model that path belongs to.
func partsOf(path string) ([]string, error) {
	dir, name := filepath.Split(path)
	if !parser.IsShardGGUFFilename(name) {
		return []string{path}, nil
	}
	var names []string
	err := guarded(func() error {
		names = parser.CompleteShardGGUFFilename(name)
		return nil
	})
	if err != nil || len(names) > maxParts {
		return nil, fmt.Errorf("%w: %s: its name says that it is one of too many parts", ErrInvalid, path)
	}
	if len(names) == 0 { // part 0, say
		return []string{path}, nil
	}
	for i := range names {
		names[i] = dir + names[i]
	}
	return names, nil
}

// walkFile checks one file.
func walkFile(path string) (*walk, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrInvalid, path)
	}
	w, err := walkHeader(f, info.Size())
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &pathErr): // of the disk, not of the content
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return w, nil
}

// describe takes over what the walk through the first part found.
func (h *Header) describe(w *walk) {
	h.Name = oneLine(w.texts["general.name"], 120)
	h.Arch = oneLine(w.texts["general.architecture"], 60)
	h.Layers = w.numbers[h.Arch+".block_count"]
	h.ContextTrain = w.numbers[h.Arch+".context_length"]
	h.EmbeddingLength = w.numbers[h.Arch+".embedding_length"]
	h.Vocab = w.lengths["tokenizer.ggml.tokens"]
	if h.Vocab == 0 {
		h.Vocab = w.numbers[h.Arch+".vocab_size"]
	}
	_, h.HasChatTemplate = w.texts["tokenizer.chat_template"]
	h.Kind = w.kind(h.Arch)
}

// kind guesses what a model is for.
func (w *walk) kind(arch string) Kind {
	// How a model pools its outputs, as llama.cpp numbers it: 0 not at all, 1
	// mean, 2 the first token, 3 the last, 4 a score.
	pooling, pools := w.numbers[arch+".pooling_type"]
	causal, said := w.numbers[arch+".attention.causal"]
	switch t := w.texts["general.type"]; {
	case t != "" && t != "model", arch == "clip", arch == "controlvector":
		return KindPart
	case pools && pooling == 4, w.tensors["cls.weight"], w.tensors["cls.output.weight"]:
		return KindRerank
	case pools && pooling > 0, said && causal == 0, strings.Contains(arch, "bert"), arch == "gemma-embedding", arch == "t5encoder":
		return KindEmbed
	}
	return KindChat
}

// oneLine is a text out of a file without anything that could steer a terminal.
func oneLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(strings.TrimSpace(s)); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return strings.TrimSpace(s)
}

// guarded turns a panic of the parser into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up on it: %v", r)
		}
	}()
	return f()
}
