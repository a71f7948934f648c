package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"
)

// A walk reads the header of one file once, and keeps what is of interest.
type walk struct {
	r      *bufio.Reader
	size   uint64 // of the file, in bytes
	at     uint64 // bytes read
	budget *budget

	pairs []parser.GGUFMetadataKV
	// index says where in pairs a key is; -1 for keys that are of no interest.
	index   map[string]int
	tensors []parser.GGUFTensorInfo
	// elements and bytes of all tensors; end is where the last one ends,
	// counted from the start of the data.
	elements, bytes, end uint64
	start                uint64 // of the data
	tools                bool   // A chat template has a place for them.
}

// A budget is what all files of one model share: what they may still have, the
// names of the tensors that they have, and a buffer.
type budget struct {
	r               *bufio.Reader
	header, data    uint64 // bytes
	pairs, elements int
	templates       int // bytes
	tensors         map[string]bool
}

func newBudget() *budget {
	return &budget{r: bufio.NewReaderSize(nil, 1<<16), header: maxHeader, data: maxData, pairs: maxPairs, elements: maxElements, templates: maxTemplates, tensors: map[string]bool{}}
}

// errEnd is the end of the file inside of the header.
var errEnd = errors.New("it is cut short inside its header")

// walkHeader reads the header of a file of that size.
func walkHeader(r io.Reader, size int64, b *budget) (*walk, error) {
	b.r.Reset(r)
	w := &walk{r: b.r, size: uint64(max(0, size)), budget: b, index: map[string]int{}}
	return w, w.header()
}

func (w *walk) header() error {
	magic, err := w.read(4)
	switch {
	case w.size < 24:
		return fmt.Errorf("it has %d bytes, less than the smallest GGUF file", w.size)
	case err != nil:
		return err
	case string(magic) != "GGUF":
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
	tensors, err := w.count("tensors", uint64(maxTensors-len(w.budget.tensors)))
	if err != nil {
		return err
	}
	pairs, err := w.count("keys", uint64(w.budget.pairs))
	if err != nil {
		return err
	}
	w.budget.pairs -= int(pairs)
	for range pairs {
		key, err := w.text(maxKey)
		switch _, twice := w.index[key]; {
		case err != nil:
			return err
		case key == "":
			return errors.New("it has a key without a name")
		case twice:
			return fmt.Errorf("the key %q is there twice", shown(key))
		}
		w.index[key] = -1
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
	// Nothing is aligned where nothing follows.
	if w.start = w.at; tensors > 0 {
		w.start = padded(w.at, align)
	}
	if w.end > w.size || w.start > w.size-w.end {
		return fmt.Errorf("it is cut short: its header promises %s, and it has %s", inGiB(w.start+w.end), inGiB(w.size))
	}
	return nil
}

// next passes over n bytes of the header, if there may be so many.
func (w *walk) next(n uint64) error {
	if n > w.budget.header {
		return fmt.Errorf("its header, or that of its parts together, is longer than %d MiB", maxHeader>>20)
	}
	if n > w.size-min(w.size, w.at) {
		return errEnd
	}
	w.budget.header -= n
	w.at += n
	return nil
}

// read reads up to maxText bytes, which are good until the next call.
func (w *walk) read(n int) ([]byte, error) {
	if err := w.next(uint64(n)); err != nil {
		return nil, err
	}
	b, err := w.r.Peek(n)
	if err != nil {
		return nil, ended(err)
	}
	_, err = w.r.Discard(n)
	return b, err
}

func (w *walk) skip(n uint64) error {
	if n == 0 {
		return nil
	}
	if err := w.next(n); err != nil {
		return err
	}
	_, err := w.r.Discard(int(n))
	return ended(err)
}

// ended is err, or errEnd where the file ended although it was longer before.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnd
	}
	return err
}

func (w *walk) uint32() (uint32, error) {
	b, err := w.read(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (w *walk) uint64() (uint64, error) {
	b, err := w.read(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// count reads how many of something there are.
func (w *walk) count(what string, limit uint64) (uint64, error) {
	n, err := w.uint64()
	if err == nil && n > limit {
		err = fmt.Errorf("it says that it has %d %s", n, what)
	}
	return n, err
}

// text reads a string of at most limit bytes, and keeps its beginning.
func (w *walk) text(limit uint64) (string, error) {
	n, err := w.uint64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", fmt.Errorf("it has a name or text of %d bytes", n)
	}
	kept := min(n, maxText)
	b, err := w.read(int(kept))
	if err != nil {
		return "", err
	}
	text := string(b)
	return text, w.skip(n - kept)
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
