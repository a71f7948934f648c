package content

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"relay/store"
)

var errCrash = errors.New("the process died here")

// memSpace is a database in memory that dies after a number of transactions, as
// a process does: what was applied stays, what comes later does not happen.
type memSpace struct {
	mu    sync.Mutex
	data  map[string]string
	left  int // transactions until it dies; negative: never
	count int
	// refuse, if set, may refuse a transaction.
	refuse func() error
	// applied, if set, is called after each transaction.
	applied func()
}

func newMemSpace() *memSpace { return &memSpace{data: map[string]string{}, left: -1} }

// copy is another space with the same in it.
func (m *memSpace) copy() *memSpace {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newMemSpace()
	c.data = maps.Clone(m.data)
	return c
}

func (m *memSpace) Get(key []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return nil, false, errCrash
	}
	v, ok := m.data[string(key)]
	return []byte(v), ok, nil
}

func (m *memSpace) Apply(writes []store.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(writes) == 0 {
		return nil
	}
	if m.left == 0 {
		return errCrash
	}
	if m.refuse != nil {
		if err := m.refuse(); err != nil {
			return err
		}
	}
	m.left = max(m.left-1, -1)
	m.count++
	size := 0
	for _, w := range writes {
		size += len(w.Key) + len(w.Value)
		if w.Delete {
			delete(m.data, string(w.Key))
		} else {
			m.data[string(w.Key)] = string(w.Value)
		}
	}
	if len(writes) > store.MaxWrites || size > store.MaxBytes {
		return store.ErrTooBig
	}
	if m.applied != nil {
		m.applied()
	}
	return nil
}

func (m *memSpace) Scan(prefix []byte, fn func(key, value []byte) error) error {
	m.mu.Lock()
	if m.left == 0 {
		m.mu.Unlock()
		return errCrash
	}
	snapshot := map[string]string{}
	for k, v := range m.data {
		if strings.HasPrefix(k, string(prefix)) {
			snapshot[k] = v
		}
	}
	m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(snapshot)) {
		if err := fn([]byte(k), []byte(snapshot[k])); err != nil {
			return err
		}
	}
	return nil
}

// dieAfter lets the database die after n more transactions; negative: never.
func (m *memSpace) dieAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = n
}

// left behind: everything but the counter of ids.
func (m *memSpace) leftovers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for k := range m.data {
		if k[0] != tableLastID {
			keys = append(keys, string(k[0])+" "+hexTail(k))
		}
	}
	slices.Sort(keys)
	return keys
}

func hexTail(k string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := 1; i < min(len(k), 6); i++ {
		b.WriteByte(digits[k[i]>>4])
		b.WriteByte(digits[k[i]&15])
	}
	return b.String()
}

func noLeftovers(t testing.TB, m *memSpace) {
	t.Helper()
	if keys := m.leftovers(); len(keys) > 0 {
		t.Errorf("left in the tables: %q", keys)
	}
}

func batchOf(_ testing.TB, value []byte) []store.Write {
	return []store.Write{{Key: keyMaps(makeCID(digest{}, false)), Value: value}}
}
