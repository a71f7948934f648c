package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// DiskFree returns the bytes that this user can still write on the disk that
// holds path, and that disk's size in bytes. The path need not exist yet: its
// nearest existing parent counts.
func DiskFree(path string) (free, total uint64, err error) {
	at, err := filepath.Abs(path)
	if err != nil {
		return 0, 0, fmt.Errorf("disk space of %s: %w", path, err)
	}
	for {
		free, total, err = diskFree(at)
		parent := filepath.Dir(at)
		if err == nil || parent == at || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		at = parent
	}
	if err != nil {
		return 0, 0, fmt.Errorf("disk space of %s: %w", path, err)
	}
	return free, total, nil
}

// FormatBytes writes a size for people, in binary units: 512 B, 64.0 MiB.
func FormatBytes(n uint64) string {
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < 5 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit])
}

// SyncDir makes the names in a folder durable. Where folders cannot be synced
// the system keeps them durable by itself.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = syncFolder(d)
	return errors.Join(err, d.Close())
}
