package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestGGUF(t *testing.T) {
	sum := sha256.Sum256(GGUF())
	if got := hex.EncodeToString(sum[:]); got != SHA256 {
		t.Errorf("the embedded model is %s", got)
	}
	if Size() != int64(len(GGUF())) {
		t.Errorf("%d bytes", Size())
	}
	GGUF()[0]++ // a caller's change stays the caller's
	if GGUF()[0] != 'G' {
		t.Error("the model can be changed")
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// A second time it is left alone; what does not belong there is replaced.
	if again, err := Write(dir); err != nil || again != path {
		t.Errorf("%s %v", again, err)
	}
	if second, err := os.Stat(path); err != nil || !os.SameFile(first, second) || second.ModTime() != first.ModTime() {
		t.Errorf("it was written again (%v)", err)
	}
	broken := GGUF()
	broken[len(broken)/2] ^= 1
	for _, data := range [][]byte{nil, []byte("x"), broken} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(dir); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != file {
			t.Errorf("%d bytes %v", len(data), err)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v %v", list, err)
	}
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "file")
	if err := os.WriteFile(in, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, Name+".gguf"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{in, dir} {
		_, err := Write(dir)
		var r interface{ Reason() string }
		if !errors.Is(err, ErrState) || !errors.As(err, &r) || r.Reason() != "state_unusable" {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
