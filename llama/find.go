package llama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// FindOptions says where to look for an engine.
type FindOptions struct {
	// Bin is the value of RELAY_LLAMA_BIN: llama-server or the folder it is in.
	// Where it is set nothing else is searched.
	Bin string
	// StateDir is relay's state folder: its engines/* are searched. Empty means
	// none.
	StateDir string
	// CacheDir is the user's cache folder; empty means os.UserCacheDir.
	CacheDir string
	// PathEnv is a list of folders like $PATH; empty means none.
	PathEnv string
	// Patience is how long one program may take to say what it is; 0 means 30 s.
	Patience time.Duration
}

// A candidate is a place where an engine may be: a file, or a folder with it.
type candidate struct {
	path   string
	source Source
}

// Find looks for an engine: where Bin says, else in the state folder, in the
// build cache and in PATH, in that order. The first build that runs is taken;
// what was passed over is in Engine.Passed. The error is ErrNoEngine where
// there is nothing, and ErrEngine where all there is does not work; both say
// what to do.
func Find(ctx context.Context, o FindOptions) (Engine, error) {
	pins, err := LoadPins()
	if err != nil {
		return Engine{}, err
	}
	limit := o.Patience
	if limit <= 0 {
		limit = askTime
	}
	if o.Bin != "" {
		path, err := filepath.Abs(o.Bin)
		if err != nil {
			return Engine{}, fmt.Errorf("%w: RELAY_LLAMA_BIN: %w", ErrNoEngine, err)
		}
		e, err := look(ctx, limit, pins, candidate{path, SourceSetting})
		if err != nil {
			return Engine{}, fmt.Errorf("%w; set RELAY_LLAMA_BIN to llama.cpp's llama-server or the folder it is in, or unset it", err)
		}
		return e, nil
	}
	candidates, err := o.candidates(pins)
	if err != nil {
		return Engine{}, err
	}
	var passed []string
	for _, c := range candidates {
		e, err := look(ctx, limit, pins, c)
		if err == nil {
			e.Passed = passed
			return e, nil
		}
		if ctx.Err() != nil {
			return Engine{}, fmt.Errorf("%w: %w", ErrEngine, ctx.Err())
		}
		if !errors.Is(err, fs.ErrNotExist) {
			passed = append(passed, err.Error())
		}
	}
	if passed != nil {
		return Engine{}, fmt.Errorf("%w: %s", ErrEngine, strings.Join(passed, "; "))
	}
	return Engine{}, fmt.Errorf("%w on this machine: build it with `make engine`, put llama-server in PATH, or set RELAY_LLAMA_BIN to it", ErrNoEngine)
}

// candidates lists the places, best first.
func (o FindOptions) candidates(pins Pins) ([]candidate, error) {
	var list []candidate
	if o.StateDir != "" {
		dir := filepath.Join(o.StateDir, "engines")
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
		// Builds of the pinned commit come first, then the names from last to
		// first, by which later versions tend to come before earlier ones.
		slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
			pa, pb := strings.Contains(a.Name(), pins.Source.Commit[:7]), strings.Contains(b.Name(), pins.Source.Commit[:7])
			if pa != pb {
				if pa {
					return -1
				}
				return 1
			}
			return strings.Compare(b.Name(), a.Name())
		})
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				list = append(list, candidate{filepath.Join(dir, e.Name()), SourceState})
			}
		}
	}
	cache := o.CacheDir
	if cache == "" {
		cache, _ = os.UserCacheDir() // none: then there is no build either
	}
	if cache != "" {
		list = append(list, candidate{CachedBuild(cache, pins.Key(HostRecipe())), SourceCache})
	}
	for _, dir := range filepath.SplitList(o.PathEnv) {
		if filepath.IsAbs(dir) { // the current folder is no place for programs
			list = append(list, candidate{filepath.Join(dir, Program(runtime.GOOS, "llama-server")), SourcePath})
		}
	}
	return list, nil
}

// look examines one candidate. The error wraps fs.ErrNotExist where nothing is
// there.
func look(ctx context.Context, limit time.Duration, pins Pins, c candidate) (Engine, error) {
	path := c.path
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, Program(runtime.GOOS, "llama-server"))
		if info, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			// As upstream's archives and build trees have it.
			inBin := filepath.Join(c.path, "bin", Program(runtime.GOOS, "llama-server"))
			if i, err2 := os.Stat(inBin); err2 == nil {
				path, info, err = inBin, i, nil
			}
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Engine{}, fmt.Errorf("%w: %s: %w", ErrNoEngine, path, fs.ErrNotExist)
	case err != nil:
		return Engine{}, fmt.Errorf("%w: %w", ErrEngine, err)
	case !info.Mode().IsRegular():
		return Engine{}, fmt.Errorf("%w: %s is not a program", ErrEngine, path)
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return Engine{}, fmt.Errorf("%w: %s is not executable (chmod +x makes it so)", ErrEngine, path)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil { // libraries lie beside the real file
		return Engine{}, fmt.Errorf("%w: %w", ErrEngine, err)
	}
	out, err := ask(ctx, limit, path, "--version")
	v := ParseVersion(out)
	if err != nil || v.Commit == "" {
		return Engine{}, fmt.Errorf("%w: %s is not a llama-server that runs here: %s", ErrEngine, path, whatItSaid(out, err))
	}
	help, err := ask(ctx, limit, path, "--help")
	if err != nil {
		return Engine{}, fmt.Errorf("%w: %s: %s", ErrEngine, path, whatItSaid("", err))
	}
	e := Engine{
		Server: path, Version: v.Name, Commit: v.Commit, Source: c.source,
		flags: helpFlags(help), trace: strings.Contains(help, "4: trace"),
	}
	for _, flag := range []string{"--model", "--host", "--ctx-size", "--parallel", "--threads", "--alias"} {
		if !e.flags[flag] {
			return Engine{}, fmt.Errorf("%w: %s is llama.cpp %s, but not a llama-server that relay can use: it has no %s", ErrEngine, path, v.Name, flag)
		}
	}
	dir := filepath.Dir(path)
	for _, name := range []string{"ggml-rpc-server", "rpc-server"} {
		p := filepath.Join(dir, Program(runtime.GOOS, name))
		if i, err := os.Stat(p); err == nil && i.Mode().IsRegular() {
			e.RPCServer = p
			break
		}
	}
	e.RPC = rpcVersion(dir, pins, e.Commit)
	return e, nil
}

// rpcVersion is the protocol version of the build in dir: as build.json beside
// it says, or as the pins do where it is of the pinned commit.
func rpcVersion(dir string, pins Pins, commit string) string {
	if data, err := os.ReadFile(filepath.Join(dir, "build.json")); err == nil && len(data) < 1<<16 {
		var info BuildInfo
		if json.Unmarshal(data, &info) == nil && SameBuild(info.Commit, commit) {
			return info.RPC
		}
	}
	if SameBuild(pins.Source.Commit, commit) {
		return pins.Source.RPC
	}
	return ""
}

// whatItSaid is a short reason out of a failed program's output.
func whatItSaid(out string, err error) string {
	line := "it does not say its version as llama.cpp does"
	if err != nil {
		line = err.Error()
	}
	for l := range strings.Lines(out) {
		if l = printable(strings.TrimSpace(l), 200); l != "" {
			return line + ": " + l
		}
	}
	return line
}

var flagWord = regexp.MustCompile(`(?:^|[\s,])(--?[A-Za-z][A-Za-z0-9-]*)`)

// helpFlags collects the options that a help text describes.
func helpFlags(help string) map[string]bool {
	flags := map[string]bool{}
	for line := range strings.Lines(help) {
		if !strings.HasPrefix(line, "-") {
			continue // a description, which may name options of other builds
		}
		for _, m := range flagWord.FindAllStringSubmatch(line, -1) {
			flags[m[1]] = true
		}
	}
	return flags
}
