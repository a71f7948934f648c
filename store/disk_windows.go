package store

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func diskFree(path string) (free, total uint64, err error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, 0, &fs.PathError{Op: "free space", Path: path, Err: err}
	}
	if err := windows.GetDiskFreeSpaceEx(p, &free, &total, nil); err != nil {
		return 0, 0, &fs.PathError{Op: "free space", Path: path, Err: err}
	}
	return free, total, nil
}

func diskFullErrnos() []error {
	return []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}
}

// A folder's handle cannot be flushed on Windows; NTFS journals names itself.
func syncFolder(*os.File) error { return nil }
