//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

func cmdTmpfs(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("small disks are made on Linux only")
}
