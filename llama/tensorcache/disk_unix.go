//go:build unix

package tensorcache

import "syscall"

func fullErrnos() []error { return []error{syscall.ENOSPC, syscall.EDQUOT} }

// foldersSync says whether what a folder lists can be made to last.
const foldersSync = true
