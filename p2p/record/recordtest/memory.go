// Package recordtest has what tests of tables need: a storage in memory. It is
// for tests alone.
package recordtest

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"

	"relay/p2p/record"
)

// Memory is a record.Storage that lasts as long as whoever holds it.
type Memory struct {
	mu   sync.Mutex
	data map[string][]byte
}

// NewMemory makes an empty storage.
func NewMemory() *Memory { return &Memory{data: map[string][]byte{}} }

// Get returns a value, which must not be changed.
func (m *Memory) Get(key []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.data[string(key)]
	return v, ok, nil
}

// Apply writes all.
func (m *Memory) Apply(writes []record.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		if w.Delete {
			delete(m.data, string(w.Key))
		} else {
			m.data[string(w.Key)] = bytes.Clone(w.Value)
		}
	}
	return nil
}

// Scan goes through the keys in their order.
func (m *Memory) Scan(prefix []byte, fn func(k, v []byte) error) error {
	m.mu.Lock()
	data := maps.Clone(m.data)
	m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(data)) {
		if strings.HasPrefix(k, string(prefix)) {
			if err := fn([]byte(k), data[k]); err != nil {
				return err
			}
		}
	}
	return nil
}
