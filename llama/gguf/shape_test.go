package gguf

import (
	"path/filepath"
	"strings"
	"testing"

	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

// count is how many layers there are.
func (s Shape) count() (n int) {
	for _, l := range s.Layers {
		n += l.Count
	}
	return n
}

// random is the header of a model with random weights.
func random(t testing.TB, m gguftest.Random) Header {
	t.Helper()
	from, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := m.Write(path, from); err != nil {
		t.Fatal(err)
	}
	h, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func shapeOf(t testing.TB, h Header, s Serving) Shape {
	t.Helper()
	shape, err := h.Shape(s)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

func TestShape(t *testing.T) {
	m := gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: 4, Width: 256, KVWidth: 128, HeadWidth: 64, FeedForward: 512, Train: 4096}
	s := shapeOf(t, random(t, m), Serving{Context: 512, Slots: 2})
	// Of each 32 weights 34 bytes; norms have 4 for each.
	const embedding, norm = 1024 * 256 / 32 * 34, 256 * 4
	layer := Layers{Count: 4, Weights: (2*256*256+2*256*128+3*256*512)/32*34 + 2*norm, KV: 2 * 128 * 2 * 512 * 2}
	if s.Input != embedding || s.Output != embedding+norm || s.Tied || s.Experts != 0 || len(s.Layers) != 1 || s.Layers[0] != layer {
		t.Errorf("%+v, want layers of %+v", s, layer)
	}

	m.Experts, m.Used = 8, 2
	s = shapeOf(t, random(t, m), Serving{Context: 512, Slots: 2})
	if l := s.Layers[0]; s.Experts != 8 || s.Used != 2 || l.Experts != 8*3*256*512/32*34 || l.Weights <= l.Experts {
		t.Errorf("%+v", s)
	}

	m.Arch, m.Experts, m.Window, m.Layers, m.Type = "gemma3", 0, 256, 12, gguftest.F16
	s = shapeOf(t, random(t, m), Serving{Context: 4096, Slots: 2})
	// Five layers with a window, of 256 tokens and a batch, and one without,
	// twice; the output layer is the input layer, and only the norm is not.
	const cell, tied = 2 * 128 * 2 * 2, 1024 * 256 * 2
	if len(s.Layers) != 4 || s.Layers[0].Count != 5 || s.Layers[0].KV != (256+512)*cell || s.Layers[1].Count != 1 || s.Layers[1].KV != 4096*cell ||
		!s.Tied || s.Input != tied+norm || s.Output != tied+norm {
		t.Errorf("%+v", s)
	}
	whole := shapeOf(t, random(t, m), Serving{Context: 4096, Slots: 2, Args: []string{"--swa-full"}})
	if len(whole.Layers) != 1 || whole.Layers[0].KV != 4096*cell {
		t.Errorf("%+v", whole)
	}
	// Where it is a copy in another order, on whatever kind of machine, it costs,
	// and the shape is the same on all of them.
	for _, kind := range []uint32{gguftest.Q8_0, gguftest.Q4_0} {
		m.Type = kind
		h := random(t, m)
		copied, kept := shapeOf(t, h, Serving{Context: 4096, Slots: 2}), shapeOf(t, h, Serving{Context: 4096, Slots: 2, Args: []string{"--no-repack"}})
		if copied.Tied || !kept.Tied || copied.CPU() != kept.CPU()+copied.Input {
			t.Errorf("type %d: %+v, not repacked %+v", kind, copied, kept)
		}
	}
	// Two states of ten layers to go back to for each slot.
	if d := s.Host - whole.Host; d != 2*2*10*256*cell/2 {
		t.Errorf("states of windows: %d bytes", d)
	}
}

// What is said in a model's arguments counts.
func TestShapeFlags(t *testing.T) {
	h := random(t, gguftest.Random{Arch: "llama", Type: gguftest.Q4_0, Layers: 4, Width: 256, KVWidth: 128, HeadWidth: 64, FeedForward: 512, Train: 4096})
	plain := shapeOf(t, h, Serving{Context: 2048, Slots: 2})
	kv := func(args ...string) float64 {
		return float64(shapeOf(t, h, Serving{Context: 2048, Slots: 2, Args: args}).Layers[0].KV) / float64(plain.Layers[0].KV)
	}
	compute := func(args ...string) float64 {
		return float64(shapeOf(t, h, Serving{Context: 2048, Slots: 2, Args: args}).Compute) / float64(plain.Compute)
	}
	for _, c := range []struct {
		name      string
		got       float64
		low, high float64
	}{
		{"q8_0 in both", kv("-ctk", "q8_0", "--cache-type-v=q8_0"), 0.53, 0.54},
		{"q8_0 for keys", kv("-ctk", "q8_0"), 0.76, 0.77},
		{"the last counts", kv("-ctk", "q8_0", "--cache-type-k", "f32"), 1.5, 1.5},
		{"values of others", kv("--chat-template-kwargs", `{"a":"-ctk"}`, "--temp", "0.5"), 1, 1},
		{"a name without its value", kv("-ctk"), 1, 1},
		{"small batches", compute("-ub", "128"), 0.2, 0.3},
		{"small batches, by the larger number", compute("-b", "128", "-ub", "512"), 0.2, 0.3},
		{"no flash attention", compute("-fa", "off"), 2, 10},
		{"flash attention", compute("-fa", "on"), 1, 1},
		{"nonsense", compute("-ub", "lots"), 0.01, 0.3},
	} {
		if c.got < c.low || c.got > c.high {
			t.Errorf("%s: %.3f times as much", c.name, c.got)
		}
	}
	if h.Repacked([]string{"--no-repack"}) || h.Repacked([]string{"--repack", "-nr"}) {
		t.Error("repacked although that is off")
	}
	for _, s := range []Serving{{}, {Context: 1, Slots: maxSlots + 1}, {Context: -1, Slots: 1}} {
		if got, err := h.Shape(s); err == nil {
			t.Errorf("%+v: %+v", s, got)
		}
	}
}

// A text to embed or to score is computed at once, and each token of it costs.
func TestBatch(t *testing.T) {
	for _, c := range []struct {
		kind          Kind
		context       int
		args          string
		batch, ubatch int
	}{
		{KindChat, 8192, "", 2048, 512},
		{KindChat, 8192, "-b 4096", 4096, 512},
		{KindChat, 8192, "--batch-size=256", 256, 256},
		{KindChat, 8192, "-ub 4096", 2048, 2048},
		{KindEmbed, 8192, "", 2048, 2048},
		{KindRerank, 8192, "", 2048, 2048},
		{KindEmbed, 512, "", 512, 512},
		{KindEmbed, 8, "", 32, 32},
		{KindEmbed, 8192, "-ub 4096", 4096, 4096},
		{KindEmbed, 1024, "-ub 4096", 1024, 1024},
		{KindRerank, 8192, "-ub 64", 64, 64},
		{KindEmbed, 8192, "-b 4096", 512, 512}, // llama-server's own ubatch
		{KindEmbed, 8192, "-b 128", 128, 128},
		{KindEmbed, 8192, "-b 4096 -ub 4096 -b 1024", 1024, 1024},
	} {
		batch, ubatch := Batch(c.kind, c.context, strings.Fields(c.args))
		if batch != c.batch || ubatch != c.ubatch {
			t.Errorf("%+v: %d and %d", c, batch, ubatch)
		}
	}
	const vocab, width = 32000, 256
	m := gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: 4, Width: width, KVWidth: 128, HeadWidth: 64, FeedForward: 512, Vocab: vocab, Train: 8192, Pooling: 3}
	s := Serving{Context: 4096, Slots: 1}
	h := random(t, m)
	embeds := shapeOf(t, h, s)
	s.Args = []string{"-ub", "4096"}
	if long := shapeOf(t, h, s); long.Host-embeds.Host != 4*2048*(vocab+width) || long.Compute-embeds.Compute < 4*2048*vocab {
		t.Errorf("texts twice as long: %+v, not %+v", long, embeds)
	}
	// It keeps keys and values as the same model does that chats.
	s = Serving{Kind: KindChat, Context: 4096, Slots: 1}
	if chats := shapeOf(t, h, s); h.Kind != KindEmbed || embeds.Layers[0].KV == 0 || chats.Layers[0] != embeds.Layers[0] || chats.Host+4*2048*(vocab+width) != embeds.Host {
		t.Errorf("%s: %+v, and chats as %+v", h.Kind, embeds, chats)
	}
	// An encoder keeps none, and has no output layer.
	m.Arch, m.KVWidth = "bert", width
	h = random(t, m)
	s = Serving{Context: 4096, Slots: 2}
	if e := shapeOf(t, h, s); h.Kind != KindEmbed || e.Layers[0].KV != 0 || e.Output != 0 || e.Host < 4*2048*(vocab+width) {
		t.Errorf("%s: %+v", h.Kind, e)
	}
}

// Tensors of layers that the model does not say it has are still counted.
func TestShapeOfStrayTensors(t *testing.T) {
	f := models()[0]
	f.Tensors = append(f.Tensors, gguftest.Tensor{Name: "blk.999.x.weight", Type: gguftest.F32, Dims: []uint64{8}, Data: make([]byte, 32)})
	h, err := inMemory(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	s := shapeOf(t, h, Serving{Context: 256, Slots: 1})
	if weights, _ := s.sums(); weights < h.TensorBytes {
		t.Errorf("%d bytes of %d: %+v", weights, h.TensorBytes, s)
	}
}

// The largest model that is read takes no long time.
func TestShapeOfMany(t *testing.T) {
	h := random(t, gguftest.Random{Arch: "gemma3", Type: gguftest.Q8_0, Layers: maxSplit, Width: 64, KVWidth: 64, HeadWidth: 64, FeedForward: 64, Window: 128, Train: 4096})
	within(t, func() { shapeOf(t, h, Serving{Context: 65536, Slots: 4}) })
}

func BenchmarkShape(b *testing.B) {
	h := random(b, gguftest.Random{Arch: "llama", Type: gguftest.Q8_0, Layers: 80, Width: 256, KVWidth: 64, HeadWidth: 64, FeedForward: 256, Train: 4096})
	for b.Loop() {
		shapeOf(b, h, Serving{Context: 65536, Slots: 4})
	}
}
