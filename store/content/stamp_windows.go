package content

import "os"

// os.FileInfo carries no file index on Windows; size and time have to do.
func inode(os.FileInfo) uint64 { return 0 }

// Nor does it say how many names a file has.
func hardLinks(os.FileInfo) uint64 { return 1 }

// A file that is not sparse takes up what it is long.
func allocated(info os.FileInfo) int64 { return info.Size() }
