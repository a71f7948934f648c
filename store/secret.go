package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxSecret bounds what ReadSecret takes into memory, in bytes.
const maxSecret = 64 << 10

// WriteSecret writes data to the file at path so that only this user can read
// it (0600), whole or not at all: it is written aside, synced and renamed, and
// what was there before is replaced. The folder must exist.
//
// It fails with ErrUnusable or ErrDiskFull; the file is then as before.
func WriteSecret(path string, data []byte) error {
	if len(data) > maxSecret {
		return fmt.Errorf("%w: %s would be %d bytes long, the most is %d", ErrTooBig, path, len(data), maxSecret)
	}
	dir := filepath.Dir(path)
	// CreateTemp makes the file 0600 from the start.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return unusable(dir, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(unusable(dir, err), os.Remove(f.Name()))
	}
	if err := SyncDir(dir); err != nil {
		return unusable(dir, err)
	}
	return nil
}

// ReadSecret reads a file that WriteSecret wrote. One that others can read, for
// instance after a restore from a backup, is closed to them on the way.
//
// It fails with ErrNotFound when there is none, and with ErrUnusable when it
// cannot be read or is no such file.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrNotFound)
	}
	if err != nil {
		return nil, unusable(filepath.Dir(path), err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, unusable(filepath.Dir(path), err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return nil, fmt.Errorf("%w: %s is not a key file; move it away", ErrUnusable, path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		// Best effort: some disks know no permissions.
		_ = f.Chmod(0o600)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, unusable(filepath.Dir(path), err)
	}
	return data, nil
}
