package gguftest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

// More numbers of types of tensors.
const (
	Q4_0 uint32 = 2
	Q8_0 uint32 = 8
	Q4_K uint32 = 12
)

// A Random is a model with random weights that llama.cpp loads and runs, of any
// size. What it says means nothing.
type Random struct {
	// Arch is "llama"; "gemma3", which attends to a sliding window in five
	// layers of six, and whose output layer is its input layer; or "bert", which
	// reads a text at once, keeps nothing of it, and has no output layer.
	Arch string
	// Pooling is how it makes one vector of a text, as llama.cpp numbers the ways:
	// 0 not at all, 1 the mean, 3 the last token's, 4 a score.
	Pooling int
	// Type is that of all tensors with more than one dimension.
	Type uint32
	// Layers, and the width of the model, of its keys and values, and of its
	// feed-forward layers. A head is HeadWidth wide.
	Layers, Width, KVWidth, HeadWidth, FeedForward int
	// Of Experts in each layer Used work on a token; 0 for none.
	Experts, Used int
	// Window is how far gemma3's sliding window reaches, in tokens.
	Window int
	// Vocab is the number of tokens, at least as many as the vocabulary that it
	// is made from has; 0 for that many.
	Vocab int
	// Train is the context that it says it was trained for.
	Train int
}

// Write writes the model to path, with the vocabulary of another model's file,
// which Parse has taken apart.
func (m Random) Write(path string, from File) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, tensors := m.header(from)
	w := bufio.NewWriterSize(f, 1<<20)
	var head Writer
	head.WriteString("GGUF")
	head.Put(uint32(3), uint64(len(tensors)), uint64(len(file.Pairs)))
	for _, p := range file.Pairs {
		head.Put(p.Key)
		head.value(p.Value)
	}
	at := 0
	for _, t := range tensors {
		head.Put(t.Name, uint32(len(t.Dims)), t.Dims, t.Type, uint64(at))
		at += padded(t.bytes(), 32)
	}
	head.Pad(32)
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	for i, t := range tensors {
		left := padded(t.bytes(), 32)
		if t.Name == m.output() {
			rows := t
			rows.Dims = []uint64{t.Dims[0], min(t.Dims[1], marks)}
			left -= rows.bytes()
			if err := repeat(w, randomBlocks(t.Type, i, true), rows.bytes()); err != nil {
				return err
			}
		}
		if err := repeat(w, randomBlocks(t.Type, i, false), left); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// marks is how many of its first tokens are never the likeliest: in the vocabulary of
// the demo model these are marks and single bytes, of which llama.cpp makes no answer.
const marks = 300

// output is the tensor by which tokens are likely.
func (m Random) output() string {
	if m.Arch == "gemma3" {
		return "token_embd.weight"
	}
	return "output.weight"
}

// repeat writes so many bytes, the same again and again.
func repeat(w io.Writer, noise []byte, bytes int) error {
	for bytes > 0 {
		n, err := w.Write(noise[:min(bytes, len(noise))])
		if err != nil {
			return err
		}
		bytes -= n
	}
	return nil
}

// blocks are how many elements and bytes a block of a type has.
func blocks(kind uint32) (elements, bytes int) {
	switch kind {
	case F32:
		return 1, 4
	case F16:
		return 1, 2
	case Q4_0:
		return 32, 18
	case Q8_0:
		return 32, 34
	case Q4_K:
		return 256, 144
	}
	panic(fmt.Sprintf("no random tensors of type %d", kind))
}

// bytes is the length of a tensor without its data.
func (t Tensor) bytes() int {
	elements, bytes := blocks(t.Type)
	n := 1
	for _, d := range t.Dims {
		n *= int(d)
	}
	return n / elements * bytes
}

// randomBlocks are some blocks with small weights, or faint ones: norms, alone in F32,
// are one, and no other tensor has the bytes of the nth.
func randomBlocks(kind uint32, nth int, faint bool) []byte {
	scale, fine, half := uint16(0x1400), uint16(0x0400), uint16(0x2000) // 2^-10, 2^-14, 2^-7 and more
	if faint {
		scale, fine, half = 0x0400, 0x0040, 0x1000 // a sixteenth
	}
	random := rand.New(rand.NewChaCha8([32]byte{byte(kind), byte(nth), byte(nth >> 8)}))
	_, size := blocks(kind)
	out := make([]byte, 0, 1<<18)
	for len(out)+size <= 1<<18 {
		switch kind {
		case F32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(1))
			continue
		case F16:
			out = binary.LittleEndian.AppendUint16(out, half|uint16(random.Uint32()&0x83ff))
			continue
		case Q4_K:
			out = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(out, fine), scale)
		default:
			out = binary.LittleEndian.AppendUint16(out, scale)
		}
		for len(out)%size != 0 {
			out = append(out, byte(random.Uint32()))
		}
	}
	return out
}

// header is the model without tensors, and the tensors without data.
func (m Random) header(from File) (File, []Tensor) {
	var f File
	key := func(name string, v any) { f.Pairs = append(f.Pairs, Pair{m.Arch + "." + name, v}) }
	f.Pairs = []Pair{{"general.architecture", m.Arch}, {"general.name", "random"}}
	key("block_count", uint32(m.Layers))
	key("context_length", uint32(m.Train))
	key("embedding_length", uint32(m.Width))
	key("feed_forward_length", uint32(m.FeedForward))
	key("attention.head_count", uint32(m.Width/m.HeadWidth))
	key("attention.head_count_kv", uint32(m.KVWidth/m.HeadWidth))
	key("attention.key_length", uint32(m.HeadWidth))
	key("attention.value_length", uint32(m.HeadWidth))
	key("attention.layer_norm_rms_epsilon", float32(1e-5))
	if m.Experts > 0 {
		key("expert_count", uint32(m.Experts))
		key("expert_used_count", uint32(m.Used))
	}
	if m.Window > 0 {
		key("attention.sliding_window", uint32(m.Window))
	}
	if m.Pooling > 0 {
		key("pooling_type", uint32(m.Pooling))
	}
	if m.Arch == "bert" {
		key("attention.layer_norm_epsilon", float32(1e-5))
		key("attention.causal", false)
		f.Pairs = append(f.Pairs, Pair{"tokenizer.ggml.token_type_count", uint32(2)})
	}
	vocab := 0
	for _, p := range from.Pairs {
		if !strings.HasPrefix(p.Key, "tokenizer.") {
			continue
		}
		v := p.Value.(Raw)
		if v.Type == TypeArray && p.Key != "tokenizer.ggml.merges" {
			v, vocab = v.longer(m.Vocab)
		}
		f.Pairs = append(f.Pairs, Pair{p.Key, v})
	}

	var tensors []Tensor
	add := func(name string, kind uint32, dims ...int) {
		t := Tensor{Name: name, Type: kind}
		for _, d := range dims {
			t.Dims = append(t.Dims, uint64(d))
		}
		tensors = append(tensors, t)
	}
	add("token_embd.weight", m.Type, m.Width, vocab)
	if m.Arch == "bert" {
		return f, append(tensors, m.encoder()...)
	}
	gemma := m.Arch == "gemma3"
	for i := range m.Layers {
		b := fmt.Sprintf("blk.%d.", i)
		add(b+"attn_norm.weight", F32, m.Width)
		add(b+"attn_q.weight", m.Type, m.Width, m.Width)
		add(b+"attn_k.weight", m.Type, m.Width, m.KVWidth)
		add(b+"attn_v.weight", m.Type, m.Width, m.KVWidth)
		add(b+"attn_output.weight", m.Type, m.Width, m.Width)
		add(b+"ffn_norm.weight", F32, m.Width)
		if gemma {
			add(b+"attn_q_norm.weight", F32, m.HeadWidth)
			add(b+"attn_k_norm.weight", F32, m.HeadWidth)
			add(b+"post_attention_norm.weight", F32, m.Width)
			add(b+"post_ffw_norm.weight", F32, m.Width)
		}
		if m.Experts > 0 {
			add(b+"ffn_gate_inp.weight", F32, m.Width, m.Experts)
			add(b+"ffn_gate_exps.weight", m.Type, m.Width, m.FeedForward, m.Experts)
			add(b+"ffn_up_exps.weight", m.Type, m.Width, m.FeedForward, m.Experts)
			add(b+"ffn_down_exps.weight", m.Type, m.FeedForward, m.Width, m.Experts)
			continue
		}
		add(b+"ffn_gate.weight", m.Type, m.Width, m.FeedForward)
		add(b+"ffn_up.weight", m.Type, m.Width, m.FeedForward)
		add(b+"ffn_down.weight", m.Type, m.FeedForward, m.Width)
	}
	add("output_norm.weight", F32, m.Width)
	if !gemma {
		add("output.weight", m.Type, m.Width, vocab)
	}
	return f, tensors
}

// encoder are the tensors of bert behind the embeddings of its tokens.
func (m Random) encoder() []Tensor {
	var tensors []Tensor
	add := func(name string, kind uint32, dims ...uint64) {
		tensors = append(tensors, Tensor{Name: name, Type: kind, Dims: dims})
	}
	width, keys, wide := uint64(m.Width), uint64(m.KVWidth), uint64(m.FeedForward)
	norm := func(name string) {
		add(name+".weight", F32, width)
		add(name+".bias", F32, width)
	}
	layer := func(name string, in, out uint64) {
		add(name+".weight", m.Type, in, out)
		add(name+".bias", F32, out)
	}
	add("position_embd.weight", F32, width, uint64(m.Train))
	add("token_types.weight", F32, width, 2)
	norm("token_embd_norm")
	for i := range m.Layers {
		b := fmt.Sprintf("blk.%d.", i)
		layer(b+"attn_q", width, width)
		layer(b+"attn_k", width, keys)
		layer(b+"attn_v", width, keys)
		layer(b+"attn_output", width, width)
		norm(b + "attn_output_norm")
		layer(b+"ffn_up", width, wide)
		layer(b+"ffn_down", wide, width)
		norm(b + "layer_output_norm")
	}
	if m.Pooling == 4 {
		layer("cls", width, width)
		layer("cls.output", width, 1)
	}
	return tensors
}

// longer is an array with as many elements as wanted, more of the last kind at
// its end: texts that are no other's, and zeros.
func (v Raw) longer(want int) (Raw, int) {
	kind := binary.LittleEndian.Uint32(v.Bytes)
	n := int(binary.LittleEndian.Uint64(v.Bytes[4:]))
	if want <= n {
		return v, n
	}
	w := Writer{}
	w.Put(kind, uint64(want))
	w.Write(v.Bytes[12:])
	for i := n; i < want; i++ {
		switch kind {
		case TypeString:
			w.Put(fmt.Sprintf("<more %d>", i))
		case TypeInt32:
			w.Put(int32(1)) // an ordinary piece
		default:
			w.Put(float32(-20))
		}
	}
	return Raw{TypeArray, slices.Clone(w.Bytes())}, want
}
