package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay/llama/gguf/gguftest"
)

// allowed is how much Read and Memory may allocate, in bytes, whatever a header
// says. It bounds all that they allocate, also what they give back.
const allowed = 32 << 20

// within fails where f allocates more than allowed, or takes long; under the race
// detector, which does both itself, it only runs f.
func within(t testing.TB, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	n := after.TotalAlloc - before.TotalAlloc
	t.Logf("%.1f MiB allocated in %v", float64(n)/(1<<20), took.Round(time.Millisecond))
	if raced {
		return
	}
	if n > allowed {
		t.Errorf("%d bytes were allocated", n)
	}
	if took > 10*time.Second { // it is below one, on a machine that has time
		t.Errorf("it took %v", took)
	}
}

// A number by which the parser would count or allocate is refused in each of
// the types that it takes for a number, the negative ones too: made unsigned,
// they are the largest.
func TestReadNumbersOfAnyType(t *testing.T) {
	keys := []string{"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
		"llama.attention.head_count_kv", "llama.attention.sliding_window", "llama.expert_count", "llama.ssm.inner_size", "llama.wkv.head_size",
		"llama.attention.key_length", "llama.vocab_size", "general.x.block_count", "tokenizer.attention.sliding_window", "clip.vision.image_size",
		"split.tensors.count"}
	for _, key := range keys {
		for _, v := range []any{int8(-1), int16(-1), int32(-1), int64(-1), int64(math.MinInt64), uint64(1 << 40), uint64(math.MaxUint64), int64(1 << 40), float32(1 << 40),
			float32(-1), 1e300, math.NaN(), math.Inf(1), []uint64{1 << 40}, []int8{1, -1}, []float32{1, 1 << 40}} {
			within(t, func() {
				if _, err := inMemory(models()[0].With(key, v).Bytes()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "which no model has") ||
					!strings.Contains(err.Error(), key) {
					t.Errorf("%s is %v: %v", key, v, err)
				}
			})
		}
	}
}

// A key is none of the parser's with a space or a case more.
func TestReadKeysExactly(t *testing.T) {
	for _, key := range []string{" llama.block_count", "llama.block_count ", "llama.block_count\n", "llama.block_count\u00a0", "Llama.block_count"} {
		within(t, func() {
			h, err := inMemory(models()[0].Without("llama.block_count").With(key, uint64(1<<39)).Bytes())
			if err == nil {
				_, err = h.Memory(Serving{Context: 256, Slots: 1})
			}
			if h.Layers != 0 || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %d layers, %v", key, h.Layers, err)
			}
		})
	}
}

// An architecture's name cannot make other keys of the model's.
func TestReadArchitectureNames(t *testing.T) {
	for _, arch := range []string{"", " llama", "llama\n", "a b", strings.Repeat("a", 65), "a\x00b", "é"} {
		if _, err := inMemory(models()[0].With("general.architecture", arch).Bytes()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "architecture") {
			t.Errorf("%q: %v", arch, err)
		}
	}
	for _, arch := range []string{"general", "tokenizer", "split"} {
		f := models()[0].With("general.architecture", arch).With(arch+".ssm.state_size", uint64(1<<39))
		if _, err := inMemory(f.Bytes()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", arch, err)
		}
	}
}

// Values of the wrong type are an error, if they are of interest.
func TestReadWrongTypes(t *testing.T) {
	for _, key := range []string{"general.architecture", "general.alignment", "general.file_type", "general.name", "general.type", "llama.block_count",
		"llama.embedding_length", "llama.attention.head_count", "llama.attention.causal", "llama.pooling_type", "llama.rope.scaling.type",
		"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.bos_token_id", "clip.has_vision_encoder", "adapter.type"} {
		for _, v := range values() {
			for _, f := range []gguftest.File{models()[0], models()[13], models()[16]} {
				h, err := inMemory(f.With(key, v).Bytes())
				if err == nil {
					_, err = h.Memory(Serving{Context: 256, Slots: 1})
				}
				if err != nil && !errors.Is(err, ErrInvalid) {
					t.Errorf("%s is %v: %v", key, v, err)
				}
			}
		}
	}
}

// Headers that claim a lot allocate little.
func TestReadClaims(t *testing.T) {
	const lot = uint64(1) << 40
	first := func(tensors, pairs uint64) *gguftest.Writer { return head(tensors, pairs) }
	array := func(key string, kind uint32, n uint64) *gguftest.Writer {
		return first(0, 1).Put(key, arr, kind, n)
	}
	tensor := func(values ...any) *gguftest.Writer { return first(1, 0).Put("t").Put(values...) }
	for name, w := range map[string]*gguftest.Writer{
		"tensors": first(lot, 0), "keys": first(0, lot), "a key": first(0, 1).Put(lot), "a text": first(0, 1).Put("a", str, lot),
		"the name of a tensor": first(1, 0).Put(lot), "dimensions": tensor(uint32(math.MaxUint32)), "a dimension": tensor(uint32(1), lot),
		"bytes":     array("a", gguftest.TypeUint8, lot),
		"texts":     array("tokenizer.ggml.tokens", str, lot),
		"layers":    array("llama.attention.head_count", gguftest.TypeUint8, lot),
		"arrays":    array("a", arr, lot),
		"one text":  array("a", str, 1).Put(lot),
		"parts":     first(0, 1).Put("split.count", gguftest.TypeUint64, lot),
		"alignment": first(0, 1).Put("general.alignment", gguftest.TypeUint64, lot),
		"blocks":    first(0, 1).Put("llama.block_count", gguftest.TypeUint64, lot),
		"an offset": tensor(uint32(1), uint64(32), uint32(0), lot),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			put(t, path, w.Bytes())
			sparse(t, path, 2<<40)
			within(t, func() {
				if _, err := Read(path); !errors.Is(err, ErrInvalid) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// sparse makes a file long, or skips the test.
func sparse(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("no sparse files of %d bytes here: %v", size, err)
	}
}

// The longest headers that there may be: what is kept of them is little, and
// they are read in no time that anybody notices.
func TestReadLongHeaders(t *testing.T) {
	start := func(tensors, more uint64) *gguftest.Writer {
		return head(tensors, 1+more).Put("general.architecture", str, "llama")
	}
	// holes writes pieces with that many zeros behind each: texts of length 0
	// in a list of them.
	holes := func(path string, zeros int64, pieces ...[]byte) {
		t.Helper()
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for _, p := range pieces {
			if _, err := f.WriteAt(p, at); err != nil {
				t.Fatal(err)
			}
			at += int64(len(p)) + zeros
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		sparse(t, path, at+1<<20)
	}
	list := func(key string, kind uint32, n uint64) []byte {
		return new(gguftest.Writer).Put(key, arr, kind, n).Bytes()
	}
	long := strings.Repeat("x", maxKey-8)
	for _, c := range []struct {
		name string
		make func(path string)
		text string // of the error; empty for none
	}{
		{"empty texts", func(path string) {
			const n = maxArray - 1000
			holes(path, 8*n, append(start(0, 2).Bytes(), list("tokenizer.ggml.tokens", str, n)...), list("tokenizer.ggml.merges", str, n))
		}, ""},
		{"one list of bytes", func(path string) {
			holes(path, maxArray, append(start(0, 1).Bytes(), list("a", gguftest.TypeUint8, maxArray)...))
		}, ""},
		{"long texts", func(path string) {
			pieces := [][]byte{start(0, 7).Bytes()}
			for i := range 7 {
				pieces = append(pieces, new(gguftest.Writer).Put(fmt.Sprint("t", i), str, uint64(maxString)).Bytes())
			}
			pieces[1] = append(pieces[0], pieces[1]...)
			holes(path, maxString, pieces[1:]...)
		}, ""},
		{"more than there may be", func(path string) {
			const n = maxArray
			holes(path, 8*n, append(start(0, 2).Bytes(), list("a", str, n)...), list("b", str, n))
		}, "longer than 256 MiB"},
		{"many long keys and texts", func(path string) {
			w := start(0, maxPairs-1)
			for i := range maxPairs - 1 {
				w.Put(fmt.Sprintf("%08d", i)+long, str, long)
			}
			put(t, path, w.Bytes())
		}, ""},
		{"many lists for each layer", func(path string) {
			w := start(0, maxPairs-1)
			for i := range maxPairs - 1 {
				w.Put(fmt.Sprintf("%d.head_count", i), arr, gguftest.TypeUint16, uint64(maxLayers), make([]uint16, maxLayers))
			}
			put(t, path, w.Bytes())
		}, "more values for each layer"},
		{"many tensors", func(path string) {
			w := start(maxTensors, 0)
			for i := range maxTensors {
				w.Put(fmt.Sprintf("blk.%d.attn_qkv.%020d.weight", i, i), uint32(4), uint64(1), uint64(1), uint64(1), uint64(1), uint32(0), uint64(32*i))
			}
			put(t, path, withData(w, 32*maxTensors))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			c.make(path)
			var h Header
			within(t, func() {
				var err error
				if h, err = Read(path); (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %v", err)
				}
			})
			if c.text == "" {
				within(t, func() {
					if _, err := h.Memory(Serving{Context: 256, Slots: 1}); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// What many parts have together is bounded as what one file has.
func TestReadManyParts(t *testing.T) {
	part := func(no int, text string, tensors, from int) gguftest.File {
		f := gguftest.File{}.With("split.no", uint16(no)).With("split.count", uint16(maxParts)).With("split.tensors.count", int32(maxTensors))
		if no == 0 {
			f = f.With("general.architecture", "llama")
		}
		if text != "" {
			f = f.With("a", text)
		}
		for i := range tensors {
			f.Tensors = append(f.Tensors, gguftest.Tensor{Name: fmt.Sprintf("t%d", from+i), Dims: []uint64{1}, Data: make([]byte, 4)})
		}
		return f
	}
	dir := t.TempDir()
	write := func(text string, tensors int) string {
		t.Helper()
		for i := range maxParts {
			put(t, filepath.Join(dir, gguftest.PartName("m", i, maxParts)), part(i, text, tensors, i*tensors).Bytes())
		}
		return filepath.Join(dir, gguftest.PartName("m", 0, maxParts))
	}
	path := write("", 16)
	within(t, func() {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "16384 tensors together, and they have 16000") {
			t.Errorf("got %v", err)
		}
	})
	path = write("", 17)
	within(t, func() {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "says that it has 17 tensors") {
			t.Errorf("got %v", err)
		}
	})
}

// Numbers that each are possible, and whose product is not, are no small need.
func TestMemoryDoesNotWrap(t *testing.T) {
	wide := models()[0].With("llama.block_count", uint32(maxLayers)).With("llama.embedding_length", uint32(1<<20)).
		With("llama.attention.head_count", uint32(1<<12)).With("llama.attention.head_count_kv", uint32(1<<12)).
		With("llama.attention.key_length", uint32(1<<16)).With("llama.attention.value_length", uint32(1<<16)).With("llama.context_length", uint32(math.MaxInt32))
	for name, f := range map[string]gguftest.File{
		"wide":  wide,
		"lists": wide.With("llama.attention.head_count_kv", []uint32{1 << 12, 1 << 12}),
		"recurrent": models()[9].With("rwkv7.block_count", uint32(maxLayers)).With("rwkv7.embedding_length", uint32(1<<20)).
			With("rwkv7.wkv.head_size", uint32(1<<16)).With("rwkv7.context_length", uint32(math.MaxInt32)),
		"state": models()[10].With("mamba.block_count", uint32(maxLayers)).With("mamba.embedding_length", uint32(1<<20)).
			With("mamba.ssm.inner_size", uint32(1<<20)).With("mamba.ssm.state_size", uint32(1<<13)).With("mamba.context_length", uint32(math.MaxInt32)),
	} {
		h, err := inMemory(f.Bytes())
		if err != nil {
			t.Fatal(name, err)
		}
		if m, err := h.Memory(Serving{Context: math.MaxInt32 / maxSlots, Slots: maxSlots}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "than any machine has") {
			t.Errorf("%s: %+v %v", name, m, err)
		}
		last := uint64(0)
		for ctx := 1; ctx < math.MaxInt32/maxSlots; ctx *= 2 {
			m, err := h.Memory(Serving{Context: ctx, Slots: maxSlots})
			if err != nil {
				break
			}
			if m.Total < last {
				t.Errorf("%s: %d tokens take %d bytes, and half of them %d", name, ctx, m.Total, last)
			}
			last = m.Total
		}
	}
	// The largest that there are, at the longest that anybody runs them, pass.
	real := models()[0].With("llama.block_count", uint32(126)).With("llama.embedding_length", uint32(16384)).With("llama.attention.head_count", uint32(128)).
		With("llama.attention.head_count_kv", uint32(8)).With("llama.feed_forward_length", uint32(53248)).With("llama.context_length", uint32(131072)).
		With("llama.vocab_size", uint32(128256))
	h, err := inMemory(real.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Memory(Serving{Context: 131072, Slots: 64})
	if want := uint64(2 * 126 * 8 * 128 * 2 * 131072 * 64); err != nil || m.KV != want {
		t.Errorf("%+v, not %d: %v", m, want, err)
	}
}

// A projector's numbers are bounded too.
func TestMemoryOfProjector(t *testing.T) {
	f := gguftest.Projector(128)
	h, err := inMemory(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.Memory(Serving{Context: 512, Slots: 1})
	if err != nil || h.Kind != KindProjector || m.KV != 0 || m.Weights < h.TensorBytes || m.Weights > h.TensorBytes+1<<16 || m.Compute > 64<<20 {
		t.Errorf("%s %+v: %v", h.Kind, m, err)
	}
	if other, err := h.Memory(Serving{Context: 4096, Slots: 8}); err != nil || other != m {
		t.Errorf("with more context %+v, not %+v: %v", other, m, err)
	}
	h, err = inMemory(f.With("clip.vision.image_size", uint32(1<<13)).With("clip.vision.patch_size", uint32(1)).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := h.Memory(Serving{Context: 512, Slots: 1}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "than any machine has") {
		t.Errorf("an image of 64 million patches: %+v %v", m, err)
	}
	for _, key := range []string{"clip.vision.patch_size", "clip.vision.projector.scale_factor"} {
		h, err = inMemory(f.With("clip.projector_type", "idefics3").With(key, uint32(0)).Bytes())
		if err == nil {
			_, err = h.Memory(Serving{Context: 512, Slots: 1})
		}
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is 0: %v", key, err)
		}
	}
}

// A length that only a 64-bit sum would hold is not skipped into the past.
func TestReadLengthsAtTheirLimits(t *testing.T) {
	for _, n := range []uint64{1<<63 - 1, 1 << 63, math.MaxUint64, math.MaxUint64 - 7} {
		data := model(1, func(m *gguftest.Writer) { m.Put("a", arr, str, uint64(2), "x", n) })
		if _, err := inMemory(data); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d: %v", n, err)
		}
		for at := 8; at < 24; at += 8 { // the counts of tensors and keys
			data := model(0, nil)
			binary.LittleEndian.PutUint64(data[at:], n)
			if _, err := inMemory(data); !errors.Is(err, ErrInvalid) {
				t.Errorf("%d at %d: %v", n, at, err)
			}
		}
	}
}
