//go:build !windows

package store

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func diskFree(path string) (free, total uint64, err error) {
	var st unix.Statfs_t
	for {
		err = unix.Statfs(path, &st)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	// Bavail leaves out what is kept for the superuser.
	return uint64(st.Bavail) * uint64(st.Bsize), uint64(st.Blocks) * uint64(st.Bsize), nil
}

func diskFullErrnos() []error { return []error{unix.ENOSPC, unix.EDQUOT} }

func syncFolder(d *os.File) error { return d.Sync() }
