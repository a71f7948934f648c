package record

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"
)

// voidWorld has three authors whom everybody believes, and one storage.
type voidWorld struct {
	keys    []crypto.PrivKey
	authors []peer.ID
	storage *voidStorage
}

func newVoidWorld(t *rapid.T) *voidWorld {
	w := &voidWorld{storage: newVoidStorage()}
	for i := range 3 {
		key, _, err := crypto.GenerateEd25519Key(bytes.NewReader(bytes.Repeat([]byte{byte(i + 1)}, 64)))
		if err != nil {
			t.Fatal(err)
		}
		id, err := peer.IDFromPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		w.keys, w.authors = append(w.keys, key), append(w.authors, id)
	}
	return w
}

func (w *voidWorld) record(t *rapid.T, i, author int, kind string) Signed {
	s, err := Seal(Record{Kind: kind, ID: fmt.Sprintf("r%d", i), Version: Version{1}, Payload: []byte{0x60}}, w.keys[author])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type allowed struct{}

func (allowed) May(peer.ID, Rule, string, string) Verdict { return Allowed }

func (w *voidWorld) table(t *rapid.T, s Storage) *Table {
	table, err := NewTable(Options{Storage: s, Key: w.keys[2], Kinds: []Kind{{Name: "note", Rule: Shared}}, Rights: allowed{}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

type voidStorage struct{ data map[string][]byte }

func newVoidStorage() *voidStorage { return &voidStorage{map[string][]byte{}} }

func (s *voidStorage) Get(key []byte) ([]byte, bool, error) {
	v, ok := s.data[string(key)]
	return v, ok, nil
}

func (s *voidStorage) Apply(writes []Write) error {
	for _, w := range writes {
		if w.Delete {
			delete(s.data, string(w.Key))
		} else {
			s.data[string(w.Key)] = bytes.Clone(w.Value)
		}
	}
	return nil
}

func (s *voidStorage) Scan(prefix []byte, fn func(k, v []byte) error) error {
	for _, k := range slices.Sorted(maps.Keys(s.data)) {
		if strings.HasPrefix(k, string(prefix)) {
			if err := fn([]byte(k), s.data[k]); err != nil {
				return err
			}
		}
	}
	return nil
}
