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
	// Lengths count from the end of what is allocated already.
	err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &unix.Fstore_t{
		Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size,
	})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return f.Truncate(size)
}

func syncData(f *os.File) error { return f.Sync() }
