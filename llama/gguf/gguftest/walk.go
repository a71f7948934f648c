package gguftest

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// A Walk is a model that llama.cpp loads and runs, and whose every token follows
// from the one before it alone, over the edges of a graph: what it may say is
// known without an engine, and whether an answer goes on rightly behind a place
// can be told for each place. Only what is asked for besides, such as penalties
// or a bias, makes it look further back.
type Walk struct {
	// Edges are the tokens that may follow a token, the likeliest first: each is
	// half a nat less likely than the one before, and all others are 30 nats less
	// likely than the first. A token without edges is followed by any.
	Edges map[int][]int
	// Texts are those of some tokens, instead of their own. They are in the text of
	// an answer, and are looked for in every prompt.
	Texts map[int]string
	// Template is the chat template; empty for that of the model it is made from.
	Template string
	// Work is the width of a layer that does nothing but take time.
	Work int
}

const (
	// walkWidth is how many tokens can be told apart without a doubt.
	walkWidth = 1024
	likely    = 30
)

// userDefined is llama.cpp's type of tokens that are cut out of a text first.
const userDefined = 4

// File is the model, with the vocabulary of another one that Parse has taken
// apart, which has at most 1024 tokens.
func (w Walk) File(from File) File {
	var f File
	tokens := 0
	for _, p := range from.Pairs {
		v, ok := p.Value.(Raw)
		switch p.Key {
		case "tokenizer.ggml.tokens":
			texts := v.texts()
			tokens = len(texts)
			for id, text := range w.Texts {
				texts[id] = text
			}
			p.Value = texts
		case "tokenizer.ggml.token_type":
			types := make([]int32, len(v.Bytes[12:])/4)
			for i := range types {
				types[i] = int32(binary.LittleEndian.Uint32(v.Bytes[12+4*i:]))
			}
			for id := range w.Texts {
				types[id] = userDefined
			}
			p.Value = types
		}
		if ok && strings.HasPrefix(p.Key, "tokenizer.") {
			f.Pairs = append(f.Pairs, p)
		}
	}
	if tokens > walkWidth {
		panic("a walk is over 1024 tokens at most")
	}
	if w.Template != "" {
		f = f.With("tokenizer.chat_template", w.Template)
	}
	const head = 128
	f.Pairs = append([]Pair{
		{"general.architecture", "llama"},
		{"general.name", "walk"},
		{"llama.context_length", uint32(4096)},
		{"llama.embedding_length", uint32(walkWidth)},
		{"llama.block_count", uint32(1)},
		{"llama.feed_forward_length", uint32(w.Work)},
		{"llama.attention.head_count", uint32(walkWidth / head)},
		{"llama.attention.head_count_kv", uint32(1)},
		{"llama.attention.key_length", uint32(head)},
		{"llama.attention.value_length", uint32(head)},
		{"llama.rope.dimension_count", uint32(head)},
		{"llama.attention.layer_norm_rms_epsilon", float32(1e-6)},
	}, f.Pairs...)

	ones := make([]byte, 0, 4*walkWidth)
	for range walkWidth {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
	}
	norm := func(name string) {
		f.Tensors = append(f.Tensors, Tensor{name, F32, []uint64{walkWidth}, ones})
	}
	nothing := func(name string, in, out int) {
		t := Tensor{Name: name, Type: Q8_0, Dims: []uint64{uint64(in), uint64(out)}}
		t.Data = make([]byte, t.bytes())
		f.Tensors = append(f.Tensors, t)
	}
	embedded, rows := w.weights(tokens)
	f.Tensors = append(f.Tensors, Tensor{"token_embd.weight", F32, []uint64{walkWidth, uint64(tokens)}, embedded})
	norm("blk.0.attn_norm.weight")
	nothing("blk.0.attn_q.weight", walkWidth, walkWidth)
	nothing("blk.0.attn_k.weight", walkWidth, head)
	nothing("blk.0.attn_v.weight", walkWidth, head)
	nothing("blk.0.attn_output.weight", walkWidth, walkWidth)
	norm("blk.0.ffn_norm.weight")
	nothing("blk.0.ffn_gate.weight", walkWidth, w.Work)
	nothing("blk.0.ffn_up.weight", walkWidth, w.Work)
	nothing("blk.0.ffn_down.weight", w.Work, walkWidth)
	norm("output_norm.weight")
	f.Tensors = append(f.Tensors, Tensor{"output.weight", F32, []uint64{walkWidth, uint64(tokens)}, rows})
	return f
}

// weights are the vectors of the tokens, each at a right angle to all others
// (Sylvester's matrix), and the rows that make the logits: of a token those of
// the tokens that it may follow.
func (w Walk) weights(tokens int) (embedded, rows []byte) {
	at := func(id, i int) float32 { return 1 - 2*float32(bits.OnesCount(uint(id&i))&1) }
	out := make([]float32, walkWidth*tokens)
	for from, list := range w.Edges {
		for nth, to := range list {
			for i := range walkWidth {
				out[to*walkWidth+i] += (likely - float32(nth)/2) / walkWidth * at(from, i)
			}
		}
	}
	for id := range tokens {
		for i := range walkWidth {
			embedded = binary.LittleEndian.AppendUint32(embedded, math.Float32bits(at(id, i)))
		}
	}
	for _, x := range out {
		rows = binary.LittleEndian.AppendUint32(rows, math.Float32bits(x))
	}
	return embedded, rows
}

// texts is an array of strings.
func (v Raw) texts() []string {
	r := reader{data: v.Bytes, at: 4}
	list := make([]string, r.uint64())
	for i := range list {
		list[i] = r.text()
	}
	return list
}

// Pieces are the texts of a vocabulary's tokens as they are in an answer, where it
// is one of SentencePiece. Those of control tokens are in none.
func (f File) Pieces() []string {
	for _, p := range f.Pairs {
		if p.Key != "tokenizer.ggml.tokens" {
			continue
		}
		texts := p.Value.(Raw).texts()
		for i, text := range texts {
			if b, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(text, "<0x"), ">"), 16, 8); err == nil && len(text) == len("<0x00>") {
				texts[i] = string([]byte{byte(b)})
			} else {
				texts[i] = strings.ReplaceAll(text, "▁", " ")
			}
		}
		return texts
	}
	return nil
}
