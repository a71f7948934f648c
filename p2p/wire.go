package p2p

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"relay/p2p/record"
)

const (
	// maxFrame bounds one message of the join protocol, in bytes.
	maxFrame = record.MaxSize
	// maxChain and maxChainBytes bound the records that prove somebody.
	maxChain      = 256
	maxChainBytes = 256 << 10
)

// writeFrame sends one message: four bytes of length, big-endian, and CBOR.
func writeFrame(w io.Writer, v any) error {
	data, err := record.Marshal(v)
	if err != nil {
		return err
	}
	return writeBytes(w, data)
}

func writeBytes(w io.Writer, data []byte) error {
	if len(data) > maxFrame {
		return fmt.Errorf("a message of %d bytes is above the limit of %d", len(data), maxFrame)
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// readFrame takes one message.
func readFrame(r io.Reader, v any) error {
	data, err := readBytes(r, maxFrame)
	if err != nil {
		return err
	}
	return record.Unmarshal(data, v)
}

// readBytes takes what follows a length; memory grows with what has come, not
// with what was announced.
func readBytes(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || int64(n) > int64(limit) {
		return nil, fmt.Errorf("a message of %d bytes is above the limit of %d", n, limit)
	}
	var data bytes.Buffer
	if _, err := io.CopyN(&data, r, int64(n)); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// writeChain sends records, each as a message of its own, after a message that
// said how many.
func writeChain(w io.Writer, chain [][]byte) error {
	for _, raw := range chain {
		if err := writeBytes(w, raw); err != nil {
			return err
		}
	}
	return nil
}

// readChain takes as many records as were announced.
func readChain(r io.Reader, n int) ([][]byte, error) {
	if n < 0 || n > maxChain {
		return nil, fmt.Errorf("a proof of %d records is above the limit of %d", n, maxChain)
	}
	var chain [][]byte
	left := maxChainBytes
	for range n {
		raw, err := readBytes(r, min(maxFrame, left))
		if err != nil {
			return nil, err
		}
		left -= len(raw)
		chain = append(chain, raw)
	}
	return chain, nil
}
