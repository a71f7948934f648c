package main

import (
	"context"
	"errors"
	"io"
	stdlog "log"
	"log/slog"
	"os"
	"path/filepath"

	"relay/store"
)

// maxLogFile bounds the log of one start and the one before, in bytes.
const maxLogFile = 16 << 20

// openLog writes what happens to log/relay.log in the state folder, and what a
// person should see to stderr as well. RELAY_DEBUG writes everything to both.
func openLog(s settings, stderr io.Writer) (*slog.Logger, func(), error) {
	tree, err := store.TreeAt(s.stateDir)
	if err != nil {
		return nil, nil, err
	}
	if err := tree.Create(); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(tree.Log(), "relay.log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogFile {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, nil, err
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	levels := [2]slog.Level{slog.LevelInfo, slog.LevelWarn}
	if s.debug {
		levels = [2]slog.Level{slog.LevelDebug, slog.LevelDebug}
	}
	log := slog.New(both{
		slog.NewTextHandler(file, &slog.HandlerOptions{Level: levels[0]}),
		slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: levels[1]}),
	})
	// net/http prints what a peer sends unasked by way of the standard log.
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
	return log, func() { _ = file.Close() }, nil
}

// both hands every record to two handlers.
type both [2]slog.Handler

func (b both) Enabled(ctx context.Context, l slog.Level) bool {
	return b[0].Enabled(ctx, l) || b[1].Enabled(ctx, l)
}

func (b both) Handle(ctx context.Context, r slog.Record) error {
	var errs [2]error
	for i, h := range b {
		if h.Enabled(ctx, r.Level) {
			errs[i] = h.Handle(ctx, r.Clone())
		}
	}
	return errors.Join(errs[:]...)
}

func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}
