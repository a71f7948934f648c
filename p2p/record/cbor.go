package record

import (
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

const (
	maxDepth    = 16      // nested arrays and maps
	maxElements = 1 << 16 // of one array, pairs of one map
)

// Both modes are immutable once made.
var (
	encoding = must(encodingOptions().EncMode())
	decoding = must(decodingOptions().DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic("record: CBOR options contradict each other: " + err.Error())
	}
	return v
}

func encodingOptions() cbor.EncOptions {
	o := cbor.CoreDetEncOptions()
	o.IndefLength = cbor.IndefLengthForbidden
	o.TagsMd = cbor.TagsForbidden
	return o
}

func decodingOptions() cbor.DecOptions {
	return cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:   maxDepth,
		MaxArrayElements:  maxElements,
		MaxMapPairs:       maxElements,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		UTF8:              cbor.UTF8RejectInvalid,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}
}

// Marshal encodes a payload as deterministic CBOR: the same value gives the
// same bytes on every machine. The value may use the types that CBOR has of
// itself (no tags, so no big numbers), nested at most 16 deep, and at most
// MaxSize bytes when encoded. Field names come from `cbor` tags.
func Marshal(v any) ([]byte, error) {
	data, err := encoding.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w: %w", v, ErrPayload, err)
	}
	if err := checkPayload(data); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	return data, nil
}

// MarshalOver is Marshal of what takes the place of an older payload: its fields that
// the type of v does not have, as a newer release wrote them, are kept. What is not a
// map with whole numbers as keys has none.
func MarshalOver(v any, older []byte) ([]byte, error) {
	known := reflect.New(reflect.Indirect(reflect.ValueOf(v)).Type())
	var had, knew, next map[int64]cbor.RawMessage
	if len(older) == 0 || Unmarshal(older, known.Interface()) != nil || Unmarshal(older, &had) != nil {
		return Marshal(v)
	}
	fields := func(of any, to *map[int64]cbor.RawMessage) error {
		data, err := Marshal(of)
		if err != nil {
			return err
		}
		return Unmarshal(data, to)
	}
	if err := fields(known.Interface(), &knew); err != nil {
		return nil, err
	}
	if err := fields(v, &next); err != nil {
		return nil, err
	}
	for field, value := range had {
		if _, mine := knew[field]; mine {
			continue
		}
		if _, said := next[field]; !said {
			next[field] = value
		}
	}
	return Marshal(next)
}

// Unmarshal decodes a payload into the value that v points to. It takes only
// the deterministic form that Marshal makes, and ignores fields that v does
// not have. Errors are ErrPayload.
func Unmarshal(data []byte, v any) error {
	if err := checkPayload(data); err != nil {
		return err
	}
	if err := decoding.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}

func checkPayload(data []byte) error {
	if len(data) > MaxSize {
		return fmt.Errorf("%d bytes, at most %d are allowed: %w", len(data), MaxSize, ErrPayload)
	}
	if err := checkCanonical(data); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	return nil
}
