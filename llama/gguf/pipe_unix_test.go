//go:build unix

package gguf

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// To open a pipe is to wait until somebody writes to it.
func TestReadDoesNotHangOnAPipe(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "m.gguf")
	paths := writeParts(t, "m", models()[0].Split(3, true))
	remove(t, paths[1])
	for _, path := range []string{alone, paths[1]} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{alone, paths[0]} {
		if _, err := Read(path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("got %v", err)
		}
	}
}
