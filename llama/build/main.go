// Command build makes relay's engine from source: `make engine` runs it.
//
// It fetches the pinned npm package that carries llama.cpp as a git bundle,
// checks its hash, builds llama-server, ggml-rpc-server and llama-bench, and
// keeps them in the user's cache folder, where relay finds them. A build that
// is there already is left alone. It changes nothing else on the machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"relay/llama"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pins, err := llama.LoadPins()
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder for caches: %w: set XDG_CACHE_HOME or HOME", err)
	}
	recipe := llama.HostRecipe()
	b := &builder{
		pins:     pins,
		recipe:   recipe,
		dir:      llama.CachedBuild(cache, pins.Key(recipe)),
		goos:     runtime.GOOS,
		terminal: isTerminal(os.Stdout),
		out:      os.Stdout,
	}
	return b.run(ctx)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
