package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"
)

// Bounds on a header, all far above those of real models: the largest known
// have some 2,000 tensors, 130 layers, 260,000 pieces in the vocabulary and 20
// MiB of header.
const (
	maxHeader    = 256 << 20 // bytes
	maxPairs     = 1 << 16   // keys with values
	maxTensors   = 1 << 16
	maxKey       = 1 << 10 // bytes
	maxString    = 16 << 20
	maxArray     = 1 << 24 // elements
	maxLayers    = 4096    // and elements of arrays with one for each
	maxCount     = 1 << 16 // of heads, experts and the like
	maxNumber    = 1 << 40 // any whole number that says something of a model
	maxName      = 64      // bytes of a tensor's name: GGML_MAX_NAME
	maxAlignment = 1 << 16
)

// The types of values.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// sizeOf is the size of a value of fixed size in bytes; 0 for others.
func sizeOf(kind uint32) int {
	switch kind {
	case typeUint8, typeInt8, typeBool:
		return 1
	case typeUint16, typeInt16:
		return 2
	case typeUint32, typeInt32, typeFloat32:
		return 4
	case typeUint64, typeInt64, typeFloat64:
		return 8
	}
	return 0
}

// A walk reads a header once, without keeping more than it needs.
type walk struct {
	r       *bufio.Reader
	size    uint64 // of the file, in bytes
	at      uint64 // bytes read
	numbers map[string]uint64
	texts   map[string]string
	lengths map[string]uint64 // of arrays
	tensors map[string]bool
	// elements and bytes of all tensors; end is where the last one ends,
	// counted from the start of the data.
	elements, bytes, end uint64
	start                uint64 // of the data
}

// errEnd is the end of the file inside of the header.
var errEnd = errors.New("it is cut short inside its header")

// walkHeader reads the header of a file of that size.
func walkHeader(r io.Reader, size int64) (*walk, error) {
	w := &walk{
		r: bufio.NewReaderSize(r, 1<<18), size: uint64(max(0, size)),
		numbers: map[string]uint64{}, texts: map[string]string{}, lengths: map[string]uint64{}, tensors: map[string]bool{},
	}
	return w, w.header()
}

func (w *walk) header() error {
	var magic [4]byte
	if err := w.read(magic[:]); err != nil || string(magic[:]) != "GGUF" {
		if w.size < 24 {
			return fmt.Errorf("it has %d bytes, less than the smallest GGUF file", w.size)
		}
		return errors.New("it does not begin as a GGUF file does")
	}
	version, err := w.uint32()
	if err != nil {
		return err
	}
	switch {
	case version == 1:
		return errors.New("it has version 1 of the format, which llama.cpp no longer reads: convert it again")
	case version&0xffff == 0:
		return errors.New("it was written for machines with the other byte order")
	case version > 3:
		return fmt.Errorf("it has version %d of the format; known are 2 and 3", version)
	}
	tensors, err := w.count("tensors", maxTensors)
	if err != nil {
		return err
	}
	pairs, err := w.count("keys", maxPairs)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, min(pairs, 256))
	for range pairs {
		key, err := w.text(maxKey)
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("the key %q is there twice", shown(key))
		}
		seen[key] = true
		if err := w.value(key); err != nil {
			return err
		}
	}
	align, err := w.alignment()
	if err != nil {
		return err
	}
	for range tensors {
		if err := w.tensor(align); err != nil {
			return err
		}
	}
	w.start = padded(w.at, align)
	if w.end > w.size || w.start > w.size-w.end {
		return fmt.Errorf("it is cut short: its header promises %s, and it has %s", inGiB(w.start+w.end), inGiB(w.size))
	}
	return nil
}

// value reads the value of a key, and keeps what is of interest.
func (w *walk) value(key string) error {
	kind, err := w.uint32()
	if err != nil {
		return err
	}
	switch kind {
	case typeString:
		text, err := w.text(maxString)
		if err != nil {
			return err
		}
		if len(text) > maxKey {
			text = text[:maxKey] // of interest is only that it is there
		}
		w.texts[key] = text
		return nil
	case typeArray:
		return w.array(key)
	}
	n := sizeOf(kind)
	if n == 0 {
		return fmt.Errorf("the key %q has a value of unknown type %d", shown(key), kind)
	}
	var b [8]byte
	if err := w.read(b[:n]); err != nil {
		return err
	}
	v := binary.LittleEndian.Uint64(b[:])
	switch kind {
	case typeFloat32, typeFloat64:
		return nil
	case typeInt8, typeInt16, typeInt32, typeInt64:
		shift := 64 - 8*n
		if s := int64(v<<shift) >> shift; s < 0 {
			return nil // not a size of anything
		}
	}
	if err := plausible(key, v); err != nil {
		return err
	}
	w.numbers[key] = v
	return nil
}

// plausible refuses numbers that no model has, by which the parser counts or
// allocates.
func plausible(key string, v uint64) error {
	limit := uint64(maxNumber)
	switch {
	case key == "split.tensors.count":
		limit = maxTensors
	case key == "split.count" || key == "split.no":
		limit = maxParts
	case strings.HasSuffix(key, ".block_count"):
		limit = maxLayers
	case strings.HasSuffix(key, "_count"):
		limit = maxCount
	case strings.HasSuffix(key, "_length"):
		limit = math.MaxInt32
	case strings.HasPrefix(key, "general."), strings.HasPrefix(key, "tokenizer."):
		return nil
	}
	if v > limit {
		return fmt.Errorf("it says that %q is %d, which no model has", shown(key), v)
	}
	return nil
}

func (w *walk) array(key string) error {
	kind, err := w.uint32()
	if err != nil {
		return err
	}
	limit := uint64(maxArray)
	// The parser reads these into memory, one element for each layer.
	for _, suffix := range []string{".feed_forward_length", ".attention.head_count", ".attention.head_count_kv", ".attention.sliding_window_pattern"} {
		if strings.HasSuffix(key, suffix) {
			limit = maxLayers
		}
	}
	n, err := w.count(fmt.Sprintf("elements in %q", shown(key)), limit)
	if err != nil {
		return err
	}
	w.lengths[key] = n
	if size := sizeOf(kind); size > 0 {
		return w.skip(n * uint64(size))
	}
	if kind != typeString {
		return fmt.Errorf("the key %q has an array of unknown type %d", shown(key), kind)
	}
	for range n {
		length, err := w.uint64()
		if err != nil {
			return err
		}
		if length > maxString {
			return fmt.Errorf("it has a text of %d bytes in %q", length, shown(key))
		}
		if err := w.skip(length); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) alignment() (uint64, error) {
	align, ok := w.numbers["general.alignment"]
	if !ok {
		return 32, nil
	}
	if align < 8 || align > maxAlignment || bits.OnesCount64(align) != 1 {
		return 0, fmt.Errorf("it says that its data is aligned to %d bytes", align)
	}
	return align, nil
}

// tensor reads one entry of the table of tensors.
func (w *walk) tensor(align uint64) error {
	name, err := w.text(maxName)
	if err != nil {
		return err
	}
	if w.tensors[name] {
		return fmt.Errorf("the tensor %q is there twice", shown(name))
	}
	w.tensors[name] = true
	dims, err := w.uint32()
	if err != nil {
		return err
	}
	if dims < 1 || dims > parser.GGMLMaxDims {
		return fmt.Errorf("the tensor %q has %d dimensions", shown(name), dims)
	}
	elements, row := uint64(1), uint64(0)
	for i := range dims {
		d, err := w.uint64()
		if err != nil {
			return err
		}
		if i == 0 {
			row = d
		}
		hi, lo := bits.Mul64(elements, d)
		if d == 0 || hi != 0 || lo > math.MaxInt64 {
			return fmt.Errorf("the tensor %q has an impossible shape", shown(name))
		}
		elements = lo
	}
	kind, err := w.uint32()
	if err != nil {
		return err
	}
	trait, ok := parser.GGMLType(kind).Trait()
	if !ok || trait.BlockSize == 0 || trait.TypeSize == 0 {
		return fmt.Errorf("the tensor %q is of type %d, which this relay does not know", shown(name), kind)
	}
	if row%trait.BlockSize != 0 {
		return fmt.Errorf("the tensor %q has rows of %d elements, which its type does not allow", shown(name), row)
	}
	hi, size := bits.Mul64(elements/trait.BlockSize, trait.TypeSize)
	if hi != 0 || size > math.MaxInt64-w.end-align || elements > math.MaxInt64-w.elements {
		return fmt.Errorf("the tensor %q is impossibly large", shown(name))
	}
	offset, err := w.uint64()
	if err != nil {
		return err
	}
	if offset != padded(w.end, align) { // llama.cpp takes no gaps either
		return fmt.Errorf("the tensor %q is not where the ones before it end", shown(name))
	}
	w.end = offset + size
	w.elements += elements
	w.bytes += size
	return nil
}

func padded(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// read fills b. The end of the file is errEnd.
func (w *walk) read(b []byte) error {
	if w.at += uint64(len(b)); w.at > maxHeader {
		return fmt.Errorf("its header is longer than %d MiB", maxHeader>>20)
	}
	if _, err := io.ReadFull(w.r, b); err != nil {
		return ended(err)
	}
	return nil
}

func (w *walk) skip(n uint64) error {
	if w.at += n; w.at > maxHeader || n > maxHeader {
		return fmt.Errorf("its header is longer than %d MiB", maxHeader>>20)
	}
	if _, err := w.r.Discard(int(n)); err != nil {
		return ended(err)
	}
	return nil
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnd
	}
	return err
}

func (w *walk) uint32() (uint32, error) {
	var b [4]byte
	err := w.read(b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

func (w *walk) uint64() (uint64, error) {
	var b [8]byte
	err := w.read(b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// count reads how many of something there are.
func (w *walk) count(what string, limit uint64) (uint64, error) {
	n, err := w.uint64()
	if err == nil && n > limit {
		err = fmt.Errorf("it says that it has %d %s", n, what)
	}
	return n, err
}

// text reads a string of at most limit bytes.
func (w *walk) text(limit uint64) (string, error) {
	n, err := w.uint64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", fmt.Errorf("it has a name or text of %d bytes", n)
	}
	if n > w.size-min(w.size, w.at) {
		return "", errEnd
	}
	b := make([]byte, n)
	err = w.read(b)
	return string(b), err
}

// shown is a text out of a file, short and harmless for a message.
func shown(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strings.ToValidUTF8(s, "?") // and %q does the rest
}

// inGiB is a number of bytes for people.
func inGiB(n uint64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
