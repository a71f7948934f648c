package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

// chatTemplate writes a conversation as sampler.document does.
const chatTemplate = `{{ bos_token }}
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{ '<|system|>' + message['content'] }}
{%- elif message['role'] == 'user' %}{{ '<|user|>' + message['content'] }}
{%- elif message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + eos_token }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}`

// alignment is what the data of each tensor is aligned to, in bytes.
const alignment = 32

// contextLength is what the file declares. RoPE has no limit of its own, so a
// model works beyond the length that it was trained on, if not as well.
const contextLength = 2048

const description = "A tiny model for demos and tests of relay, trained from scratch " +
	"on its corpus.txt with sequences of up to %d tokens. llama.context_length says %d so that " +
	"longer chats are accepted, but it may answer worse there."

// A ggufWriter collects the key/value part of a GGUF file.
type ggufWriter struct {
	bytes.Buffer
	pairs uint64
}

func (w *ggufWriter) put(v any) { binary.Write(w, binary.LittleEndian, v) }

func (w *ggufWriter) str(s string) {
	w.put(uint64(len(s)))
	w.WriteString(s)
}

// kv adds a key with a value of one of the types that the format knows.
func (w *ggufWriter) kv(key string, value any) {
	w.pairs++
	w.str(key)
	array := func(kind uint32, n int) {
		w.put([]uint32{9, kind})
		w.put(uint64(n))
	}
	switch v := value.(type) {
	case int:
		w.put([]uint32{4, uint32(v)})
	case float64:
		w.put(uint32(6))
		w.put(float32(v))
	case bool:
		w.put(uint32(7))
		w.put(v)
	case string:
		w.put(uint32(8))
		w.str(v)
	case []int32:
		array(5, len(v))
		w.put(v)
	case []float32:
		array(6, len(v))
		w.put(v)
	case []string:
		array(8, len(v))
		for _, s := range v {
			w.str(s)
		}
	default:
		panic(fmt.Sprintf("gguf: %s has the unknown type %T", key, value))
	}
}

// export writes ck as a GGUF file (version 3) with F16 matrices and F32 norms.
func export(ck *checkpoint, name string) error {
	m := newModel(ck.Config, 1, 0)
	c := ck.Config
	var w ggufWriter
	w.kv("general.architecture", "llama")
	w.kv("general.type", "model")
	w.kv("general.name", "relay-tiny")
	w.kv("general.size_label", fmt.Sprintf("%dK", (m.size()+500)/1000))
	w.kv("general.description", fmt.Sprintf(description, ck.MaxLen, contextLength))
	w.kv("general.file_type", 1) // mostly F16
	w.kv("general.alignment", alignment)
	w.kv("llama.context_length", contextLength)
	w.kv("llama.embedding_length", c.Dim)
	w.kv("llama.block_count", c.Layers)
	w.kv("llama.feed_forward_length", c.FFN)
	w.kv("llama.attention.head_count", c.Heads)
	w.kv("llama.attention.head_count_kv", c.KVHeads)
	w.kv("llama.attention.key_length", c.HeadDim)
	w.kv("llama.attention.value_length", c.HeadDim)
	w.kv("llama.attention.layer_norm_rms_epsilon", c.NormEps)
	w.kv("llama.rope.dimension_count", c.HeadDim)
	w.kv("llama.rope.freq_base", c.RopeBase)
	w.kv("llama.vocab_size", c.Vocab)

	var texts []string
	var scores []float32
	var types []int32
	for _, p := range ck.Pieces {
		texts, scores, types = append(texts, p.Text), append(scores, p.Score), append(types, p.Type)
	}
	w.kv("tokenizer.ggml.model", "llama")
	w.kv("tokenizer.ggml.pre", "default")
	w.kv("tokenizer.ggml.tokens", texts)
	w.kv("tokenizer.ggml.scores", scores)
	w.kv("tokenizer.ggml.token_type", types)
	w.kv("tokenizer.ggml.unknown_token_id", idUnknown)
	w.kv("tokenizer.ggml.bos_token_id", idBegin)
	w.kv("tokenizer.ggml.eos_token_id", idEnd)
	w.kv("tokenizer.ggml.add_bos_token", true)
	w.kv("tokenizer.ggml.add_eos_token", false)
	w.kv("tokenizer.ggml.add_space_prefix", false)
	w.kv("tokenizer.chat_template", chatTemplate)

	var infos, data ggufWriter
	for i, p := range m.params {
		infos.str(p.name)
		if kind, offset := uint32(1), uint64(data.Len()); p.rows > 1 {
			infos.put(uint32(2))
			infos.put([]uint64{uint64(p.cols), uint64(p.rows)})
			infos.put(kind)
			infos.put(offset)
			for _, x := range ck.Weights[i] {
				data.put(toHalf(x))
			}
		} else {
			infos.put(uint32(1))
			infos.put(uint64(p.cols))
			infos.put(uint32(0))
			infos.put(offset)
			data.put(ck.Weights[i])
		}
		data.pad(alignment)
	}

	var file ggufWriter
	file.WriteString("GGUF")
	file.put(uint32(3))
	file.put([]uint64{uint64(len(m.params)), w.pairs})
	file.Write(w.Bytes())
	file.Write(infos.Bytes())
	file.pad(alignment)
	file.Write(data.Bytes())
	return os.WriteFile(name, file.Bytes(), 0o644)
}

func (w *ggufWriter) pad(alignment int) {
	for w.Len()%alignment != 0 {
		w.WriteByte(0)
	}
}

// toHalf rounds to the nearest half-precision number, ties to even.
func toHalf(x float32) uint16 {
	b := math.Float32bits(x)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b >= 0x47800000: // too large
		return sign | 0x7c00
	case b < 0x38800000: // subnormal: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*(1<<24)))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}

// fromHalf is the value of a finite half-precision number.
func fromHalf(h uint16) float32 {
	exp, frac := int(h>>10&31), float64(h&1023)
	x := math.Ldexp(frac, -24)
	if exp > 0 {
		x = math.Ldexp(1024+frac, exp-25)
	}
	if h&0x8000 != 0 {
		x = -x
	}
	return float32(x)
}
