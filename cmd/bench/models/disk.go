//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"relay/cmd/bench/figure"
)

// disk: what a file takes on the disks of who holds it and of who pulled it, with
// all that relay keeps besides (its state and its models folder), over its size.
func disk(ctx context.Context) error {
	return inMemory(2*fileBytes, func(dir string) error {
		return onPair(ctx, dir, func(p *pair) error {
			path := filepath.Join(dir, "large.gguf")
			if err := figure.WriteLarge(path, fileBytes, 0); err != nil {
				return err
			}
			if _, err := p.add(ctx, path); err != nil {
				return err
			}
			held, err := blocks(path, p.holder.State(), p.models(p.holder))
			if err != nil {
				return err
			}
			if _, _, err := p.pull(ctx, path); err != nil {
				return err
			}
			got, err := blocks(p.puller.State(), p.models(p.puller))
			if err != nil {
				return err
			}
			figure.Value("disk_amplification_holder", held/fileBytes, "share")
			figure.Value("disk_amplification_puller", got/fileBytes, "share")
			figure.Value("disk_amplification", max(held, got)/fileBytes, "share")
			return nil
		})
	})
}

// blocks is how much disk is allocated to files and to all that is in folders, in
// bytes.
func blocks(paths ...string) (bytes float64, err error) {
	for _, path := range paths {
		err = errors.Join(err, filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // A file of the database that was merged meanwhile.
			}
			if err == nil {
				bytes += float64(info.Sys().(*syscall.Stat_t).Blocks) * 512
			}
			return err
		}))
	}
	return bytes, err
}
