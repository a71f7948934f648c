package store

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestSecretRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "identity.key")
	_, err := ReadSecret(path)
	sentence(t, err, ErrNotFound, "not_found", path)
	for _, data := range [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{0xff, 0}, maxSecret/2)} {
		if err := WriteSecret(path, data); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSecret(path)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d (%v)", len(data), len(got), err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("written as %v", info.Mode())
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestSecretRefusals(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := WriteSecret(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := WriteSecret(path, make([]byte, maxSecret+1)); err == nil {
		t.Error("too large a secret was written")
	}
	if got, err := ReadSecret(path); err != nil || string(got) != "old" {
		t.Errorf("a refused write changed it to %q (%v)", got, err)
	}
	sub := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(sub, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	// Onto a folder: the rename fails after the data was written aside.
	sentence(t, WriteSecret(sub, []byte("x")), ErrUnusable, "state_unusable", dir)
	_, err := ReadSecret(sub)
	sentence(t, err, ErrUnusable, "state_unusable", sub)
	sentence(t, WriteSecret(filepath.Join(path, "below"), nil), ErrUnusable, "state_unusable", path)
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, maxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ReadSecret(large)
	sentence(t, err, ErrUnusable, "state_unusable", large)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestReadSecretClosesItToOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSecret(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("still %v", info.Mode())
	}
}
