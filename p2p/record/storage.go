package record

import (
	"bytes"
	"errors"
)

// Storage keeps a table's records on this machine.
type Storage interface {
	// Get returns the value of a key and whether there is one.
	Get(key []byte) ([]byte, bool, error)
	// Apply writes all or none, and returns once the writes survive a crash.
	// It does not keep the slices.
	Apply(writes []Write) error
	// Scan calls fn for every key that begins with prefix; the slices are valid
	// during the call only. It stops at the first error and returns it.
	Scan(prefix []byte, fn func(key, value []byte) error) error
}

// Write is one change to a Storage: Value put at Key, or Key deleted.
type Write struct {
	Key, Value []byte
	Delete     bool
}

const (
	// storedRecord prefixes the key of a record; the value is the first
	// checksumSize bytes of its Hash, then its Raw.
	storedRecord = "r/"
	// storedForeign does the same for kinds that were unknown when the record
	// came: only its author's membership was looked at.
	storedForeign = "f/"
	// storedIncarnation holds the incarnation that this peer began its last life
	// with, 8 bytes, big endian.
	storedIncarnation = "incarnation"

	checksumSize = 8
)

var errChecksum = errors.New("the checksum is wrong")

// place is where a record is kept in a Storage.
func (t *Table) place(s *Signed) []byte {
	if _, known := t.kinds[s.Kind]; !known {
		return []byte(storedForeign + s.Key())
	}
	return []byte(storedRecord + s.Key())
}

// toStore is what stands for a record in a Storage.
func (s *Signed) toStore() []byte {
	return append(append(make([]byte, 0, checksumSize+len(s.Raw)), s.Hash[:checksumSize]...), s.Raw...)
}

// fromStore is its reverse. The signature is not checked again, only that the
// bytes are those which were stored: loading a hundred thousand records would
// take seconds otherwise.
func fromStore(value []byte) (Signed, error) {
	if len(value) < checksumSize {
		return Signed{}, errChecksum
	}
	s, err := decode(value[checksumSize:])
	if err != nil {
		return Signed{}, err
	}
	if !bytes.Equal(value[:checksumSize], s.Hash[:checksumSize]) {
		return Signed{}, errChecksum
	}
	s.checked = true
	return s, nil
}
