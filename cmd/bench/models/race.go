//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"relay/cmd/bench/figure"
)

const (
	rounds = 5
	// fileBytes is the size of a file that is added or pulled for time.
	fileBytes = 1 << 30
)

// way is a way to do something with a file; it says how long that took.
type way struct {
	figure string // What is printed of relay against it; unused for relay's own.
	do     func(ctx context.Context, path string) (seconds float64, err error)
}

// race measures relay against other ways with the same files, each way once with
// every file and relay first, and prints how much faster it is than each.
func race(ctx context.Context, dir string, relay way, others ...way) error {
	ways := append([]way{relay}, others...)
	rates := make([][]float64, len(ways))
	for i := range rounds {
		path := filepath.Join(dir, fmt.Sprintf("large%d.gguf", i))
		if err := figure.WriteLarge(path, fileBytes, uint64(i)); err != nil {
			return err
		}
		for n, w := range ways {
			took, err := w.do(ctx, path)
			if err != nil {
				return err
			}
			rates[n] = append(rates[n], fileBytes/1e6/took)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	ours := figure.Median(rates[0])
	for n, w := range others {
		figure.Say("%s: relay %.0f, the other %.0f MB/s", w.figure, rates[0], rates[n+1])
		figure.Ratio(w.figure, ours, figure.Median(rates[n+1]), "MB/s")
	}
	return nil
}

// pulling is relay's own way to bring a file from the holder to the puller.
func (p *pair) pulling(ctx context.Context, path string) (seconds float64, err error) {
	if _, err := p.add(ctx, path); err != nil {
		return 0, err
	}
	seconds, pulled, err := p.pull(ctx, path)
	if err != nil {
		return 0, err
	}
	return seconds, errors.Join(same(path, pulled), p.drop(ctx, path))
}

// same says whether two files are the same.
func same(a, b string) error {
	one, err := os.Open(a)
	if err != nil {
		return err
	}
	defer one.Close()
	two, err := os.Open(b)
	if err != nil {
		return err
	}
	defer two.Close()
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(one, x)
		m, _ := io.ReadFull(two, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return fmt.Errorf("%s is not the same as %s", b, a)
		}
		if err != nil {
			return nil // Both have ended: the buffers were equal.
		}
	}
}
