package content

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate makes the file size bytes long with its disk space reserved, where
// the file system can do that; elsewhere only its length is set.
func allocate(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
			return f.Truncate(size)
		}
		return err
	}
}

// syncData makes a file's bytes durable, and its length, but not its times.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
