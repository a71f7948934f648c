package tensorcache

import "golang.org/x/sys/windows"

func fullErrnos() []error {
	return []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}
}

// foldersSync: a folder's handle cannot be flushed on Windows; NTFS journals names
// itself.
const foldersSync = false
