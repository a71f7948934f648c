package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// Projector is a multimodal projector that llama.cpp loads beside a model of
// that width: a vision tower of one block with random weights for images of 32
// by 32 pixels, and a layer that turns each of its 16 patches into a vector of
// the model's width. What it sees means nothing to any model.
func Projector(width int) File {
	const (
		image, patch  = 32, 8
		embed, hidden = 32, 64
		// llama.cpp leaves out the last block of such a tower.
		blocks = 2
	)
	random := rand.New(rand.NewPCG(1, 2))
	f := File{Pairs: []Pair{
		{"general.architecture", "clip"},
		{"general.type", "mmproj"},
		{"general.name", "relay-tiny projector"},
		{"general.file_type", uint32(0)},
		{"clip.has_vision_encoder", true},
		{"clip.projector_type", "mlp"},
		{"clip.use_gelu", true},
		{"clip.vision.image_size", uint32(image)},
		{"clip.vision.patch_size", uint32(patch)},
		{"clip.vision.embedding_length", uint32(embed)},
		{"clip.vision.feed_forward_length", uint32(hidden)},
		{"clip.vision.projection_dim", uint32(width)},
		{"clip.vision.block_count", uint32(blocks)},
		{"clip.vision.attention.head_count", uint32(2)},
		{"clip.vision.attention.layer_norm_epsilon", float32(1e-5)},
		{"clip.vision.image_mean", []float32{0.5, 0.5, 0.5}},
		{"clip.vision.image_std", []float32{0.5, 0.5, 0.5}},
	}}
	add := func(name string, dims ...uint64) {
		n := uint64(1)
		for _, d := range dims {
			n *= d
		}
		data := make([]byte, 0, 4*n)
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(random.Float32()/8-1./16))
		}
		f.Tensors = append(f.Tensors, Tensor{name, F32, dims, data})
	}
	layer := func(name string, in, out uint64) {
		add(name+".weight", in, out)
		add(name+".bias", out)
	}
	add("v.patch_embd.weight", patch, patch, 3, embed)
	add("v.position_embd.weight", embed, image/patch*image/patch)
	for i := range blocks {
		block := fmt.Sprintf("v.blk.%d.", i)
		for _, norm := range []string{"ln1", "ln2"} {
			add(block+norm+".weight", embed)
			add(block+norm+".bias", embed)
		}
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_out"} {
			layer(block+name, embed, embed)
		}
		layer(block+"ffn_up", embed, hidden)
		layer(block+"ffn_down", hidden, embed)
	}
	layer("mm.0", embed, uint64(width))
	layer("mm.2", uint64(width), uint64(width))
	return f
}
