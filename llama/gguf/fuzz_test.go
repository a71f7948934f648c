package gguf

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

// inMemory reads files that are parts of one model, each with zeros behind it:
// without them a changed header would mostly be found cut short.
func inMemory(parts ...[]byte) (Header, error) {
	const zeros = 2 << 20
	files := map[string][]byte{}
	for i, data := range parts {
		files[gguftest.PartName("m", i, len(parts))] = data
	}
	return read(gguftest.PartName("m", 0, len(parts)), func(path string, b *budget) (*walk, error) {
		data, ok := files[path]
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrMissing, path)
		}
		w, err := walkHeader(io.MultiReader(bytes.NewReader(data), zeroReader{}), int64(len(data)+zeros), b)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
		}
		return w, nil
	})
}

// A zeroReader reads zeros without end.
type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// FuzzRead: whatever the two parts of a model hold, there is a header or an
// error, in a time and a memory of which the files cannot choose any.
func FuzzRead(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		parts := [][]byte{first}
		if len(second) > 0 {
			parts = append(parts, second)
		}
		began := time.Now()
		h, err := inMemory(parts...)
		if err == nil {
			check(t, h, 256, 2)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// FuzzMemory: no estimate for a header that was accepted goes wrong, for any
// context.
func FuzzMemory(f *testing.F) {
	for i, s := range seeds() {
		f.Add(s[0], 1<<(i%31), 1+i%64)
	}
	f.Fuzz(func(t *testing.T, data []byte, ctx, slots int) {
		if h, err := inMemory(data); err == nil {
			check(t, h, ctx, slots)
		}
	})
}

// check holds what is always true of a header and its estimates.
func check(t *testing.T, h Header, ctx, slots int) {
	t.Helper()
	if h.Arch == "" || h.Kind == "" || h.TensorBytes > h.FileBytes || h.Layers > maxLayers || h.Vocab > maxArray || h.Params > 8*h.TensorBytes {
		t.Errorf("%+v", h)
	}
	m, err := h.Memory(Serving{Context: ctx, Slots: slots})
	if err != nil {
		return
	}
	if m.Total != m.Weights+m.KV+m.Compute || m.Weights < h.TensorBytes || m.Total > 4*maxMemory {
		t.Errorf("%+v", m)
	}
	shape, err := h.Shape(Serving{Context: ctx, Slots: slots})
	if err != nil || shape.CPU() != m.Total || h.Kind != KindProjector && shape.count() != int(h.Layers) {
		t.Fatalf("%+v of %+v: %v", shape, m, err)
	}
	tensorsAgree(t, h, shape)
	// More takes no less: where it did, a product went beyond its 64 bits.
	if more, err := h.Memory(Serving{Context: 2 * ctx, Slots: slots}); err == nil && (more.KV < m.KV || more.Compute < m.Compute || more.Weights != m.Weights) {
		t.Errorf("%d tokens take %+v, and twice as many %+v", ctx, m, more)
	}
}

// seeds are right and broken models of many kinds, with the second part where
// they have one.
func seeds() [][2][]byte {
	var list [][2][]byte
	add := func(f gguftest.File) { list = append(list, [2][]byte{f.Bytes()}) }
	for _, f := range models() {
		add(f)
		parts := f.Split(2, len(list)%2 == 0)
		list = append(list, [2][]byte{parts[0].Bytes(), parts[1].Bytes()})
	}
	every := models()[0]
	for i, v := range values() {
		every = every.With(fmt.Sprintf("x.of.type.%d", i), v)
		add(models()[0].With("llama.block_count", v))
		add(models()[0].With("llama.attention.head_count_kv", v))
	}
	add(every)
	small := models()[0].Bytes()
	for i := range 40 {
		broken := bytes.Clone(small)
		broken[(i*37)%len(broken)] ^= byte(1 << (i % 8))
		list = append(list, [2][]byte{broken}, [2][]byte{small[:i*len(small)/40]})
	}
	return list
}

// values are one of each type, and arrays of each.
func values() []any {
	return []any{
		uint8(1), int8(-1), uint16(2), int16(-2), uint32(3), int32(-3), float32(0.5), true, "text", uint64(4), int64(-4), 1e300,
		[]uint8{1}, []int8{-1}, []uint16{2, 2}, []int16{-2}, []uint32{3, 4, 5}, []int32{-3}, []float32{0.5}, []bool{true, false},
		[]string{"a", ""}, []uint64{4}, []int64{-4}, []float64{1e300}, []uint32{},
	}
}

// models are small ones of many kinds.
func models() []gguftest.File {
	tensor := func(name string, dims ...uint64) gguftest.Tensor {
		n := uint64(4)
		for _, d := range dims {
			n *= d
		}
		return gguftest.Tensor{Name: name, Type: gguftest.F32, Dims: dims, Data: make([]byte, n)}
	}
	base := func(arch string) gguftest.File {
		f := gguftest.File{}.With("general.architecture", arch).With("general.type", "model").With("general.name", "m").
			With("general.file_type", uint32(0)).With(arch+".block_count", uint32(2)).With(arch+".context_length", uint32(128)).
			With(arch+".embedding_length", uint32(8)).With(arch+".feed_forward_length", uint32(16)).
			With(arch+".attention.head_count", uint32(2)).With(arch+".attention.head_count_kv", uint32(1)).
			With("tokenizer.ggml.model", "llama").With("tokenizer.ggml.tokens", []string{"a", "b", "c"}).
			With("tokenizer.ggml.scores", []float32{0, 0, 0}).With("tokenizer.chat_template", "{{ x }}")
		f.Tensors = []gguftest.Tensor{
			tensor("token_embd.weight", 8, 3), tensor("output_norm.weight", 8), tensor("output.weight", 8, 3),
			tensor("blk.0.attn_norm.weight", 8), tensor("blk.0.attn_q.weight", 8, 8), tensor("blk.0.attn_k.weight", 8, 4),
			tensor("blk.0.ffn_gate.weight", 8, 16), tensor("blk.0.ffn_up.weight", 8, 16), tensor("blk.0.ffn_down.weight", 16, 8),
			tensor("blk.1.attn_norm.weight", 8), tensor("blk.1.attn_qkv.weight", 8, 16), tensor("blk.1.ffn_up.weight", 8, 16),
		}
		return f
	}
	moe := base("qwen3moe").With("qwen3moe.expert_count", uint32(4)).With("qwen3moe.expert_used_count", uint32(2)).
		With("qwen3moe.expert_feed_forward_length", uint32(4))
	moe.Tensors = append(moe.Tensors, tensor("blk.1.ffn_up_exps.weight", 8, 4, 4), tensor("blk.1.ffn_gate_inp.weight", 8, 4))
	rerank := base("bert").With("bert.pooling_type", uint32(4)).With("bert.attention.causal", false)
	rerank.Tensors = append(rerank.Tensors, tensor("cls.weight", 8, 1), tensor("cls.bias", 1))
	t5 := base("t5encoder")
	t5.Tensors = append(t5.Tensors, tensor("enc.blk.0.attn_rel_b.weight", 2, 8), tensor("enc.blk.0.attn_q.weight", 8, 8))
	windowed := base("gemma3").With("gemma3.attention.sliding_window", uint32(64)).With("gemma3.attention.sliding_window_pattern", []bool{true, false}).
		With("gemma3.attention.key_length", uint32(4)).With("gemma3.attention.value_length", uint32(4))
	hybrid := base("jamba").With("jamba.ssm.conv_kernel", uint32(4)).With("jamba.ssm.inner_size", uint32(16)).
		With("jamba.ssm.state_size", uint32(4)).With("jamba.attention.head_count_kv", []uint32{0, 1})
	recurrent := base("rwkv7").With("rwkv7.wkv.head_size", uint32(4)).With("rwkv7.token_shift_count", uint32(2))
	recurrent.Tensors = append(recurrent.Tensors, tensor("blk.1.time_mix_w2.weight", 8, 8), tensor("blk.1.time_mix_output.weight", 8, 8))
	mamba := base("mamba").With("mamba.ssm.conv_kernel", uint32(4)).With("mamba.ssm.inner_size", uint32(16)).With("mamba.ssm.state_size", uint32(4))
	mamba.Tensors = append(mamba.Tensors, tensor("blk.1.ssm_conv1d.weight", 4, 16), tensor("blk.1.ssm_dt.weight", 2, 16), tensor("blk.1.ssm_a", 4, 16))
	mla := base("deepseek2").With("deepseek2.attention.key_length_mla", uint32(12)).With("deepseek2.attention.value_length_mla", uint32(8)).
		With("deepseek2.attention.kv_lora_rank", uint32(4))
	mla.Tensors = append(mla.Tensors, tensor("blk.1.attn_kv_a_mqa.weight", 8, 8), tensor("blk.1.attn_q_b.weight", 8, 8))
	lora := base("llama").With("general.type", "adapter").With("adapter.type", "lora").With("adapter.lora.alpha", float32(16))
	vector := base("controlvector").With("controlvector.model_hint", "llama").With("controlvector.layer_count", uint32(2))
	vocab := base("llama")
	vocab.Tensors = nil
	diffusion := base("sd3")
	diffusion.Tensors = append(diffusion.Tensors, tensor("model.diffusion_model.joint_blocks.0.x", 8), tensor("decoder.conv_in.weight", 1, 1, 1, 1))
	projector := gguftest.Projector(8)
	for i := range projector.Tensors { // only the shapes count
		projector.Tensors[i].Dims = []uint64{2, 2}
		projector.Tensors[i].Data = make([]byte, 16)
	}
	audio := projector.With("clip.has_audio_encoder", true).With("clip.audio.num_mel_bins", uint32(80)).With("clip.audio.embedding_length", uint32(8)).
		With("clip.audio.attention.head_count", uint32(2)).With("clip.audio.block_count", uint32(1)).With("clip.projector_type", "qwen2.5o")
	audio.Tensors = append(audio.Tensors, tensor("a.position_embd.weight", 8, 4))
	files := []gguftest.File{
		base("llama"), base("grok"), base("phi2"), base("qwen3vl").With("qwen3vl.pooling_type", uint32(3)), moe, rerank, t5, windowed, hybrid,
		recurrent, mamba, mla, lora, vector, vocab, diffusion, projector, audio,
		base("llama").With("general.alignment", uint32(64)).Without("llama.block_count"),
		base("gemma3n").With("gemma3n.attention.shared_kv_layers", uint32(1)).With("gemma3n.nextn_predict_layers", uint32(1)),
		base("lfm2").With("lfm2.shortconv.l_cache", uint32(3)).With("lfm2.attention.head_count_kv", []uint32{0, 1}),
		base("kimi-linear").With("kimi-linear.kda.head_dim", uint32(4)).With("kimi-linear.attention.head_count_kv", []int32{0, 1}),
		base("qwen3next").With("qwen3next.full_attention_interval", uint32(4)).With("qwen3next.ssm.state_size", uint32(4)),
	}
	for _, kind := range []string{"gemma3", "idefics3", "pixtral", "internvl", "resampler", "adapter", "ldpv2", "qwen2vl_merger", "gemma3nv", "llama4", "kimivl", "lfm2a"} {
		files = append(files, projector.With("clip.projector_type", kind).With("clip.vision.projector.scale_factor", uint32(2)).With("clip.vision.spatial_merge_size", uint32(2)))
	}
	return files
}

// TestModels: what the fuzz tests begin with is right.
func TestModels(t *testing.T) {
	kinds := map[Kind]int{}
	for _, f := range models() {
		h, err := inMemory(f.Bytes())
		if err != nil {
			t.Error(err)
			continue
		}
		check(t, h, 256, 2)
		if _, err := h.Memory(Serving{Context: 256, Slots: 2}); err != nil {
			t.Errorf("%s: %v", h.Arch, err)
		}
		kinds[h.Kind]++
	}
	for _, kind := range []Kind{KindChat, KindEmbed, KindRerank, KindProjector, KindPart} {
		if kinds[kind] == 0 {
			t.Errorf("none is of kind %s: %v", kind, kinds)
		}
	}
	demos, err := gguftest.Parse(demo.GGUF())
	if err != nil || !bytes.Equal(demos.Bytes(), demo.GGUF()) {
		t.Errorf("the demo model was taken apart, and put together differently: %v", err)
	}
}
