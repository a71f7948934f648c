package main

import (
	"io"
	"os"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

type unmount string

func (u unmount) Close() error { return syscall.Unmount(string(u), syscall.MNT_DETACH) }

// tmpfs DIR SIZE mounts a small disk for as long as the script runs.
func cmdTmpfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tmpfs DIR SIZE")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]))
	s := scriptStage(ts)
	s.closed = append(s.closed, io.Closer(unmount(dir)))
}
