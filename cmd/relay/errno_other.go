//go:build !windows

package main

import (
	"errors"
	"io/fs"
	"syscall"
)

// isTaken: another program listens there.
func isTaken(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// isForeign: the address is none of this machine's.
func isForeign(err error) bool { return errors.Is(err, syscall.EADDRNOTAVAIL) }

// isRefused: nobody listens there.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// openToOthers says whether other users may do anything with a folder.
func openToOthers(folder fs.FileInfo) bool { return folder.Mode().Perm()&0o077 != 0 }
