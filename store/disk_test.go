package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestDiskFree(t *testing.T) {
	dir := t.TempDir()
	free, total, err := DiskFree(dir)
	if err != nil || total == 0 || free > total {
		t.Fatalf("%d free of %d, %v", free, total, err)
	}
	_, below, err := DiskFree(filepath.Join(dir, "not", "there", "yet"))
	if err != nil || below != total {
		t.Errorf("of a path to be made: %d, its parent's disk has %d (%v)", below, total, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, of, err := DiskFree(file); err != nil || of != total {
		t.Errorf("of a file: %d %v", of, err)
	}
}

func TestIsDiskFull(t *testing.T) {
	for _, full := range diskFullErrnos() {
		if err := fmt.Errorf("x: %w", &fs.PathError{Op: "write", Path: "f", Err: full}); !IsDiskFull(err) {
			t.Errorf("%v is not seen", err)
		}
	}
	if !IsDiskFull(fmt.Errorf("%w: x", ErrDiskFull)) || IsDiskFull(nil) || IsDiskFull(fs.ErrPermission) || IsDiskFull(errors.New("full")) {
		t.Error("wrong about what is no errno")
	}
	sentence(t, unusable("/d", diskFullErrnos()[0]), ErrDiskFull, "disk_full", "/d")
	sentence(t, unusable("/d", fs.ErrPermission), ErrUnusable, "state_unusable", "/d")
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 64 << 20: "64.0 MiB", 19542101196: "18.2 GiB",
		3 << 40: "3.0 TiB", 1 << 60: "1.0 EiB", 1<<64 - 1: "16.0 EiB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
