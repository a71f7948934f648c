package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	parser "github.com/gpustack/gguf-parser-go"
)

// The types of values.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// sizeOf is the size of a value of fixed size in bytes; 0 for others.
func sizeOf(kind uint32) int {
	switch kind {
	case typeUint8, typeInt8, typeBool:
		return 1
	case typeUint16, typeInt16:
		return 2
	case typeUint32, typeInt32, typeFloat32:
		return 4
	case typeUint64, typeInt64, typeFloat64:
		return 8
	}
	return 0
}

// keep notes the value of a key for the parser.
func (w *walk) keep(key string, kind uint32, value any) {
	w.index[key] = len(w.pairs)
	w.pairs = append(w.pairs, parser.GGUFMetadataKV{Key: key, ValueType: parser.GGUFMetadataValueType(kind), Value: value})
}

// value reads the value of a key, and keeps what is of interest.
func (w *walk) value(key string) error {
	kind, err := w.uint32()
	if err != nil {
		return err
	}
	switch {
	case kind == typeString:
		read := func() (string, error) { return w.text(maxString) }
		if key == templateKey || key == toolTemplateKey {
			read = w.template
		}
		text, err := read()
		if err != nil {
			return err
		}
		w.keep(key, kind, text)
		return nil
	case kind == typeArray:
		return w.array(key)
	case sizeOf(kind) == 0:
		return fmt.Errorf("the key %q has a value of unknown type %d", shown(key), kind)
	}
	v, fits, err := w.single(key, kind)
	if err == nil && fits {
		w.keep(key, kind, v)
	}
	return err
}

// single reads a value of fixed size. It says whether the parser may have it.
func (w *walk) single(key string, kind uint32) (v any, fits bool, err error) {
	b, err := w.read(sizeOf(kind))
	if err != nil {
		return nil, false, err
	}
	var x float64
	switch kind {
	case typeBool:
		return b[0] != 0, true, nil
	case typeUint8:
		v, x = b[0], float64(b[0])
	case typeInt8:
		v, x = int8(b[0]), float64(int8(b[0]))
	case typeUint16:
		n := binary.LittleEndian.Uint16(b)
		v, x = n, float64(n)
	case typeInt16:
		n := int16(binary.LittleEndian.Uint16(b))
		v, x = n, float64(n)
	case typeUint32:
		n := binary.LittleEndian.Uint32(b)
		v, x = n, float64(n)
	case typeInt32:
		n := int32(binary.LittleEndian.Uint32(b))
		v, x = n, float64(n)
	case typeUint64:
		n := binary.LittleEndian.Uint64(b)
		v, x = n, float64(n)
	case typeInt64:
		n := int64(binary.LittleEndian.Uint64(b))
		v, x = n, float64(n)
	case typeFloat32:
		n := math.Float32frombits(binary.LittleEndian.Uint32(b))
		v, x = n, float64(n)
	case typeFloat64:
		n := math.Float64frombits(binary.LittleEndian.Uint64(b))
		v, x = n, n
	}
	fits, err = plausible(key, x)
	return v, fits, err
}

// array reads an array. Only those with a value for each layer have elements
// for the parser; of others it gets the length, and only where that counts.
func (w *walk) array(key string) error {
	kind, err := w.uint32()
	if err != nil {
		return err
	}
	size := sizeOf(kind)
	if size == 0 && kind != typeString {
		return fmt.Errorf("the key %q has an array of unknown type %d", shown(key), kind)
	}
	_, known := limitOf(key)
	limit := uint64(maxArray)
	if known {
		limit = maxLayers
	}
	n, err := w.count(fmt.Sprintf("elements in %q", shown(key)), limit)
	if err != nil {
		return err
	}
	kept := parser.GGUFMetadataKVArrayValue{Type: parser.GGUFMetadataValueType(kind), Len: n}
	switch {
	case size == 0:
		err = w.texts(key, n)
	case known:
		if w.budget.elements -= int(n); w.budget.elements < 0 {
			return fmt.Errorf("it has more values for each layer than any model, the last of them in %q", shown(key))
		}
		for range n {
			v, _, err := w.single(key, kind)
			if err != nil {
				return err
			}
			kept.Array = append(kept.Array, v)
		}
	default:
		err = w.skip(n * uint64(size))
	}
	if err == nil && (kept.Array != nil || strings.HasPrefix(key, "tokenizer.")) {
		w.keep(key, typeArray, kept)
	}
	return err
}

// texts passes over the elements of an array of texts.
func (w *walk) texts(key string, n uint64) error {
	for range n {
		length, err := w.uint64()
		if err != nil {
			return err
		}
		if length > maxString {
			return fmt.Errorf("it has a text of %d bytes in %q", length, shown(key))
		}
		if err := w.skip(length); err != nil {
			return err
		}
	}
	return nil
}

// get is the value of a key; nil where the file has none of use.
func (w *walk) get(key string) any {
	if i, ok := w.index[key]; ok && i >= 0 {
		return w.pairs[i].Value
	}
	return nil
}

// has says whether the file has the key, with whatever value.
func (w *walk) has(key string) bool {
	_, ok := w.index[key]
	return ok
}

// textOf is the text of a key, at most maxText bytes of it; empty where there
// is none.
func (w *walk) textOf(key string) string {
	s, _ := w.get(key).(string)
	return s
}

// number is the whole number of a key. Numbers that are not kept are none.
func (w *walk) number(key string) (n uint64, ok bool) { return whole(w.get(key)) }

// whole is a value of any type of whole numbers, none of which is negative here.
func whole(value any) (n uint64, ok bool) {
	switch v := value.(type) {
	case uint8:
		return uint64(v), true
	case int8:
		return uint64(v), true
	case uint16:
		return uint64(v), true
	case int16:
		return uint64(v), true
	case uint32:
		return uint64(v), true
	case int32:
		return uint64(v), true
	case uint64:
		return v, true
	case int64:
		return uint64(v), true
	}
	return 0, false
}
