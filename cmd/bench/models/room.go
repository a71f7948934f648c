//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// shm is a file system in memory.
const shm = "/dev/shm"

// spare is what is left to everybody else, of memory and of disk, in bytes.
const spare = 3 << 30

// inFolder runs f with a new folder in parent, and removes it afterwards.
func inFolder(parent string, f func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(parent, "relay-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}

// inMemory runs f with a new folder in memory that has room for that many bytes.
func inMemory(need int64, f func(dir string) error) error {
	if err := room(shm, need); err != nil {
		return err
	}
	return inFolder(shm, f)
}

// room says whether a folder can take that many bytes.
func room(dir string, need int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if free := int64(s.Bavail) * s.Bsize; free < need+spare {
		return fmt.Errorf("%s has %d MiB free, this takes %d and %d to spare", dir, free>>20, need>>20, int64(spare)>>20)
	}
	if dir != shm {
		return nil
	}
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`MemAvailable:\s+(\d+) kB`).FindSubmatch(info)
	if found == nil {
		return errors.New("/proc/meminfo does not say what is available")
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err == nil && kib<<10 < need+spare {
		err = fmt.Errorf("%d MiB of memory are available, this takes %d and %d to spare", kib>>10, need>>20, int64(spare)>>20)
	}
	return err
}
