package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Numbers of types of tensors.
const (
	F32 uint32 = 0
	F16 uint32 = 1
)

// A File is what a GGUF file holds.
type File struct {
	// Version of the format; 0 means 3.
	Version uint32
	Pairs   []Pair
	Tensors []Tensor
}

// A Pair is a key with its value: a number of a fixed size, a bool, a string, a
// slice of one of these, or Raw.
type Pair struct {
	Key   string
	Value any
}

// Raw is a value as it lies in a file, behind its type.
type Raw struct {
	Type  uint32
	Bytes []byte
}

// A Tensor lies in the file as its Data say, whatever its type and shape.
type Tensor struct {
	Name string
	Type uint32
	Dims []uint64
	Data []byte
}

// With is the file with a key set: in its old place, or as the last one.
func (f File) With(key string, value any) File {
	f.Pairs = slices.Clone(f.Pairs)
	for i, p := range f.Pairs {
		if p.Key == key {
			f.Pairs[i].Value = value
			return f
		}
	}
	f.Pairs = append(f.Pairs, Pair{key, value})
	return f
}

// Without is the file without a key.
func (f File) Without(key string) File {
	f.Pairs = slices.DeleteFunc(slices.Clone(f.Pairs), func(p Pair) bool { return p.Key == key })
	return f
}

// alignment is what the data of each tensor is aligned to, in bytes.
func (f File) alignment() int {
	for _, p := range f.Pairs {
		if p.Key != "general.alignment" {
			continue
		}
		switch v := p.Value.(type) {
		case uint32:
			return int(v)
		case Raw:
			return int(binary.LittleEndian.Uint32(v.Bytes))
		}
	}
	return 32
}

// Bytes is the file. It panics where a value is of no type that the format has.
func (f File) Bytes() []byte {
	var w Writer
	w.WriteString("GGUF")
	if f.Version == 0 {
		f.Version = 3
	}
	w.Put(f.Version, uint64(len(f.Tensors)), uint64(len(f.Pairs)))
	for _, p := range f.Pairs {
		w.Put(p.Key)
		w.value(p.Value)
	}
	at, align := 0, f.alignment()
	for _, t := range f.Tensors {
		w.Put(t.Name, uint32(len(t.Dims)), t.Dims, t.Type, uint64(at))
		at += padded(len(t.Data), align)
	}
	w.Pad(align)
	for _, t := range f.Tensors {
		w.Write(t.Data)
		w.Pad(align)
	}
	return w.Bytes()
}

func padded(n, align int) int { return (n + align - 1) / align * align }

// A Writer collects the bytes of a file. The zero value is empty.
type Writer struct{ bytes.Buffer }

// Put adds numbers and slices of them as they are, and strings behind their
// length.
func (w *Writer) Put(values ...any) *Writer {
	for _, v := range values {
		if s, ok := v.(string); ok {
			w.Put(uint64(len(s)))
			w.WriteString(s)
		} else if err := binary.Write(w, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return w
}

// Pad adds zeros up to a multiple of align.
func (w *Writer) Pad(align int) *Writer {
	w.Write(make([]byte, padded(w.Len(), align)-w.Len()))
	return w
}

// The types of values, as the format numbers them.
const (
	TypeUint8 uint32 = iota
	TypeInt8
	TypeUint16
	TypeInt16
	TypeUint32
	TypeInt32
	TypeFloat32
	TypeBool
	TypeString
	TypeArray
	TypeUint64
	TypeInt64
	TypeFloat64
)

// value adds a value behind its type.
func (w *Writer) value(value any) {
	list := func(kind uint32, n int) {
		w.Put(TypeArray, kind, uint64(n), value)
	}
	switch v := value.(type) {
	case Raw:
		w.Put(v.Type)
		w.Write(v.Bytes)
	case uint8:
		w.Put(TypeUint8, v)
	case int8:
		w.Put(TypeInt8, v)
	case uint16:
		w.Put(TypeUint16, v)
	case int16:
		w.Put(TypeInt16, v)
	case uint32:
		w.Put(TypeUint32, v)
	case int32:
		w.Put(TypeInt32, v)
	case float32:
		w.Put(TypeFloat32, v)
	case bool:
		w.Put(TypeBool, v)
	case string:
		w.Put(TypeString, v)
	case uint64:
		w.Put(TypeUint64, v)
	case int64:
		w.Put(TypeInt64, v)
	case float64:
		w.Put(TypeFloat64, v)
	case []uint8:
		list(TypeUint8, len(v))
	case []int8:
		list(TypeInt8, len(v))
	case []uint16:
		list(TypeUint16, len(v))
	case []int16:
		list(TypeInt16, len(v))
	case []uint32:
		list(TypeUint32, len(v))
	case []int32:
		list(TypeInt32, len(v))
	case []float32:
		list(TypeFloat32, len(v))
	case []bool:
		list(TypeBool, len(v))
	case []uint64:
		list(TypeUint64, len(v))
	case []int64:
		list(TypeInt64, len(v))
	case []float64:
		list(TypeFloat64, len(v))
	case []string:
		w.Put(TypeArray, TypeString, uint64(len(v)))
		for _, s := range v {
			w.Put(s)
		}
	default:
		panic(fmt.Sprintf("no GGUF file holds a %T", value))
	}
}
