//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"time"
)

// importing: `relay model add`, as the command takes, against one goroutine of
// Go's sha256 over the same file.
func importing(ctx context.Context) error {
	return inMemory(fileBytes, func(dir string) error {
		return onPair(ctx, dir, func(p *pair) error {
			return race(ctx, dir, way{do: func(ctx context.Context, path string) (float64, error) {
				took, err := p.add(ctx, path)
				if err == nil {
					_, err = p.stage.Relay(ctx, p.holder, "model", "rm", modelOf(path))
				}
				return took, err
			}}, way{"import_vs_sha256", hashing})
		})
	})
}

func hashing(_ context.Context, path string) (float64, error) {
	began := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := sha256.New()
	// Without what a file can do besides reading, the buffer is used.
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return 0, err
	}
	h.Sum(nil)
	return time.Since(began).Seconds(), nil
}
