package store

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of that many bytes, which takes root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small disk cannot be mounted (%v); run this test as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes to a disk until nothing more goes.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, piece := range []int{1 << 20, 4096, 1} {
		for {
			if _, err := f.Write(make([]byte, piece)); err != nil {
				if !IsDiskFull(err) {
					t.Fatal(err)
				}
				break
			}
		}
	}
}

func TestRealFullDisk(t *testing.T) {
	dir := smallDisk(t, "4m")
	state := filepath.Join(dir, "state")
	key := filepath.Join(dir, "key")
	if err := WriteSecret(key, []byte("old")); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	sentence(t, WriteSecret(key, []byte("new")), ErrDiskFull, "disk_full", dir)
	if got, err := ReadSecret(key); err != nil || string(got) != "old" {
		t.Errorf("the old secret is %q (%v)", got, err)
	}
	_, err := LockDir(state)
	sentence(t, err, ErrDiskFull, "disk_full", state)
	_, err = Open(filepath.Join(state, "db"), nil)
	sentence(t, err, ErrDiskFull, "disk_full", state)
	if free, _, err := DiskFree(dir); err != nil || free != 0 {
		t.Errorf("%d bytes are free (%v)", free, err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	lock, err := LockDir(state)
	if err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t, "1m")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := LockDir(filepath.Join(dir, "state"))
	sentence(t, err, ErrUnusable, "state_unusable", dir, "RELAY_STATE_DIR")
	sentence(t, WriteSecret(filepath.Join(dir, "key"), nil), ErrUnusable, "state_unusable", dir)
	_, err = open(filepath.Join(dir, "db"), nil, func(string) (uint64, uint64, error) { return 1 << 40, 1 << 40, nil })
	sentence(t, err, ErrUnusable, "state_unusable", dir)
}
