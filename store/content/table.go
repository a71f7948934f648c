package content

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// The tables, by the first byte of the key:
//
//	f id            a file: path, stamp, root, state
//	s id            a set of files: folder, root, state
//	n digest        an inner node's bytes
//	u digest id     that file's DAG has that inner node
//	b digest id     that file has that leaf: length and offsets
//	p root          an unfinished pull
//	m root          its bitmaps
//	c               the last id given out
//
// There is no table from a file to its leaves: its DAG says which they are. Nor
// from a set to its files: the block of its directory, an inner node like others,
// names them, and a file is found by its path.
const (
	tableFiles  = 'f'
	tableSets   = 's'
	tableNodes  = 'n'
	tableUses   = 'u'
	tableLeaves = 'b'
	tablePulls  = 'p'
	tableMaps   = 'm'
	tableLastID = 'c'
)

// Space is the part of the database that holds the tables; *store.Space is one.
type Space interface {
	Get(key []byte) (value []byte, found bool, err error)
	Apply(writes []store.Write) error
	Scan(prefix []byte, fn func(key, value []byte) error) error
}

func keyFile(id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tableFiles}, id)
}

func keySet(id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tableSets}, id)
}

func keyNode(d digest) []byte { return append([]byte{tableNodes}, d[:]...) }

func keyUse(d digest, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{tableUses}, d[:]...), id)
}

func keyLeaf(d digest, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{tableLeaves}, d[:]...), id)
}

func keyPull(root cid.Cid) []byte { return append([]byte{tablePulls}, root.Bytes()...) }

func keyMaps(root cid.Cid) []byte { return append([]byte{tableMaps}, root.Bytes()...) }

// splitKey takes apart a key that is a table, a digest and an id.
func splitKey(key []byte) (d digest, id uint64, ok bool) {
	if len(key) != 1+len(d)+8 {
		return d, 0, false
	}
	return digest(key[1 : 1+len(d)]), binary.BigEndian.Uint64(key[1+len(d):]), true
}

// tableState says how far the tables of a file or a set are.
type tableState string

const (
	// stateAdding: references are being written; nobody may follow them.
	stateAdding tableState = "adding"
	// stateWhole: every block has its reference.
	stateWhole tableState = "whole"
	// stateRemoving: references are being deleted.
	stateRemoving tableState = "removing"
)

// file is one registered file. Records in memory are never changed, only
// replaced.
type file struct {
	ID    uint64     `json:"id"`
	Root  cid.Cid    `json:"-"`
	Bytes int64      `json:"bytes"`
	Path  string     `json:"-"`
	Stamp stamp      `json:"stamp"`
	State tableState `json:"state"`
	// Pulled files are relay's own; others belong to their owner and are never
	// deleted.
	Pulled bool `json:"pulled,omitempty"`
	// Part says that it is here only as part of a set, not by itself.
	Part bool `json:"part,omitempty"`
	// Nested says that its folder was made for the set that it was pulled with.
	Nested bool `json:"nested,omitempty"`
	// Damaged says that other bytes were found in it under the same stamp.
	Damaged bool `json:"damaged,omitempty"`
	// Used is when it was last added, pulled or touched, in Unix nanoseconds; 0 in
	// records of a relay that did not note it.
	Used int64 `json:"used,omitempty"`

	// As bytes: a path need not be UTF-8.
	RawPath []byte `json:"path"`
	RawRoot []byte `json:"root"`
}

func (f *file) write() (store.Write, error) {
	f.RawPath, f.RawRoot = []byte(f.Path), f.Root.Bytes()
	value, err := json.Marshal(f)
	if err != nil {
		return store.Write{}, fmt.Errorf("file record: %w", err)
	}
	return store.Write{Key: keyFile(f.ID), Value: value}, nil
}

func parseFile(value []byte) (*file, error) {
	f := &file{}
	if err := json.Unmarshal(value, f); err != nil {
		return nil, fmt.Errorf("file record: %w", err)
	}
	root, err := cid.Cast(f.RawRoot)
	if err != nil {
		return nil, fmt.Errorf("file record: %w", err)
	}
	f.Root, f.Path = root, string(f.RawPath)
	return f, nil
}

// places is where one file has one leaf.
type places struct {
	length  int64
	offsets []int64
}

// maxPlaces is how many offsets of one leaf in one file are kept. Files full of
// zeros have one leaf a thousand times over; a few places are as good as all.
const maxPlaces = 16

func (p places) encode() []byte {
	out := binary.AppendUvarint(nil, uint64(p.length))
	for _, o := range p.offsets {
		out = binary.AppendUvarint(out, uint64(o))
	}
	return out
}

func parsePlaces(value []byte) (p places, ok bool) {
	length, n := binary.Uvarint(value)
	if n <= 0 || length > chunkSize {
		return p, false
	}
	p.length, value = int64(length), value[n:]
	for len(value) > 0 {
		o, n := binary.Uvarint(value)
		if n <= 0 || o > MaxBytes {
			return p, false
		}
		p.offsets, value = append(p.offsets, int64(o)), value[n:]
	}
	return p, true
}

// batch collects writes and applies them in portions that one transaction
// holds. The portions come to disk in order, not all at once.
type batch struct {
	space  Space
	writes []store.Write
	size   int
}

// perWrite is what the database counts for each write on top of its bytes, and
// for its space's name.
const perWrite = 128

func (b *batch) set(key, value []byte) error {
	return b.add(store.Write{Key: key, Value: value})
}

func (b *batch) delete(key []byte) error {
	return b.add(store.Write{Key: key, Delete: true})
}

func (b *batch) add(w store.Write) error {
	size := len(w.Key) + len(w.Value) + perWrite
	if b.size+size > store.MaxBytes || len(b.writes) >= store.MaxWrites {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.writes = append(b.writes, w)
	b.size += size
	return nil
}

func (b *batch) flush() error {
	if err := b.space.Apply(b.writes); err != nil {
		return err
	}
	b.writes, b.size = b.writes[:0], 0
	return nil
}
