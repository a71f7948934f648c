package gguftest

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Parse takes a right GGUF file apart: all its values are Raw. A wrong one gets
// an error, if not always a good one.
func Parse(data []byte) (f File, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("no GGUF file: %v", e)
		}
	}()
	r := reader{data: data}
	if string(r.next(4)) != "GGUF" {
		return File{}, errors.New("no GGUF file")
	}
	f.Version = r.uint32()
	tensors, pairs := r.uint64(), r.uint64()
	for range pairs {
		p := Pair{Key: r.text()}
		kind, start := r.uint32(), r.at
		r.skip(kind)
		p.Value = Raw{kind, data[start:r.at]}
		f.Pairs = append(f.Pairs, p)
	}
	offsets := make([]int, 0, 16)
	for range tensors {
		t := Tensor{Name: r.text()}
		for range r.uint32() {
			t.Dims = append(t.Dims, r.uint64())
		}
		t.Type = r.uint32()
		f.Tensors = append(f.Tensors, t)
		offsets = append(offsets, int(r.uint64()))
	}
	align := f.alignment()
	start := padded(r.at, align)
	for i := range f.Tensors {
		// The padding behind the data does no harm as a part of it.
		end := len(data) - start
		if i+1 < len(offsets) {
			end = offsets[i+1]
		}
		f.Tensors[i].Data = data[start+offsets[i] : start+end]
	}
	return f, nil
}

// A reader reads a right file, and panics at the end of the data.
type reader struct {
	data []byte
	at   int
}

func (r *reader) next(n int) []byte {
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }
func (r *reader) text() string   { return string(r.next(int(r.uint64()))) }

// skip passes over a value.
func (r *reader) skip(kind uint32) {
	switch kind {
	case TypeUint8, TypeInt8, TypeBool:
		r.next(1)
	case TypeUint16, TypeInt16:
		r.next(2)
	case TypeUint32, TypeInt32, TypeFloat32:
		r.next(4)
	case TypeUint64, TypeInt64, TypeFloat64:
		r.next(8)
	case TypeString:
		r.text()
	case TypeArray:
		kind := r.uint32()
		for range r.uint64() {
			r.skip(kind)
		}
	default:
		panic(fmt.Sprintf("a value of type %d", kind))
	}
}
