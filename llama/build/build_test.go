//go:build unix

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/llama"
)

const commit = "80fb11ac73e66d89eae2c6a91d8a77428fa733ed"

// A workshop is a builder whose tools are scripts, and where they log their calls.
type workshop struct {
	*testing.T
	dir string
	out *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *safeBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// pack makes the .tgz that `npm pack` would fetch.
func pack(t *testing.T, name, content string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{{"package/package.json", "{}"}, {name, content}} {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Typeflag: tar.TypeReg, Size: int64(len(f[1])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func newWorkshop(t *testing.T) *workshop {
	w := &workshop{t, t.TempDir(), &safeBuffer{}}
	tgz := pack(t, "package/llama/x.bundle", "bundle")
	if err := os.WriteFile(filepath.Join(w.dir, "x.tgz"), tgz, 0o600); err != nil {
		t.Fatal(err)
	}
	w.tool("npm", `cp "$W/x.tgz" "$4/x-1.tgz"`)
	w.tool("git", `case $1 in clone) mkdir "$5"; cp "$4" "$5/";; -C) echo `+commit+`;; esac`)
	w.tool("cmake", `mkdir "$4"; cat "${7#-DCMAKE_PROJECT_INCLUDE=}" > "$W/included"`)
	w.tool("ninja", `mkdir "$2/bin"; for i in 1 2 3; do echo "[$i/3] Building"; done
for p in llama-server other; do printf '#!/bin/sh\necho "version: 0.4.0-dev (build 1, commit 80fb11a)" >&2\n' > "$2/bin/$p"; chmod +x "$2/bin/$p"; done`)
	for _, name := range []string{"cc", "c++"} {
		w.tool(name, "")
	}
	t.Setenv("W", w.dir)
	t.Setenv("PATH", filepath.Join(w.dir, "tools")+":/usr/bin:/bin")
	return w
}

func (w *workshop) tool(name, script string) {
	w.Helper()
	path := filepath.Join(w.dir, "tools", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\nset -e\necho "+name+" \"$@\" >> \"$W/calls\"\n"+script+"\n"), 0o700); err != nil {
		w.Fatal(err)
	}
}

func (w *workshop) builder() *builder {
	tgz, err := os.ReadFile(filepath.Join(w.dir, "x.tgz"))
	if err != nil {
		w.Fatal(err)
	}
	sum := sha512.Sum512(tgz)
	return &builder{
		pins: llama.Pins{Source: llama.PinnedSource{
			NPM: "x", Version: "1", Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:]), Bundle: "llama/x.bundle",
			Commit: commit, LlamaVersion: "0.4.0-dev", RPC: "6.0.0",
		}},
		recipe: llama.Recipe{Flags: []string{"-DA=ON"}, Include: "# included", Targets: []string{"llama-server", "other"}},
		dir:    filepath.Join(w.dir, "cache", "engines", "key"), goos: "linux", out: w.out,
	}
}

func (w *workshop) calls(tool string) int {
	data, err := os.ReadFile(filepath.Join(w.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
	return strings.Count("\n"+string(data), "\n"+tool+" ")
}

// kept lists what lies in the cache beside the lock.
func (w *workshop) kept() []string {
	entries, err := os.ReadDir(filepath.Join(w.dir, "cache", "engines"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestBuild(t *testing.T) {
	w := newWorkshop(t)
	b := w.builder()
	// Left over from a build that was killed.
	if err := os.MkdirAll(filepath.Join(filepath.Dir(b.dir), ".build-key-1", "src"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, w.out)
	}
	if kept := w.kept(); fmt.Sprint(kept) != "[key]" {
		t.Errorf("kept: %v", kept)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%v %v", entries, err)
	}
	info, err := os.ReadFile(filepath.Join(b.dir, "build.json"))
	for _, want := range []string{`"key": "key"`, `"commit": "` + commit, `"version": "0.4.0-dev"`, `"rpc": "6.0.0"`, `"-DA=ON"`} {
		if err != nil || !strings.Contains(string(info), want) {
			t.Errorf("no %s in %s (%v)", want, info, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(w.dir, "included")); err != nil || string(data) != "# included" {
		t.Errorf("cmake included %q %v", data, err)
	}
	for _, want := range []string{"engine: 1/3 …", "engine: 3/3 …", "it is in " + b.dir} {
		if !strings.Contains(w.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, w.out)
		}
	}
	// The second time there is nothing to do, whatever tools are missing.
	t.Setenv("PATH", w.dir)
	before := w.out.String()
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said := strings.TrimPrefix(w.out.String(), before); strings.Count(said, "\n") != 1 || !strings.Contains(said, b.dir) {
		t.Errorf("the second time it says:\n%s", said)
	}
	if n := w.calls("ninja"); n != 1 {
		t.Errorf("ninja ran %d times", n)
	}
}

func TestBuildTwoAtOnce(t *testing.T) {
	w := newWorkshop(t)
	// The first waits in cmake until the second has said that it waits.
	w.tool("cmake", `mkdir "$4"; touch "$W/busy"; while [ ! -e "$W/go" ]; do sleep 0.05; done`)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	wg.Go(func() { errs[0] = w.builder().run(t.Context()) })
	await(t, func() bool { _, err := os.Stat(filepath.Join(w.dir, "busy")); return err == nil })
	wg.Go(func() { errs[1] = w.builder().run(t.Context()) })
	await(t, func() bool { return strings.Contains(w.out.String(), "waiting for it") })
	if err := os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if errs[0] != nil || errs[1] != nil || w.calls("ninja") != 1 || !strings.Contains(w.out.String(), "built meanwhile") {
		t.Errorf("%v, ninja ran %d times\n%s", errs, w.calls("ninja"), w.out)
	}
}

// await waits until something outside of this process has happened.
func await(t *testing.T, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for !happened() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("it does not happen")
		}
	}
}

// A build that fails says why and leaves nothing.
func TestBuildFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*workshop, *builder)
		text  string
	}{
		{"no network", func(w *workshop, b *builder) { w.tool("npm", "echo npm ERR! network >&2; exit 1") }, "npm ERR! network"},
		{"another package", func(w *workshop, b *builder) { b.pins.Source.Integrity = "sha512-AAAA" }, "is not the pinned package"},
		{"weak hash", func(w *workshop, b *builder) { b.pins.Source.Integrity = "sha1-AAAA" }, "is not a sha512"},
		{"no bundle", func(w *workshop, b *builder) { b.pins.Source.Bundle = "y" }, "has no package/y"},
		{"no package", func(w *workshop, b *builder) { w.tool("npm", "") }, "left 0 packages"},
		{"bad bundle", func(w *workshop, b *builder) { w.tool("git", "exit 128") }, "cannot be cloned"},
		{"another commit", func(w *workshop, b *builder) { w.tool("git", "case $1 in -C) echo 1234;; esac") }, "carries llama.cpp 1234"},
		{"cmake", func(w *workshop, b *builder) { w.tool("cmake", "echo no such flag; exit 1") }, "no such flag"},
		{"ninja", func(w *workshop, b *builder) { w.tool("ninja", "echo [1/2] x; echo foo.cpp:1: error: bar; exit 1") }, "error: bar"},
		{"nothing built", func(w *workshop, b *builder) { w.tool("ninja", "") }, "left no llama-server"},
		{"does not run", func(w *workshop, b *builder) {
			w.tool("ninja", `mkdir "$2/bin"; for p in llama-server other; do printf '#!/bin/sh\necho Illegal instruction; exit 132\n' > "$2/bin/$p"; chmod +x "$2/bin/$p"; done`)
		}, "does not run: exit status 132"},
		{"is of another commit", func(w *workshop, b *builder) {
			w.tool("ninja", `mkdir "$2/bin"; for p in llama-server other; do printf '#!/bin/sh\necho "version: 1 (1234567)"\n' > "$2/bin/$p"; chmod +x "$2/bin/$p"; done`)
		}, `of commit "1234567"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkshop(t)
			b := w.builder()
			c.spoil(w, b)
			err := b.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
			if kept := w.kept(); kept != nil {
				t.Errorf("left behind: %v", kept)
			}
		})
	}
}

func TestBuildInterrupted(t *testing.T) {
	w := newWorkshop(t)
	w.tool("ninja", `touch "$W/busy"; exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.builder().run(ctx) }()
	await(t, func() bool { _, err := os.Stat(filepath.Join(w.dir, "busy")); return err == nil })
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
	if kept := w.kept(); kept != nil {
		t.Errorf("left behind: %v", kept)
	}
}

func TestCheckTools(t *testing.T) {
	for _, c := range []struct {
		goos    string
		missing []string
		want    []string
	}{
		{"linux", nil, nil},
		{"linux", []string{"cmake", "ninja"}, []string{"needs cmake, ninja,", "sudo apt-get install -y cmake ninja-build"}},
		{"linux", []string{"cc", "gcc", "clang", "c++", "g++", "clang++", "npm", "git"}, []string{"sudo apt-get install -y npm git gcc g++"}},
		{"linux", []string{"gcc", "g++"}, nil}, // cc and c++ do
		{"darwin", []string{"cc", "gcc", "clang", "c++", "g++", "clang++", "npm"}, []string{"xcode-select --install", "brew install node"}},
		{"windows", []string{"cmake"}, []string{"needs cmake"}},
	} {
		b := &builder{goos: c.goos}
		err := b.checkTools(func(name string) (string, error) {
			for _, m := range c.missing {
				if m == name {
					return "", exec.ErrNotFound
				}
			}
			return "/bin/" + name, nil
		})
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

func TestProgress(t *testing.T) {
	var said []string
	now := time.Time{}
	p := &progress{
		say:   func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
		every: time.Minute, now: func() time.Time { return now },
	}
	now = now.Add(time.Hour)
	for i := range 10 {
		fmt.Fprintf(p, "[%d/10] Building\nwarning: something\n[%d/", i+1, i+1)
		fmt.Fprint(p, "10] in two pieces\n")
		now = now.Add(25 * time.Second)
	}
	if got := strings.Join(said, " "); got != "1/10 … 4/10 … 7/10 … 10/10 … 10/10 …" {
		t.Errorf("said %s", got)
	}
	var line bytes.Buffer
	p = &progress{redraw: &line, now: time.Now}
	fmt.Fprint(p, "[1/2] a\n[2/2] b\n")
	p.end()
	if got := line.String(); got != "\rengine: 1/2 … \rengine: 2/2 … \n" {
		t.Errorf("drew %q", got)
	}
}
