package p2p

import (
	"encoding/binary"
	"fmt"
	"io"

	"relay/p2p/record"
)

// maxFrame bounds one message of the join protocol: a chain of records.
const maxFrame = 512 << 10

// writeFrame sends one message: four bytes of length, big-endian, and CBOR.
func writeFrame(w io.Writer, v any) error {
	data, err := record.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) > maxFrame {
		return fmt.Errorf("a message of %d bytes is above the limit of %d", len(data), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// readFrame takes one message of at most limit bytes.
func readFrame(r io.Reader, limit int, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || int64(n) > int64(limit) {
		return fmt.Errorf("a message of %d bytes is above the limit of %d", n, limit)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	return record.Unmarshal(data, v)
}
