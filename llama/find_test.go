//go:build unix

package llama

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	goodVersion = "version: 0.4.0-dev (build 1, commit 80fb11a)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
	goodHelp    = "-m, --model FNAME  path\n--host HOST\n-c, --ctx-size N\n-np, --parallel N\n-t, --threads N\n-a, --alias STRING\n"
)

// script writes a program that answers --version and --help, or does anything else.
func script(t testing.TB, path, body string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func answers(version, help string) string {
	return "case $1 in\n--version) cat <<'END' >&2\n" + version + "END\n;;\n--help) cat <<'END'\n" + help + "END\n;;\nesac\n"
}

func TestFindOrder(t *testing.T) {
	dir := t.TempDir()
	pins, err := LoadPins()
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	o := FindOptions{StateDir: at("state"), CacheDir: at("cache"), PathEnv: at("none") + string(filepath.ListSeparator) + at("path")}
	find := func(want string, source Source) {
		t.Helper()
		e, err := Find(t.Context(), o)
		if err != nil || e.Server != want || e.Source != source {
			t.Errorf("found %s in %s (%v), not %s in %s", e.Server, e.Source, err, want, source)
		}
	}
	if _, err := Find(t.Context(), o); !errors.Is(err, ErrNoEngine) || !strings.Contains(err.Error(), "make engine") {
		t.Errorf("nothing anywhere: %v", err)
	}
	good := answers(goodVersion, goodHelp)
	p := script(t, at("path", "llama-server"), good)
	find(p, SourcePath)
	p = script(t, filepath.Join(CachedBuild(o.CacheDir, pins.Key(HostRecipe())), "llama-server"), good)
	find(p, SourceCache)
	p = script(t, at("state", "engines", "b1000", "llama-server"), good)
	find(p, SourceState)
	p = script(t, at("state", "engines", "b2000", "bin", "llama-server"), good)
	find(p, SourceState)
	p = script(t, at("state", "engines", "80fb11a-cuda", "llama-server"), good)
	find(p, SourceState)
	script(t, at("state", "engines", ".b3000", "llama-server"), good) // being installed
	find(p, SourceState)
	p = script(t, at("own", "llama-server"), good)
	for _, o.Bin = range []string{at("own"), p} {
		find(p, SourceSetting)
	}
}

func TestFindWhatItIs(t *testing.T) {
	for _, c := range []struct {
		name    string
		beside  []string
		build   string
		version string
		want    Engine
	}{
		{"pinned", []string{"ggml-rpc-server", "rpc-server"}, "", goodVersion, Engine{Version: "0.4.0-dev", Commit: "80fb11a", RPC: "6.0.0", RPCServer: "ggml-rpc-server"}},
		{"old name", []string{"rpc-server"}, "", goodVersion, Engine{Version: "0.4.0-dev", Commit: "80fb11a", RPC: "6.0.0", RPCServer: "rpc-server"}},
		{"old version", nil, "", "ggml_cuda_init: found 1 device\nversion: 4567 (abcdef12)\n", Engine{Version: "4567", Commit: "abcdef12"}},
		{"built", nil, `{"commit":"abcdef1234567890","rpc":"7.0.1"}`, "version: 4567 (abcdef12)\n", Engine{Version: "4567", Commit: "abcdef12", RPC: "7.0.1"}},
		{"build of another", nil, `{"commit":"ffffff1234567890","rpc":"7.0.1"}`, "version: 4567 (abcdef12)\n", Engine{Version: "4567", Commit: "abcdef12"}},
		{"broken build.json", nil, `{"commit":`, "version: 4567 (abcdef12)\n", Engine{Version: "4567", Commit: "abcdef12"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			script(t, filepath.Join(dir, "llama-server"), answers(c.version, goodHelp))
			for _, name := range c.beside {
				script(t, filepath.Join(dir, name), "")
			}
			if c.build != "" {
				if err := os.WriteFile(filepath.Join(dir, "build.json"), []byte(c.build), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			e, err := Find(t.Context(), FindOptions{Bin: dir})
			if err != nil {
				t.Fatal(err)
			}
			if e.RPCServer != "" {
				e.RPCServer = filepath.Base(e.RPCServer)
			}
			if e.Version != c.want.Version || e.Commit != c.want.Commit || e.RPC != c.want.RPC || e.RPCServer != c.want.RPCServer {
				t.Errorf("%+v", e)
			}
		})
	}
}

// What is not an engine is told what it is, and never waited for.
func TestFindBad(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	plain := at("plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := at("empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, bin string
		want      error
		text      string
	}{
		{"missing", at("missing"), ErrNoEngine, "missing"},
		{"folder without one", empty, ErrNoEngine, "llama-server"},
		{"not executable", plain, ErrEngine, "chmod +x"},
		{"device", "/dev/null", ErrEngine, "not a program"},
		{"other program", script(t, at("other"), "echo hello"), ErrEngine, "does not say its version"},
		{"program that fails", script(t, at("fails"), "echo 'error while loading shared libraries: libfoo.so' >&2; exit 127"), ErrEngine, "libfoo.so"},
		{"not a program", script(t, at("garbage"), "\x7fELF"), ErrEngine, "not a llama-server"},
		{"llama.cpp, no server", script(t, at("cli"), answers(goodVersion, "-m, --model F\n--threads N\n")), ErrEngine, "has no --host"},
		{"hangs", script(t, at("hangs"), "sleep 1000"), ErrEngine, "did not answer --version within"},
		{"hangs with a child", script(t, at("hangs2"), "sleep 1000 & sleep 1000"), ErrEngine, "did not answer"},
		{"talks without end", script(t, at("talks"), "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"), ErrEngine, "did not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := Find(t.Context(), FindOptions{Bin: c.bin, Patience: 500 * time.Millisecond})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "RELAY_LLAMA_BIN") {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A broken build does not hide a good one behind it, and is remembered.
func TestFindPasses(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "state", "engines", "b", "llama-server"), "exit 1")
	o := FindOptions{StateDir: filepath.Join(dir, "state"), CacheDir: dir, PathEnv: filepath.Join(dir, "path")}
	if _, err := Find(t.Context(), o); !errors.Is(err, ErrEngine) || !strings.Contains(err.Error(), "engines/b/llama-server") {
		t.Errorf("only a broken one: %v", err)
	}
	want := script(t, filepath.Join(dir, "path", "llama-server"), answers(goodVersion, goodHelp))
	e, err := Find(t.Context(), o)
	if err != nil || e.Server != want || len(e.Passed) != 1 || !strings.Contains(e.Passed[0], "engines/b/llama-server") {
		t.Errorf("%+v %v", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Find(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

func TestFindReal(t *testing.T) {
	e := engine(t)
	t.Logf("%v at %s, RPC %s, from %s", e, e.Server, e.RPC, e.Source)
	if e.RPCServer == "" || e.Commit == "" {
		t.Errorf("%+v", e)
	}
	// What relay sets on the command line, this build has.
	for _, flag := range []string{"--fit", "--cache-ram", "--ctx-checkpoints", "--threads-http", "--no-kv-unified", "--no-slots", "--no-ui", "--jinja", "--offline",
		"--log-colors", "--log-prefix", "--log-timestamps", "--verbosity", "--device", "--n-gpu-layers", "--embeddings", "--reranking",
		"--batch-size", "--ubatch-size", "--mmproj", "--port", "--api-key-file", "--list-devices"} {
		if !e.flags[flag] {
			t.Errorf("it has no %s", flag)
		}
	}
	if !e.trace {
		t.Error("its --verbosity 4 is not that of this relay")
	}
	for name := range allowedArgs() {
		if !e.flags[name] {
			t.Errorf("a model may set %s, which it does not have", name)
		}
	}
}

func TestSameBuild(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"80fb11a", "80fb11ac73e66d89eae2c6a91d8a77428fa733ed", true},
		{"80fb11ac73e66d89eae2c6a91d8a77428fa733ed", "80fb11a", true},
		{"80fb11a", "80fb11a", true},
		{"80fb11a", "80fb11b", false},
		{"", "80fb11a", false},
		{"", "", false},
		{"80f", "80fb11a", false},
	} {
		if got := SameBuild(c.a, c.b); got != c.want {
			t.Errorf("%q %q: %v", c.a, c.b, got)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add(goodVersion)
	f.Add("version: 4567 (abcdef12)\n")
	f.Fuzz(func(t *testing.T, out string) {
		if v := ParseVersion(out); (v.Name == "") != (v.Commit == "") || strings.ContainsAny(v.Name+v.Commit, "\n \x1b") {
			t.Errorf("%+v", v)
		}
		helpFlags(out)
	})
}
