//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"relay/cmd/bench/figure"
	"relay/llama/demo"
)

const sparseBytes = 8 << 30

// memory: the most resident memory that the two peers' processes ever had, over
// adding and pulling 8 GiB. There is no engine.
func memory(ctx context.Context) error {
	parent := shm
	if err := room(parent, sparseBytes+1<<30); err != nil {
		parent = os.TempDir()
		figure.Say("not in memory: %v; the disk of %s does for what is no time", err, parent)
		if err := room(parent, sparseBytes+1<<30); err != nil {
			return err
		}
	}
	return inFolder(parent, func(dir string) error {
		return onPair(ctx, dir, func(p *pair) error {
			path := filepath.Join(dir, "sparse.gguf")
			if err := writeSparse(path); err != nil {
				return err
			}
			if _, err := p.add(ctx, path); err != nil {
				return err
			}
			took, _, err := p.pull(ctx, path)
			if err != nil {
				return err
			}
			figure.Say("8 GiB were pulled in %.0f s", took)
			held, err := peak(p.holder.Pid())
			if err != nil {
				return err
			}
			got, err := peak(p.puller.Pid())
			if err != nil {
				return err
			}
			figure.Value("pull_rss_mib_holder", held, "MiB")
			figure.Value("pull_rss_mib_puller", got, "MiB")
			figure.Value("pull_rss_mib", max(held, got), "MiB")
			return nil
		})
	})
}

// writeSparse makes a model's file of 8 GiB that takes little disk: the demo
// model, and then nothing but 8 bytes at the end of each MiB, which no two share.
func writeSparse(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(demo.GGUF()); err != nil {
		return err
	}
	const mib = 1 << 20
	for end := int64(mib); end <= sparseBytes; end += mib {
		if end-8 < demo.Size() {
			continue
		}
		if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(end)), end-8); err != nil {
			return err
		}
	}
	return nil
}

// peak is the most resident memory that a process ever had, in MiB.
func peak(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		return 0, fmt.Errorf("process %d does not say what memory it had: %s", pid, status)
	}
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	return kib / 1024, err
}
