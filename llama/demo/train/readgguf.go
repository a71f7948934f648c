package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
)

// readGGUF reads a file that export wrote. It knows no other kind.
func readGGUF(name string) (_ *checkpoint, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &ggufReader{data: data}
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%s is not a file that export wrote: %v", name, e)
		}
	}()
	if string(r.next(4)) != "GGUF" || r.u32() != 3 {
		return nil, errors.New(name + " is not a GGUF file of version 3")
	}
	tensors, pairs := r.u64(), r.u64()
	kv := map[string]any{}
	for range pairs {
		key := r.str()
		kv[key] = r.value(r.u32())
	}
	number := func(key string) int { return int(kv[key].(uint32)) }
	ck := &checkpoint{Config: Config{
		Vocab: number("llama.vocab_size"), Dim: number("llama.embedding_length"), Layers: number("llama.block_count"),
		Heads: number("llama.attention.head_count"), KVHeads: number("llama.attention.head_count_kv"),
		HeadDim: number("llama.attention.key_length"), FFN: number("llama.feed_forward_length"),
		NormEps: kv["llama.attention.layer_norm_rms_epsilon"].(float64), RopeBase: kv["llama.rope.freq_base"].(float64),
	}}
	before, _, _ := strings.Cut(description, "%d")
	if _, err := fmt.Sscanf(strings.TrimPrefix(kv["general.description"].(string), before), "%d", &ck.MaxLen); err != nil {
		return nil, fmt.Errorf("%s: no length of sequences in its description: %w", name, err)
	}
	texts, scores, types := kv["tokenizer.ggml.tokens"].([]any), kv["tokenizer.ggml.scores"].([]any), kv["tokenizer.ggml.token_type"].([]any)
	for i := range texts {
		ck.Pieces = append(ck.Pieces, Piece{texts[i].(string), float32(scores[i].(float64)), types[i].(int32)})
	}
	type tensor struct {
		name     string
		elements int
		half     bool
		offset   int
	}
	var list []tensor
	for range tensors {
		t := tensor{name: r.str(), elements: 1}
		for range r.u32() {
			t.elements *= int(r.u64())
		}
		t.half = r.u32() == 1
		t.offset = int(r.u64())
		list = append(list, t)
	}
	start := (r.at + alignment - 1) / alignment * alignment
	for i, p := range newModel(ck.Config, 1, 0).params {
		t := list[i]
		if t.name != p.name || t.elements != p.rows*p.cols {
			return nil, fmt.Errorf("%s has the tensor %s of %d elements where %s belongs", name, t.name, t.elements, p.name)
		}
		r.at = start + t.offset
		w := make([]float32, t.elements)
		for j := range w {
			if t.half {
				w[j] = fromHalf(binary.LittleEndian.Uint16(r.next(2)))
			} else {
				w[j] = math.Float32frombits(r.u32())
			}
		}
		ck.Weights = append(ck.Weights, w)
	}
	return ck, nil
}

// A ggufReader reads what a ggufWriter writes. It panics at the end of the data.
type ggufReader struct {
	data []byte
	at   int
}

func (r *ggufReader) next(n int) []byte {
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *ggufReader) u32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }
func (r *ggufReader) u64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }
func (r *ggufReader) str() string { return string(r.next(int(r.u64()))) }

func (r *ggufReader) value(kind uint32) any {
	switch kind {
	case 4:
		return r.u32()
	case 5:
		return int32(r.u32())
	case 6:
		return float64(math.Float32frombits(r.u32()))
	case 7:
		return r.next(1)[0] != 0
	case 8:
		return r.str()
	case 9:
		kind := r.u32()
		list := make([]any, r.u64())
		for i := range list {
			list[i] = r.value(kind)
		}
		return list
	}
	panic(fmt.Sprintf("a value of type %d", kind))
}
