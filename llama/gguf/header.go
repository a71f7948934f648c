package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"

	parser "github.com/gpustack/gguf-parser-go"
)

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
	// KindProjector is no model by itself: it turns images or sound into what
	// the model beside it takes.
	KindProjector Kind = "projector"
	// KindPart is any other file that is no model by itself: an adapter, a
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
	// Params is the number of parameters of all parts together.
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
	// Tools: the chat template, or the one that is for tools, has a place for them.
	// Without one the engine leaves a request's tools out, and the model never sees them.
	Tools bool
	// Pools: the file says how one vector is made of a text's. Without that an engine
	// that is not told makes one for each token.
	Pools bool
	// Images and Audio are what a projector reads.
	Images, Audio bool
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
	data []data // of each file, in order
}

// Read reads the header of the GGUF file at path; of a split model, path is any
// of its parts and all are read. Each file is checked to be as long as its
// tensors say, and the parts to be those of one model. The error is ErrMissing
// where a file cannot be read, and else ErrInvalid with a sentence about what is
// wrong; both name the file.
//
// Whatever the files hold, Read is done after at most 256 MiB of headers and
// takes at most 32 MiB of memory.
func Read(path string) (Header, error) { return read(path, walkFile) }

// read is Read with another source of files.
func read(path string, walkOne func(path string, b *budget) (*walk, error)) (Header, error) {
	s, err := walkSet(path, walkOne)
	if err != nil {
		return Header{}, err
	}
	h, err := s.describe()
	if err != nil {
		return Header{}, fmt.Errorf("%w: %s: %w", ErrInvalid, s.paths[0], err)
	}
	if len(s.paths) > 1 {
		h.Parts = s.paths
	}
	return h, nil
}

// walkFile checks one file.
func walkFile(path string, b *budget) (*walk, error) {
	info, err := os.Stat(path) // to open a pipe is to wait for its other end
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrInvalid, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	w, err := walkHeader(f, info.Size(), b)
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &pathErr): // of the disk, not of the content
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return w, nil
}

// archPattern is how architectures are called.
var archPattern = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)

// describe makes a header of what was found in the files of a model. All keys
// of it are in the first, which need not have tensors.
func (s set) describe() (Header, error) {
	w := s.walks[0]
	h := Header{Name: oneLine(w.textOf("general.name"), 120), Arch: w.textOf("general.architecture")}
	if !archPattern.MatchString(h.Arch) {
		return Header{}, errors.New("it does not say its architecture")
	}
	h.Layers, _ = w.number(h.Arch + ".block_count")
	h.ContextTrain, _ = w.number(h.Arch + ".context_length")
	h.EmbeddingLength, _ = w.number(h.Arch + ".embedding_length")
	if list, ok := w.get("tokenizer.ggml.tokens").(parser.GGUFMetadataKVArrayValue); ok {
		h.Vocab = list.Len
	}
	if h.Vocab == 0 {
		h.Vocab, _ = w.number(h.Arch + ".vocab_size")
	}
	_, h.HasChatTemplate = w.get(templateKey).(string)
	h.Tools = w.tools
	pooling, _ := w.number(h.Arch + ".pooling_type")
	h.Pools = pooling > 0
	h.Images, _ = w.get("clip.has_vision_encoder").(bool)
	h.Audio, _ = w.get("clip.has_audio_encoder").(bool)
	pairs := slices.Clone(w.pairs)
	if remembers(h.Arch) {
		// The parser takes models that pool the last token, or look ahead, for ones
		// that keep no keys and values. The engine goes by the architecture.
		pairs = slices.DeleteFunc(pairs, func(p parser.GGUFMetadataKV) bool {
			return p.Key == h.Arch+".pooling_type" || p.Key == h.Arch+".attention.causal"
		})
	}
	file := &parser.GGUFFile{Header: parser.GGUFHeader{
		Magic: parser.GGUFMagicGGUFLe, Version: parser.GGUFVersionV3, MetadataKVCount: uint64(len(pairs)), MetadataKV: pairs,
	}}
	for _, w := range s.walks {
		h.Params += w.elements
		h.FileBytes += w.size
		h.TensorBytes += w.bytes
		file.TensorInfos = append(file.TensorInfos, w.tensors...)
		file.ModelSize += parser.GGUFBytesScalar(w.size - w.start)
		h.data = append(h.data, data{w.start, len(file.TensorInfos)})
	}
	file.Header.TensorCount = uint64(len(file.TensorInfos))
	file.Size, file.ModelParameters = parser.GGUFBytesScalar(h.FileBytes), parser.GGUFParametersScalar(h.Params)
	h.Kind = w.kind(h.Arch, s.tensors)
	h.file = file
	return h, guarded(func() error {
		h.Quantization = strings.TrimPrefix(file.Metadata().FileType.String(), "MOSTLY_")
		return nil
	})
}

// kind guesses what a model is for.
func (w *walk) kind(arch string, tensors map[string]bool) Kind {
	// How a model pools its outputs, as llama.cpp numbers it: 0 not at all, 1
	// mean, 2 the first token, 3 the last, 4 a score.
	pooling, pools := w.number(arch + ".pooling_type")
	causal, said := w.get(arch + ".attention.causal").(bool)
	switch t := w.textOf("general.type"); {
	case t == "mmproj", arch == "clip":
		return KindProjector
	case t != "" && t != "model", arch == "controlvector", len(tensors) == 0:
		return KindPart
	case pools && pooling == 4, tensors["cls.weight"], tensors["cls.output.weight"]:
		return KindRerank
	case pools && pooling > 0, said && !causal, strings.Contains(arch, "bert"), arch == "gemma-embedding", arch == "t5encoder":
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

// number is a number of the model's architecture.
func (h Header) number(key string) (uint64, bool) {
	v, ok := h.file.Header.MetadataKV.Get(h.Arch + key)
	if !ok {
		return 0, false
	}
	return whole(v.Value)
}
