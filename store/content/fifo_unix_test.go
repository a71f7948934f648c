//go:build !windows

package content

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAddDoesNotHangOnAPipe: opening one waits for somebody to write to it.
func TestAddDoesNotHangOnAPipe(t *testing.T) {
	s, space := testStore(t)
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Add(t.Context(), []string{path}, nil)
	sentence(t, err, ErrFileInvalid, "file_invalid", path, "regular file")
	// Nor do blocks of a file in whose place a pipe is put.
	file := newFile(t, randomBytes(1, 100))
	c := mustAdd(t, s, file)
	if err := unix.Rename(path, file); err != nil {
		t.Fatal(err)
	}
	_, err = leafOf(t, s, c, 0)
	sentence(t, err, ErrFileChanged, "file_changed", file)
	if _, err := s.Remove(c.CID, true); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, space)
}
