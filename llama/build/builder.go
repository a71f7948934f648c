package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"relay/llama"
)

// A builder makes one build. Everything happens in a folder beside the place
// where the build will be, which is renamed when all is done.
type builder struct {
	pins     llama.Pins
	recipe   llama.Recipe
	dir      string // where the finished build goes
	goos     string
	terminal bool // whether out can redraw a line
	out      io.Writer
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.out, "engine: "+format+"\n", args...)
}

func (b *builder) run(ctx context.Context) error {
	if b.finished() {
		b.say("%s is in %s", b.name(), b.dir)
		return nil
	}
	if err := b.checkTools(exec.LookPath); err != nil {
		return err
	}
	parent := filepath.Dir(b.dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("the cache cannot be written: %w", err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if b.finished() {
		b.say("%s is in %s, built meanwhile", b.name(), b.dir)
		return nil
	}
	// Under the lock nobody else builds this key: what lies there is left over.
	prefix := ".build-" + filepath.Base(b.dir) + "-"
	left, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range append(left, b.dir) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return fmt.Errorf("the cache cannot be written: %w", err)
	}
	err = b.build(ctx, work)
	if ctx.Err() != nil {
		err = errors.New("interrupted; nothing was kept")
	}
	return errors.Join(err, os.RemoveAll(work))
}

// lock waits until no other process builds the same.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	l := flock.New(b.dir + ".lock")
	locked, err := l.TryLock()
	if err == nil && !locked {
		b.say("another process is building the same; waiting for it")
		_, err = l.TryLockContext(ctx, time.Second/2)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", l.Path(), err)
	}
	return func() { _ = l.Unlock() }, nil
}

// build makes the engine in the folder work and moves it to its place.
func (b *builder) build(ctx context.Context, work string) error {
	start := time.Now()
	s := b.pins.Source
	b.say("building %s with cmake and ninja; it takes some minutes, once", b.name())
	bundle, err := b.fetch(ctx, work)
	if err != nil {
		return err
	}
	src, objects, keep := filepath.Join(work, "src"), filepath.Join(work, "b"), filepath.Join(work, "keep")
	log, err := os.Create(filepath.Join(work, "build.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	do := func(name string, args ...string) error { return b.command(ctx, log, nil, name, args...) }
	if err := do("git", "clone", "--quiet", "--no-tags", bundle, src); err != nil {
		return fmt.Errorf("the git bundle in %s %s cannot be cloned: %w", s.NPM, s.Version, err)
	}
	head, err := exec.CommandContext(ctx, "git", "-C", src, "rev-parse", "HEAD").Output()
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(head)); got != s.Commit {
		return fmt.Errorf("%s %s carries llama.cpp %s, not the pinned %s", s.NPM, s.Version, got, s.Commit)
	}
	include := filepath.Join(work, "include.cmake")
	if err := os.WriteFile(include, []byte(b.recipe.Include), 0o644); err != nil {
		return err
	}
	args := append([]string{"-S", src, "-B", objects, "-G", "Ninja", "-DCMAKE_PROJECT_INCLUDE=" + include}, b.recipe.Flags...)
	if err := do("cmake", args...); err != nil {
		return err
	}
	p := &progress{say: b.say, redraw: b.redraw(), every: 20 * time.Second, now: time.Now}
	err = b.command(ctx, io.MultiWriter(log, p), []string{"NINJA_STATUS=[%f/%t] "},
		"ninja", append([]string{"-C", objects}, b.recipe.Targets...)...)
	p.end()
	if err != nil {
		return err
	}
	if err := os.Mkdir(keep, 0o755); err != nil {
		return err
	}
	for _, name := range b.recipe.Targets {
		name = llama.Program(b.goos, name)
		if err := os.Rename(filepath.Join(objects, "bin", name), filepath.Join(keep, name)); err != nil {
			return fmt.Errorf("the build left no %s: %w", name, err)
		}
	}
	version, err := b.version(ctx, filepath.Join(keep, llama.Program(b.goos, "llama-server")))
	if err != nil {
		return err
	}
	info := llama.BuildInfo{
		Key: filepath.Base(b.dir), Commit: s.Commit, Version: version, RPC: s.RPC,
		Flags: b.recipe.Flags, Seconds: int(time.Since(start).Seconds()),
	}
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(keep, "build.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Rename(keep, b.dir); err != nil {
		return err
	}
	b.say("built in %d s; it is in %s", info.Seconds, b.dir)
	return nil
}

// version asks the new binary what it is: the proof that it runs here.
func (b *builder) version(ctx context.Context, server string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, server, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the new llama-server does not run: %w: %s", err, lastLines(out, 3))
	}
	v := llama.ParseVersion(string(out))
	if !llama.SameBuild(v.Commit, b.pins.Source.Commit) {
		return "", fmt.Errorf("the new llama-server says it is of commit %q, not %s", v.Commit, b.pins.Source.Commit[:7])
	}
	return v.Name, nil
}

// command runs a program, its output into log. Its error has the last lines.
func (b *builder) command(ctx context.Context, log io.Writer, env []string, name string, args ...string) error {
	tail := &tail{max: 64 << 10}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout = io.MultiWriter(log, tail)
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s failed: %w; its last words:\n%s", name, err, lastLines(tail.data, 15))
	}
	return nil
}

// finished says whether a whole build is in its place.
func (b *builder) finished() bool {
	data, err := os.ReadFile(filepath.Join(b.dir, "build.json"))
	var info llama.BuildInfo
	if err != nil || json.Unmarshal(data, &info) != nil || info.Commit != b.pins.Source.Commit {
		return false
	}
	for _, name := range b.recipe.Targets {
		i, err := os.Stat(filepath.Join(b.dir, llama.Program(b.goos, name)))
		if err != nil || !i.Mode().IsRegular() {
			return false
		}
	}
	return true
}

func (b *builder) name() string {
	return fmt.Sprintf("llama.cpp %s (%s)", b.pins.Source.LlamaVersion, b.pins.Source.Commit[:7])
}

func (b *builder) redraw() io.Writer {
	if b.terminal {
		return b.out
	}
	return nil
}
