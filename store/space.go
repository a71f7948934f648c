package store

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// What one Apply may hold: badger's transaction is bounded by the size of its
// table in memory.
const (
	// MaxWrites is the most writes in one Apply.
	MaxWrites = 8192
	// MaxBytes is the most bytes of keys and values in one Apply; each write
	// counts for 32 bytes more, and for the name of its space.
	MaxBytes = 1 << 20
	// MaxKey is the longest key, in bytes.
	MaxKey = 1024
)

// perWrite is more than each write costs badger beside its bytes.
const perWrite = 32

// Write is one change: Value set at Key, or Key gone when Delete is true.
type Write struct {
	Key, Value []byte
	Delete     bool
}

// Space is one user's part of the database: keys that no other space sees.
type Space struct {
	db     *DB
	prefix []byte
}

// Space returns the part of the database under a name of 1 to 64 bytes, a
// constant of the package that uses it. Equal names give the same part. Any
// other name is a mistake in the program and panics.
func (d *DB) Space(prefix string) *Space {
	if len(prefix) < 1 || len(prefix) > 64 {
		panic("store: a space's name has 1 to 64 bytes: " + prefix)
	}
	// The length in front keeps the key "b/c" of "a" apart from "c" of "a/b".
	return &Space{db: d, prefix: append([]byte{byte(len(prefix))}, prefix...)}
}

func (s *Space) key(key []byte) []byte {
	full := make([]byte, 0, len(s.prefix)+len(key))
	return append(append(full, s.prefix...), key...)
}

// Get returns the value at key, which the caller may keep, and whether there is
// one.
func (s *Space) Get(key []byte) (value []byte, found bool, err error) {
	leave, err := s.db.enter()
	if err != nil {
		return nil, false, err
	}
	defer leave()
	err = s.db.badger.View(func(txn *badger.Txn) error {
		item, err := txn.Get(s.key(key))
		if err != nil {
			return err
		}
		value, err = item.ValueCopy(nil)
		return err
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the database in %s: %w", s.db.dir, err)
	}
	return value, true, nil
}

// Apply makes all writes or none, in their order, and returns when they are on
// disk. What it acknowledged survives the death of the process and of the
// machine. Concurrent calls share one sync.
//
// It fails with ErrTooBig beyond MaxWrites, MaxBytes or MaxKey, with
// ErrDiskFull, and with ErrClosed. The slices may be used again afterwards.
func (s *Space) Apply(writes []Write) error { return s.apply(writes, 0) }

// ApplyFor is Apply of what is gone again after life, of at least a second: it is
// neither read nor counted any more then, and its room is freed in time.
func (s *Space) ApplyFor(life time.Duration, writes []Write) error {
	if life < time.Second {
		return fmt.Errorf("writing the database in %s: a life of %s, the least is a second", s.db.dir, life)
	}
	return s.apply(writes, life)
}

func (s *Space) apply(writes []Write, life time.Duration) error {
	if len(writes) == 0 {
		return nil
	}
	r := &commit{writes: make([]Write, len(writes)), life: life, wake: make(chan bool, 1)}
	for i, w := range writes {
		if len(w.Key) > MaxKey {
			return fmt.Errorf("%w: a key of %d bytes, the most is %d", ErrTooBig, len(w.Key), MaxKey)
		}
		r.writes[i] = Write{Key: s.key(w.Key), Value: w.Value, Delete: w.Delete}
		r.size += len(r.writes[i].Key) + len(w.Value) + perWrite
	}
	if r.size > MaxBytes || len(writes) > MaxWrites {
		return fmt.Errorf("%w: %d writes of %d bytes, the most are %d of %d", ErrTooBig, len(writes), r.size, MaxWrites, MaxBytes)
	}
	leave, err := s.db.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.db.queue.do(r, s.db.write)
}

// Scan calls fn for each key that starts with prefix, in the order of the keys,
// as they were when it began: writes made meanwhile, by fn too, do not show. fn
// may keep both slices. An error from fn ends the scan and is returned as it is.
func (s *Space) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return s.iterate(iteration{prefix: prefix}, fn)
}

// ScanFrom is Scan of all keys from the given one on.
func (s *Space) ScanFrom(from []byte, fn func(key, value []byte) error) error {
	return s.iterate(iteration{from: from}, fn)
}

// ScanBack is Scan of all keys from the last one back.
func (s *Space) ScanBack(fn func(key, value []byte) error) error {
	return s.iterate(iteration{back: true}, fn)
}

// Count says how many keys there are.
func (s *Space) Count() (n int, err error) {
	err = s.iterate(iteration{keysOnly: true}, func([]byte, []byte) error {
		n++
		return nil
	})
	return n, err
}

// iteration says which keys of a space are looked at, and how.
type iteration struct {
	prefix, from   []byte
	back, keysOnly bool
}

func (s *Space) iterate(i iteration, fn func(key, value []byte) error) error {
	leave, err := s.db.enter()
	if err != nil {
		return err
	}
	defer leave()
	var stop error
	err = s.db.badger.View(func(txn *badger.Txn) error {
		opt := badger.DefaultIteratorOptions
		opt.Prefix, opt.Reverse, opt.PrefetchValues = s.key(i.prefix), i.back, !i.keysOnly
		it := txn.NewIterator(opt)
		defer it.Close()
		start := s.key(append(i.prefix[:len(i.prefix):len(i.prefix)], i.from...))
		if i.back { // It begins at the last key that is not behind this one.
			start = append(start, bytes.Repeat([]byte{0xff}, MaxKey+1)...)
		}
		for it.Seek(start); it.Valid(); it.Next() {
			item := it.Item()
			var value []byte
			if !i.keysOnly {
				if value, err = item.ValueCopy(nil); err != nil {
					return err
				}
			}
			if stop = fn(item.KeyCopy(nil)[len(s.prefix):], value); stop != nil {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the database in %s: %w", s.db.dir, err)
	}
	return stop
}
