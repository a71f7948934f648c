//go:build !linux && !darwin

package content

import "os"

// allocate makes the file size bytes long; NTFS reserves the space with it.
func allocate(f *os.File, size int64) error { return f.Truncate(size) }

func syncData(f *os.File) error { return f.Sync() }
