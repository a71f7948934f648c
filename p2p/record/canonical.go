package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// checkCanonical says what keeps data from being exactly one CBOR item in the
// core deterministic form (RFC 8949, section 4.2.1): shortest heads, definite
// lengths, map keys unique and in bytewise order, shortest floats. Beyond that
// form it refuses tags, simple values other than true, false and null, keys
// that are neither integers nor text, text that is not UTF-8, integers below
// the range of int64, and nesting deeper than maxDepth.
//
// The decoder alone would take several encodings for one value, and a record
// could then be passed on in a form that its signer never wrote.
func checkCanonical(data []byte) error {
	w := walker{data: data}
	if err := w.item(0); err != nil {
		return fmt.Errorf("at byte %d: %w", w.pos, err)
	}
	if w.pos != len(data) {
		return fmt.Errorf("%d bytes after the end", len(data)-w.pos)
	}
	return nil
}

var (
	errShort      = errors.New("cut short")
	errHead       = errors.New("a length or number not in its shortest form")
	errIndefinite = errors.New("an indefinite length")
	errOrder      = errors.New("map keys out of order or doubled")
	errForbidden  = errors.New("an item of a type that records do not use")
	errDeep       = errors.New("nested too deep")
	errMany       = errors.New("too many elements")
	errUTF8       = errors.New("text that is not UTF-8")
)

type walker struct {
	data []byte
	pos  int
}

const (
	majorUint = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorTag
	majorSimple
)

// head reads an item's type and argument.
func (w *walker) head() (major byte, info byte, arg uint64, err error) {
	if w.pos >= len(w.data) {
		return 0, 0, 0, errShort
	}
	b := w.data[w.pos]
	w.pos++
	major, info = b>>5, b&0x1f
	rest := w.data[w.pos:]
	var size int
	switch {
	case info < 24:
		return major, info, uint64(info), nil
	case info == 31:
		return 0, 0, 0, errIndefinite
	case info > 27:
		return 0, 0, 0, errForbidden
	default:
		size = 1 << (info - 24)
	}
	if len(rest) < size {
		return 0, 0, 0, errShort
	}
	var least uint64
	switch size {
	case 1:
		arg, least = uint64(rest[0]), 24
	case 2:
		arg, least = uint64(binary.BigEndian.Uint16(rest)), math.MaxUint8+1
	case 4:
		arg, least = uint64(binary.BigEndian.Uint32(rest)), math.MaxUint16+1
	case 8:
		arg, least = binary.BigEndian.Uint64(rest), math.MaxUint32+1
	}
	w.pos += size
	if major != majorSimple && arg < least {
		return 0, 0, 0, errHead
	}
	return major, info, arg, nil
}

func (w *walker) item(depth int) error {
	start := w.pos
	major, info, arg, err := w.head()
	if err != nil {
		return err
	}
	switch major {
	case majorUint:
		return nil
	case majorNegative:
		if arg > math.MaxInt64 {
			return errForbidden
		}
		return nil
	case majorBytes, majorText:
		if arg > uint64(len(w.data)-w.pos) {
			return errShort
		}
		body := w.data[w.pos : w.pos+int(arg)]
		if major == majorText && !utf8.Valid(body) {
			return errUTF8
		}
		w.pos += int(arg)
		return nil
	case majorArray, majorMap:
		if depth >= maxDepth {
			return errDeep
		}
		if arg > maxElements {
			return errMany
		}
		if major == majorMap {
			return w.pairs(arg, depth+1)
		}
		for range arg {
			if err := w.item(depth + 1); err != nil {
				return err
			}
		}
		return nil
	case majorSimple:
		switch info {
		case 20, 21, 22: // false, true, null
			return nil
		case 25, 26, 27:
			return shortestFloat(w.data[start:w.pos])
		}
	}
	return errForbidden
}

func (w *walker) pairs(n uint64, depth int) error {
	var last []byte
	for i := range n {
		start := w.pos
		if start < len(w.data) {
			switch w.data[start] >> 5 {
			case majorUint, majorNegative, majorText:
			default:
				return errForbidden
			}
		}
		if err := w.item(depth); err != nil {
			return err
		}
		key := w.data[start:w.pos]
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return errOrder
		}
		last = key
		if err := w.item(depth); err != nil {
			return err
		}
	}
	return nil
}

// shortestFloat says whether a float is the one that the encoder would write.
func shortestFloat(item []byte) error {
	var f float64
	if err := cbor.Unmarshal(item, &f); err != nil {
		return err
	}
	want, err := encoding.Marshal(f)
	if err != nil {
		return err
	}
	if !bytes.Equal(item, want) {
		return errHead
	}
	return nil
}
