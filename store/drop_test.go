package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// What is dropped is in no file of the database any more, now or after it was
// opened again; what is beside it stays.
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("words that only the dropped space has")
	for _, name := range []string{"gone", "gone2", "stays"} {
		var writes []Write
		for i := range 100 {
			value := secret
			if name != "gone" {
				value = []byte("of another space")
			}
			writes = append(writes, Write{Key: fmt.Append(nil, i), Value: value})
		}
		if err := db.Space(name).Apply(writes); err != nil {
			t.Fatal(err)
		}
	}
	if !inFiles(t, dir, secret) {
		t.Fatal("this test does not find what it looks for")
	}
	for range 2 { // Again where nothing is left.
		if err := db.Space("gone").Drop(); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n [3]int) {
		for i, name := range []string{"gone", "gone2", "stays"} {
			if err := db.Space(name).Scan(nil, func(_, _ []byte) error { n[i]++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	want := [3]int{0, 100, 100}
	if got := count(); got != want {
		t.Errorf("left: %v, want %v", got, want)
	}
	if inFiles(t, dir, secret) {
		t.Error("its words are still in a file")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := count(); got != want {
		t.Errorf("left after a restart: %v, want %v", got, want)
	}
	if err := db.Space("gone").Apply([]Write{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Errorf("the space cannot be used again: %v", err)
	}
}

func inFiles(t *testing.T, dir string, text []byte) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, text) {
			return true
		}
	}
	return false
}
