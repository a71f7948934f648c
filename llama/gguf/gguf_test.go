package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"relay/llama/demo"
)

// A maker writes GGUF files, right or wrong.
type maker struct{ bytes.Buffer }

func (m *maker) put(values ...any) *maker {
	for _, v := range values {
		if s, ok := v.(string); ok {
			m.put(uint64(len(s)))
			m.WriteString(s)
		} else if err := binary.Write(m, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return m
}

const (
	u32 = uint32(typeUint32)
	str = uint32(typeString)
	arr = uint32(typeArray)
)

// head begins a file with so many tensors and keys.
func head(tensors, keys uint64) *maker {
	m := new(maker)
	m.WriteString("GGUF")
	return m.put(uint32(3), tensors, keys)
}

// model is a file with one tensor of 8 numbers and the keys of a model, to
// which more can be added.
func model(more int, pairs func(m *maker)) []byte {
	m := head(1, uint64(6+more))
	m.put("general.architecture", str, "llama").
		put("llama.block_count", u32, uint32(2)).
		put("llama.context_length", u32, uint32(128)).
		put("llama.embedding_length", u32, uint32(8)).
		put("llama.attention.head_count", u32, uint32(2)).
		put("general.name", str, "tiny\x1b[31m\n one ")
	if pairs != nil {
		pairs(m)
	}
	m.put("output.weight", uint32(1), uint64(8), uint32(0), uint64(0))
	return m.data(32)
}

// data adds the padding and the tensor's data.
func (m *maker) data(n int) []byte {
	for m.Len()%32 != 0 {
		m.WriteByte(0)
	}
	m.Write(make([]byte, n))
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
		a.HasChatTemplate == b.HasChatTemplate && a.Quantization == b.Quantization && a.FileBytes == b.FileBytes && a.TensorBytes == b.TensorBytes
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
		m, err := h.Memory(c.ctx, c.slots)
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
		if m, err := h.Memory(c.ctx, c.slots); err == nil {
			t.Errorf("%+v: %+v", c, m)
		}
	}
	if _, err := (Header{}).Memory(1, 1); err == nil {
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
		add   func(*maker)
		want  Kind
	}{
		{0, nil, KindChat},
		{1, func(m *maker) { m.put("llama.pooling_type", u32, uint32(0)) }, KindChat},
		{1, func(m *maker) { m.put("llama.pooling_type", u32, uint32(3)) }, KindEmbed},
		{1, func(m *maker) { m.put("llama.pooling_type", u32, uint32(4)) }, KindRerank},
		{1, func(m *maker) { m.put("llama.attention.causal", uint32(typeBool), false) }, KindEmbed},
		{1, func(m *maker) { m.put("llama.attention.causal", uint32(typeBool), true) }, KindChat},
		{1, func(m *maker) { m.put("general.type", str, "model") }, KindChat},
		{1, func(m *maker) { m.put("general.type", str, "adapter") }, KindPart},
		{1, func(m *maker) { m.put("general.type", str, "mmproj") }, KindPart},
	} {
		path := write(t, "m.gguf", model(c.pairs, c.add))
		w, err := walkFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.kind("llama"); got != c.want {
			t.Errorf("%s, not %s", got, c.want)
		}
	}
}

// Files that are no models, or lie: each gets a sentence that says why.
func TestReadBad(t *testing.T) {
	good := model(0, nil)
	pair := func(add func(*maker)) []byte { return model(1, add) }
	tensor := func(values ...any) []byte {
		return head(1, 1).put("general.architecture", str, "llama").put(values...).data(64)
	}
	for _, c := range []struct {
		name string
		data []byte
		text string
	}{
		{"empty", nil, "0 bytes"},
		{"text", []byte(strings.Repeat("this is not a model ", 10)), "does not begin"},
		{"cut in its head", good[:3], "less than the smallest"},
		{"cut in its counts", good[:20], "cut short inside its header"},
		{"cut in its keys", good[:100], "cut short inside its header"},
		{"cut in its data", good[:len(good)-1], "cut short: its header promises"},
		{"version 1", append([]byte("GGUF\x01\x00\x00\x00"), make([]byte, 32)...), "version 1"},
		{"version 4", append([]byte("GGUF\x04\x00\x00\x00"), make([]byte, 32)...), "version 4"},
		{"big-endian", append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 32)...), "other byte order"},
		{"too many tensors", head(1<<40, 0).data(64), "1099511627776 tensors"},
		{"too many keys", head(0, 1<<40).data(64), "1099511627776 keys"},
		{"key of no end", head(0, 1).put(uint64(1 << 40)).data(64), "a name or text of"},
		{"text of no end", pair(func(m *maker) { m.put("a", str, uint64(1<<40)) }), "a name or text of"},
		{"text past the end", pair(func(m *maker) { m.put("a", str, uint64(1<<20)) }), "cut short inside"},
		{"a key twice", pair(func(m *maker) { m.put("general.name", str, "x") }), "twice"},
		{"unknown type", pair(func(m *maker) { m.put("a", uint32(13), uint64(0)) }), "unknown type 13"},
		{"array of arrays", pair(func(m *maker) { m.put("a", arr, arr, uint64(1), arr, uint64(1)) }), "array of unknown type"},
		{"array of no end", pair(func(m *maker) { m.put("a", arr, u32, uint64(1<<60)) }), "elements in"},
		{"array of long texts", pair(func(m *maker) { m.put("a", arr, str, uint64(1), uint64(1<<40)) }), "a text of"},
		{"layers of no end", pair(func(m *maker) { m.put("x.attention.head_count_kv", arr, u32, uint64(1<<20)) }), "elements in"},
		{"too many blocks", pair(func(m *maker) { m.put("x.block_count", u32, uint32(1<<31)) }), "which no model has"},
		{"too many parts", pair(func(m *maker) { m.put("split.tensors.count", uint32(typeInt32), int32(1<<30)) }), "which no model has"},
		{"context of no end", pair(func(m *maker) { m.put("x.context_length", uint32(typeUint64), uint64(1<<63)) }), "which no model has"},
		{"alignment 0", pair(func(m *maker) { m.put("general.alignment", u32, uint32(0)) }), "aligned to 0"},
		{"alignment 33", pair(func(m *maker) { m.put("general.alignment", u32, uint32(33)) }), "aligned to 33"},
		{"no architecture", head(0, 0).data(64), "its architecture"},
		{"architecture of the wrong type", head(0, 1).put("general.architecture", u32, uint32(1)).data(64), "its architecture"},
		{"name of the wrong type", head(0, 2).put("general.architecture", str, "llama").put("general.file_type", str, "x").data(64), "general.file_type"},
		{"no dimensions", tensor("t", uint32(0), uint32(0), uint64(0)), "0 dimensions"},
		{"9 dimensions", tensor("t", uint32(9)), "9 dimensions"},
		{"dimension 0", tensor("t", uint32(1), uint64(0), uint32(0), uint64(0)), "impossible shape"},
		{"too large", tensor("t", uint32(2), uint64(1<<40), uint64(1<<40), uint32(0), uint64(0)), "impossible shape"},
		{"too large in bytes", tensor("t", uint32(1), uint64(1<<62), uint32(0), uint64(0)), "impossibly large"},
		{"unknown tensor type", tensor("t", uint32(1), uint64(8), uint32(9999), uint64(0)), "does not know"},
		{"retired tensor type", tensor("t", uint32(1), uint64(32), uint32(4), uint64(0)), "does not know"},
		{"uneven rows", tensor("t", uint32(1), uint64(33), uint32(8), uint64(0)), "rows of 33"},
		{"tensor elsewhere", tensor("t", uint32(1), uint64(8), uint32(0), uint64(32)), "not where"},
		{"tensor before", tensor("t", uint32(1), uint64(8), uint32(0), ^uint64(31)), "not where"},
		{"tensor with a long name", tensor(strings.Repeat("t", 65)), "a name or text of 65"},
		{"a tensor twice", head(2, 1).put("general.architecture", str, "llama").
			put("t", uint32(1), uint64(8), uint32(0), uint64(0)).
			put("t", uint32(1), uint64(8), uint32(0), uint64(32)).data(64), "twice"},
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
		if _, err := walkHeader(bytes.NewReader(data[:n]), int64(n)); err == nil {
			t.Fatalf("cut to %d of %d bytes, it passes", n, len(data))
		}
	}
	// The padding at the end belongs to no tensor.
	if _, err := walkHeader(bytes.NewReader(data), int64(len(data))); err != nil {
		t.Error(err)
	}
}

// A large file that lies about lengths makes nobody allocate them.
func TestReadLiesCheaply(t *testing.T) {
	path := write(t, "m.gguf", head(0, 1).put("a", str, uint64(8<<30)).Bytes())
	if err := os.Truncate(path, 16<<30); err != nil { // sparse
		t.Skipf("no sparse files here: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Read(path); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

func TestReadParts(t *testing.T) {
	dir := t.TempDir()
	part := func(no, count int) []byte {
		return model(3, func(m *maker) {
			m.put("split.no", uint32(typeUint16), uint16(no)).
				put("split.count", uint32(typeUint16), uint16(count)).
				put("split.tensors.count", uint32(typeInt32), int32(2))
		})
	}
	names := []string{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(names[0], part(0, 2))
	if _, err := Read(filepath.Join(dir, names[0])); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), names[1]) {
		t.Errorf("without the second part: %v", err)
	}
	put(names[1], part(1, 2))
	for _, name := range names {
		h, err := Read(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if h.Params != 16 || len(h.Parts) != 2 || h.FileBytes != uint64(2*len(part(0, 2))) {
			t.Errorf("%s: %+v", name, h)
		}
	}
	put("alone.gguf", part(0, 2))
	if _, err := Read(filepath.Join(dir, "alone.gguf")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "one of 2 parts") {
		t.Errorf("a part under another name: %v", err)
	}
	put("m-00001-of-99999.gguf", part(0, 2))
	if _, err := Read(filepath.Join(dir, "m-00001-of-99999.gguf")); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many parts: %v", err)
	}
}

// FuzzRead: whatever a file holds, there is a header or an error, and no
// estimate of a header that was accepted goes wrong.
func FuzzRead(f *testing.F) {
	for _, data := range seeds() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := write(t, "m.gguf", data)
		// Without zeros behind it, a changed header would mostly be found cut short.
		size := int64(len(data)) + 2<<20
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		h, err := Read(path)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
			return
		}
		if h.Arch == "" || h.FileBytes != uint64(size) || h.TensorBytes > h.FileBytes {
			t.Errorf("%+v", h)
		}
		if m, err := h.Memory(256, 2); err == nil && (m.Total < m.Weights || m.Total > 4*maxMemory || m.Weights < h.TensorBytes) {
			t.Errorf("%+v", m)
		}
	})
}

// FuzzWalk is FuzzRead's first half, in memory and so much faster.
func FuzzWalk(f *testing.F) {
	for _, data := range seeds() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := walkHeader(bytes.NewReader(data), int64(len(data)))
		if err == nil && (w.start+w.end > uint64(len(data)) || w.bytes > w.end) {
			t.Errorf("%d + %d bytes in a file of %d", w.start, w.end, len(data))
		}
	})
}

// seeds are right and broken files, the demo model's header among them.
func seeds() [][]byte {
	data := demo.GGUF()
	w, err := walkHeader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		panic(err)
	}
	data = data[:w.start]
	list := [][]byte{data, model(0, nil), head(0, 0).data(0)}
	for i := 0; i < 40; i++ {
		n := 64 + i*i*17
		broken := slices.Clone(data)
		broken[n%len(broken)] ^= byte(1 << (i % 8))
		list = append(list, broken, data[:n%len(data)])
		small := model(0, nil)
		small[(i*7)%len(small)] = byte(255 - i)
		list = append(list, small)
	}
	list = append(list, model(1, func(m *maker) { m.put("llama.attention.head_count_kv", arr, u32, uint64(2), uint32(1), uint32(1)) }))
	return list
}
