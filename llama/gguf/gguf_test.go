package gguf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

const (
	u32 = gguftest.TypeUint32
	str = gguftest.TypeString
	arr = gguftest.TypeArray
)

// head begins a file with so many tensors and keys.
func head(tensors, keys uint64) *gguftest.Writer {
	m := new(gguftest.Writer)
	m.WriteString("GGUF")
	return m.Put(uint32(3), tensors, keys)
}

// model is a file with one tensor of 8 numbers and the keys of a model, to
// which more can be added.
func model(more int, pairs func(m *gguftest.Writer)) []byte {
	m := head(1, uint64(6+more))
	m.Put("general.architecture", str, "llama").
		Put("llama.block_count", u32, uint32(2)).
		Put("llama.context_length", u32, uint32(128)).
		Put("llama.embedding_length", u32, uint32(8)).
		Put("llama.attention.head_count", u32, uint32(2)).
		Put("general.name", str, "tiny\x1b[31m\n one ")
	if pairs != nil {
		pairs(m)
	}
	m.Put("output.weight", uint32(1), uint64(8), uint32(0), uint64(0))
	return withData(m, 32)
}

// withData adds the padding and the tensor's data.
func withData(m *gguftest.Writer, n int) []byte {
	m.Pad(32).Write(make([]byte, n))
	return m.Bytes()
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadDemo(t *testing.T) {
	path, err := demo.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	h.file = nil
	want := Header{
		Name: "relay-tiny", Arch: "llama", Kind: KindChat, Params: 870016, Layers: 6, ContextTrain: 2048, EmbeddingLength: 128,
		Vocab: 1024, HasChatTemplate: true, Quantization: "F16", FileBytes: 1770048, TensorBytes: 1743360,
	}
	if !equal(h, want) {
		t.Errorf("got  %+v\nwant %+v", h, want)
	}
}

func equal(a, b Header) bool {
	ok := slices.Equal(a.Parts, b.Parts)
	a.Parts, b.Parts = nil, nil
	return ok && a.Name == b.Name && a.Arch == b.Arch && a.Kind == b.Kind && a.Params == b.Params && a.Layers == b.Layers &&
		a.ContextTrain == b.ContextTrain && a.EmbeddingLength == b.EmbeddingLength && a.Vocab == b.Vocab &&
		a.HasChatTemplate == b.HasChatTemplate && a.Tools == b.Tools && a.Images == b.Images && a.Audio == b.Audio && a.Quantization == b.Quantization && a.FileBytes == b.FileBytes && a.TensorBytes == b.TensorBytes
}

// The cache is 2 (keys and values) × layers × tokens × width of keys × 2 bytes.
func TestMemory(t *testing.T) {
	path, err := demo.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ctx, slots int }{{256, 1}, {512, 2}, {2048, 4}} {
		m, err := h.Memory(Serving{Context: c.ctx, Slots: c.slots})
		if err != nil {
			t.Fatal(err)
		}
		if want := uint64(2 * 6 * c.ctx * c.slots * 64 * 2); m.KV != want {
			t.Errorf("%+v: KV is %d, not %d", c, m.KV, want)
		}
		if m.Weights < h.TensorBytes || m.Weights > 2*h.FileBytes || m.Compute < processBytes || m.Compute > 128<<20 || m.Total != m.Weights+m.KV+m.Compute {
			t.Errorf("%+v: %+v", c, m)
		}
	}
	for _, c := range []struct{ ctx, slots int }{{0, 1}, {1, 0}, {-1, -1}, {1 << 30, 4}} {
		if m, err := h.Memory(Serving{Context: c.ctx, Slots: c.slots}); err == nil {
			t.Errorf("%+v: %+v", c, m)
		}
	}
	if _, err := (Header{}).Memory(Serving{Context: 1, Slots: 1}); err == nil {
		t.Error("no file, and yet an estimate")
	}
}

func TestReadSmall(t *testing.T) {
	h, err := Read(write(t, "m.gguf", model(0, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if h.Name != "tiny [31m  one" || h.Params != 8 || h.Layers != 2 || h.HasChatTemplate || h.TensorBytes != 32 {
		t.Errorf("%+v", h)
	}
}

func TestKind(t *testing.T) {
	for _, c := range []struct {
		pairs int
		add   func(*gguftest.Writer)
		want  Kind
		pools bool
	}{
		{0, nil, KindChat, false},
		{1, func(m *gguftest.Writer) { m.Put("llama.pooling_type", u32, uint32(0)) }, KindChat, false},
		{1, func(m *gguftest.Writer) { m.Put("llama.pooling_type", u32, uint32(3)) }, KindEmbed, true},
		{1, func(m *gguftest.Writer) { m.Put("llama.pooling_type", u32, uint32(4)) }, KindRerank, true},
		{1, func(m *gguftest.Writer) { m.Put("llama.attention.causal", uint32(typeBool), false) }, KindEmbed, false},
		{1, func(m *gguftest.Writer) { m.Put("llama.attention.causal", uint32(typeBool), true) }, KindChat, false},
		{1, func(m *gguftest.Writer) { m.Put("general.type", str, "model") }, KindChat, false},
		{1, func(m *gguftest.Writer) { m.Put("general.type", str, "adapter") }, KindPart, false},
		{1, func(m *gguftest.Writer) { m.Put("general.type", str, "mmproj") }, KindProjector, false},
	} {
		path := write(t, "m.gguf", model(c.pairs, c.add))
		h, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != c.want {
			t.Errorf("%s, not %s", h.Kind, c.want)
		}
		if h.Pools != c.pools {
			t.Errorf("%s: pools %v", h.Kind, h.Pools)
		}
	}
}

// Files that are no models, or lie: each gets a sentence that says why.
func TestReadBad(t *testing.T) {
	good := model(0, nil)
	pair := func(add func(*gguftest.Writer)) []byte { return model(1, add) }
	tensor := func(values ...any) []byte {
		return withData(head(1, 1).Put("general.architecture", str, "llama").Put(values...), 64)
	}
	for _, c := range []struct {
		name string
		data []byte
		text string
	}{
		{"empty", nil, "0 bytes"},
		{"text", []byte(strings.Repeat("this is not a model ", 10)), "does not begin"},
		{"cut in its head", good[:3], "less than the smallest"},
		{"cut in its counts", good[:20], "less than the smallest"},
		{"cut in its keys", good[:100], "cut short inside its header"},
		{"cut in its data", good[:len(good)-1], "cut short: its header promises"},
		{"version 1", append([]byte("GGUF\x01\x00\x00\x00"), make([]byte, 32)...), "version 1"},
		{"version 4", append([]byte("GGUF\x04\x00\x00\x00"), make([]byte, 32)...), "version 4"},
		{"big-endian", append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 32)...), "other byte order"},
		{"too many tensors", withData(head(1<<40, 0), 64), "1099511627776 tensors"},
		{"too many keys", withData(head(0, 1<<40), 64), "1099511627776 keys"},
		{"key of no end", withData(head(0, 1).Put(uint64(1<<40)), 64), "a name or text of"},
		{"text of no end", pair(func(m *gguftest.Writer) { m.Put("a", str, uint64(1<<40)) }), "a name or text of"},
		{"text past the end", pair(func(m *gguftest.Writer) { m.Put("a", str, uint64(1<<20)) }), "cut short inside"},
		{"a key twice", pair(func(m *gguftest.Writer) { m.Put("general.name", str, "x") }), "twice"},
		{"unknown type", pair(func(m *gguftest.Writer) { m.Put("a", uint32(13), uint64(0)) }), "unknown type 13"},
		{"array of arrays", pair(func(m *gguftest.Writer) { m.Put("a", arr, arr, uint64(1), arr, uint64(1)) }), "array of unknown type"},
		{"array of no end", pair(func(m *gguftest.Writer) { m.Put("a", arr, u32, uint64(1<<60)) }), "elements in"},
		{"array of long texts", pair(func(m *gguftest.Writer) { m.Put("a", arr, str, uint64(1), uint64(1<<40)) }), "a text of"},
		{"layers of no end", pair(func(m *gguftest.Writer) { m.Put("x.attention.head_count_kv", arr, u32, uint64(1<<20)) }), "elements in"},
		{"too many blocks", pair(func(m *gguftest.Writer) { m.Put("x.block_count", u32, uint32(1<<31)) }), "which no model has"},
		{"too many parts", pair(func(m *gguftest.Writer) { m.Put("split.tensors.count", uint32(typeInt32), int32(1<<30)) }), "which no model has"},
		{"context of no end", pair(func(m *gguftest.Writer) { m.Put("x.context_length", uint32(typeUint64), uint64(1<<63)) }), "which no model has"},
		{"alignment 0", pair(func(m *gguftest.Writer) { m.Put("general.alignment", u32, uint32(0)) }), "aligned to 0"},
		{"alignment 33", pair(func(m *gguftest.Writer) { m.Put("general.alignment", u32, uint32(33)) }), "aligned to 33"},
		{"no architecture", withData(head(0, 0), 64), "its architecture"},
		{"architecture of the wrong type", withData(head(0, 1).Put("general.architecture", u32, uint32(1)), 64), "its architecture"},
		{"name of the wrong type", withData(head(0, 2).Put("general.architecture", str, "llama").Put("general.file_type", str, "x"), 64), "general.file_type"},
		{"no dimensions", tensor("t", uint32(0), uint32(0), uint64(0)), "0 dimensions"},
		{"9 dimensions", tensor("t", uint32(9)), "9 dimensions"},
		{"dimension 0", tensor("t", uint32(1), uint64(0), uint32(0), uint64(0)), "impossible shape"},
		{"too large", tensor("t", uint32(2), uint64(1<<40), uint64(1<<40), uint32(0), uint64(0)), "impossible shape"},
		{"too large in bytes", tensor("t", uint32(2), uint64(1<<30), uint64(1<<30), uint32(0), uint64(0)), "impossibly large"},
		{"unknown tensor type", tensor("t", uint32(1), uint64(8), uint32(9999), uint64(0)), "does not know"},
		{"retired tensor type", tensor("t", uint32(1), uint64(32), uint32(4), uint64(0)), "does not know"},
		{"uneven rows", tensor("t", uint32(1), uint64(33), uint32(8), uint64(0)), "rows of 33"},
		{"tensor elsewhere", tensor("t", uint32(1), uint64(8), uint32(0), uint64(32)), "not where"},
		{"tensor before", tensor("t", uint32(1), uint64(8), uint32(0), ^uint64(31)), "not where"},
		{"tensor with a long name", tensor(strings.Repeat("t", 65)), "a name or text of 65"},
		{"a tensor twice", withData(head(2, 1).Put("general.architecture", str, "llama").
			Put("t", uint32(1), uint64(8), uint32(0), uint64(0)).
			Put("t", uint32(1), uint64(8), uint32(0), uint64(32)), 64), "twice"},
		{"larger than the file", tensor("t", uint32(1), uint64(1<<30), uint32(0), uint64(0)), "promises 4.00 GiB, and it has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, "m.gguf", c.data)
			_, err := Read(path)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.gguf")); !errors.Is(err, ErrMissing) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, ErrInvalid) {
		t.Errorf("a folder: %v", err)
	}
}

// Every shorter version of the demo model is found out.
func TestReadCut(t *testing.T) {
	data := demo.GGUF()
	for n := 0; n < len(data)-1; n += 1 + n/50 {
		if _, err := walkHeader(bytes.NewReader(data[:n]), int64(n), newBudget()); err == nil {
			t.Fatalf("cut to %d of %d bytes, it passes", n, len(data))
		}
	}
	// The padding at the end belongs to no tensor.
	if _, err := walkHeader(bytes.NewReader(data), int64(len(data)), newBudget()); err != nil {
		t.Error(err)
	}
}

// A large file that lies about lengths makes nobody allocate them.
func TestReadLiesCheaply(t *testing.T) {
	path := write(t, "m.gguf", head(0, 1).Put("a", str, uint64(8<<30)).Bytes())
	if err := os.Truncate(path, 16<<30); err != nil { // sparse
		t.Skipf("no sparse files here: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Read(path); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 && !raced {
		t.Errorf("%d bytes were allocated", n)
	}
}
