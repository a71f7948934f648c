package gguf

import (
	"fmt"
	"math"
	"strings"
)

// Bounds on the headers of all files of a model together, all far above those
// of real models: the largest known have some 2,000 tensors, 130 layers, 260,000
// pieces in the vocabulary and 20 MiB of header.
const (
	maxHeader    = 256 << 20 // bytes
	maxParts     = 1000
	maxPairs     = 1 << 13 // keys with values: three in each further part
	maxTensors   = 1 << 14
	maxKey       = 1 << 10 // bytes
	maxText      = 1 << 10 // bytes that are kept of a text
	maxTemplates = 1 << 20 // bytes of chat templates that are looked into: real ones have up to 40 KiB
	maxString    = 32 << 20
	maxArray     = 1 << 24       // elements, of texts
	maxLayers    = 1 << 10       // and elements of arrays with one for each: llama.cpp takes 512
	maxElements  = 1 << 14       // of all such arrays
	maxName      = 63            // bytes of a tensor's name: GGML_MAX_NAME, with its end
	maxDimension = math.MaxInt32 // of a tensor
	maxData      = 1 << 48       // bytes of tensors
	maxAlignment = 1 << 16
	maxNumber    = 1 << 40 // any number that the parser gets
)

// limitOf is the largest number that a key may have, for the keys by which the
// parser counts, allocates or multiplies; it reads them by how they end, behind
// a name that the file chooses. No real model comes near the limits. With them,
// no product that the parser forms passes 64 bits but for those that grow with
// the context, which Memory checks.
func limitOf(key string) (limit uint64, known bool) {
	switch key {
	case "split.tensors.count":
		return maxTensors, true
	case "split.count", "split.no":
		return math.MaxUint16, true
	}
	switch key[strings.LastIndexByte(key, '.')+1:] {
	case "block_count", "layer_count", "shared_kv_layers", "nextn_predict_layers", "full_attention_interval", "sliding_window_pattern",
		"rescale_every_n_layers", "n_wa_pattern":
		return maxLayers, true
	case "context_length", "original_context_length", "sliding_window":
		return math.MaxInt32, true
	case "vocab_size":
		return maxArray, true
	case "feed_forward_length", "expert_feed_forward_length", "expert_shared_feed_forward_length":
		return 1 << 24, true
	case "embedding_length", "inner_size", "projection_dim":
		return 1 << 20, true
	case "key_length", "value_length", "key_length_mla", "value_length_mla", "key_length_swa", "value_length_swa", "head_size",
		"q_lora_rank", "kv_lora_rank", "time_step_rank", "dimension_count", "time_mix_extra_dim", "time_decay_extra_dim", "num_mel_bins":
		return 1 << 16, true
	case "state_size", "head_dim", "image_size", "patch_size":
		return 1 << 13, true
	case "head_count", "head_count_kv", "expert_count", "expert_used_count", "expert_shared_count", "group_count":
		return 1 << 12, true
	case "conv_kernel", "l_cache", "token_shift_count", "scale_factor", "stack_factor":
		return 1 << 10, true
	case "spatial_merge_size":
		return 1 << 6, true
	}
	return maxNumber, false
}

// plausible refuses a number that no model has; v is any number's nearest
// float64. It says whether the number may go to the parser: numbers that mean
// nothing to it go there only if they are small.
func plausible(key string, v float64) (bool, error) {
	limit, known := limitOf(key)
	fits := v >= 0 && v <= float64(limit) // and is a number at all
	if known && !fits {
		verb := "%.0f"
		if v != math.Trunc(v) || math.Abs(v) > 1<<64 {
			verb = "%g"
		}
		return false, fmt.Errorf("it says that %q is "+verb+", which no model has", shown(key), v)
	}
	return fits, nil
}
