//go:build unix

package api

import "syscall"

// openFiles is how many files, connections among them, this process may have open.
func openFiles() (n int, ok bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return int(min(limit.Cur, 1<<30)), true
}
