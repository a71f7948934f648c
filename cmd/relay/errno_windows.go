package main

import (
	"errors"
	"io/fs"
	"syscall"
)

// Winsock has numbers of its own, which those of package syscall do not match.
const (
	wsaAddrInUse    = syscall.Errno(10048)
	wsaAddrNotAvail = syscall.Errno(10049)
	wsaConnRefused  = syscall.Errno(10061)
)

// isTaken: another program listens there.
func isTaken(err error) bool { return errors.Is(err, wsaAddrInUse) }

// isForeign: the address is none of this machine's.
func isForeign(err error) bool { return errors.Is(err, wsaAddrNotAvail) }

// isRefused: nobody listens there.
func isRefused(err error) bool { return errors.Is(err, wsaConnRefused) }

// openToOthers: permission bits mean nothing here. The folder for temporary
// files, in which it lies, is the user's own.
func openToOthers(fs.FileInfo) bool { return false }
