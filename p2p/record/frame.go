package record

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// maxFrame is the largest frame taken, in bytes.
	maxFrame = 1 << 20
	// fullFrame is the size at which a frame that is being filled is sent; what
	// it holds is stored with one write on the other side.
	fullFrame = 256 << 10
	// maxFrameItems is how many items or wishes one frame carries.
	maxFrameItems = 8192
)

// turn is the step of the exchange that a frame belongs to.
type turn uint

const (
	turnHello   turn = iota + 1 // both: root; the answer to it with the buckets
	turnItems                   // initiator: what it has in the buckets that differ
	turnAnswer                  // responder: what it wants of them, and what it has instead
	turnRecords                 // initiator: the records wanted
	turnDone                    // responder: everything was merged
)

// frame is one message: its length in 4 bytes, big endian, then CBOR. A turn is
// one frame or several, all but the last marked More. Fields that are not known
// are ignored.
type frame struct {
	Turn    turn        `cbor:"1,keyasint"`
	More    bool        `cbor:"2,keyasint,omitempty"`
	Root    []byte      `cbor:"3,keyasint,omitempty"` // 32 bytes
	Buckets []byte      `cbor:"4,keyasint,omitempty"` // a tag of 8 bytes for each of the 256
	Differ  []byte      `cbor:"5,keyasint,omitempty"` // 256 bits, lowest first: the buckets that Items cover
	Items   []frameItem `cbor:"6,keyasint,omitempty"`
	Want    []uint32    `cbor:"7,keyasint,omitempty"` // positions in the sequence of all items of the turn before
	Records [][]byte    `cbor:"8,keyasint,omitempty"` // marshalled envelopes
}

type frameItem struct {
	_   struct{} `cbor:",toarray"`
	Key string
	V0  uint64
	V1  uint64
	V2  uint64
	Tag []byte // 8 bytes, see salt
}

// wire reads and writes frames within the limits of one exchange.
type wire struct {
	ctx      context.Context
	rw       io.ReadWriter
	maxBytes int64 // that may be read
	in, out  int64 // bytes so far
	buf      []byte
}

func (w *wire) write(f *frame) error {
	if err := w.ctx.Err(); err != nil {
		return context.Cause(w.ctx)
	}
	body, err := encoding.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	if len(body) > maxFrame {
		return fmt.Errorf("a frame of %d bytes was made: %w", len(body), ErrSyncLimit)
	}
	w.buf = binary.BigEndian.AppendUint32(w.buf[:0], uint32(len(body)))
	w.buf = append(w.buf, body...)
	n, err := w.rw.Write(w.buf)
	w.out += int64(n)
	return w.failure("writing", err)
}

// read takes one frame, which must be of the given turn.
func (w *wire) read(want turn) (*frame, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, context.Cause(w.ctx)
	}
	var head [4]byte
	n, err := io.ReadFull(w.rw, head[:])
	w.in += int64(n)
	if err != nil {
		return nil, w.failure("reading", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes: %w", size, ErrSyncLimit)
	}
	if w.in+int64(size) > w.maxBytes {
		return nil, fmt.Errorf("more than %d bytes: %w", w.maxBytes, ErrSyncLimit)
	}
	body := make([]byte, size)
	n, err = io.ReadFull(w.rw, body)
	w.in += int64(n)
	if err != nil {
		return nil, w.failure("reading", err)
	}
	f, err := decodeFrame(body)
	if err != nil {
		return nil, err
	}
	if f.Turn != want {
		return nil, fmt.Errorf("turn %d in place of %d: %w", f.Turn, want, ErrProtocol)
	}
	return f, nil
}

// failure prefers the reason why the exchange was called off.
func (w *wire) failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// decodeFrame decodes and checks all of a frame that can be checked by itself.
func decodeFrame(body []byte) (*frame, error) {
	if err := checkCanonical(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	f := new(frame)
	if err := decoding.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	switch {
	case f.Root != nil && len(f.Root) != len(Hash{}),
		f.Buckets != nil && len(f.Buckets) != bucketCount*tagSize,
		f.Differ != nil && len(f.Differ) != bucketCount/8,
		len(f.Items) > maxFrameItems, len(f.Want) > maxFrameItems, len(f.Records) > maxFrameItems:
		return nil, fmt.Errorf("a part of the wrong size: %w", ErrProtocol)
	}
	for i := range f.Items {
		if it := &f.Items[i]; len(it.Tag) != tagSize || len(it.Key) > MaxKind+1+MaxID {
			return nil, fmt.Errorf("an item of the wrong size: %w", ErrProtocol)
		}
	}
	for _, r := range f.Records {
		if len(r) > MaxSize {
			return nil, fmt.Errorf("a record of %d bytes: %w", len(r), ErrInvalid)
		}
	}
	return f, nil
}
