//go:build unix

package llama

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeTools is a PATH with these programs in it, each a shell script, before
// the system's own.
func fakeTools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// listing is an engine that lists this.
func listing(t *testing.T, lines string) Listing {
	t.Helper()
	server := filepath.Join(t.TempDir(), "llama-server")
	if err := os.WriteFile(server, []byte("#!/bin/sh\ncat <<'END'\n"+lines+"\nEND\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Engine{Server: server, flags: map[string]bool{"--list-devices": true}}.List(t.Context(), Listing{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const oneCUDA = "Available devices:\n  CUDA0: NVIDIA GeForce RTX 3060 (11910 MiB, 11700 MiB free)"

// However nvidia-smi behaves, there is an answer in time, and nothing is made up.
func TestDevicesBesideATool(t *testing.T) {
	for _, v := range []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} {
		if value, set := os.LookupEnv(v); set {
			t.Setenv(v, value) // so that it is put back
			os.Unsetenv(v)
		}
	}
	const answer = "0, GPU-9a8b7c6d, [N/A], 12288, 3000, 9100, NVIDIA GeForce RTX 3060"
	for name, c := range map[string]struct {
		script  string
		foreign uint64
		known   bool
		trouble string
	}{
		"works": {"echo '" + answer + "'", 3000 << 20, true, ""},
		"is old": {`case "$1" in *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;; esac
echo '0, GPU-9a8b7c6d, 12288 MiB, 3000 MiB, 9100 MiB, NVIDIA GeForce RTX 3060'`, 3000 << 20, true, ""},
		"has no driver": {"echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9", 0, false, "nvidia-smi: NVIDIA-SMI has failed"},
		"says nothing":  {"exit 0", 0, false, ""},
		"garbage":       {"head -c 4096 /dev/urandom", 0, false, ""},
		"endless":       {"yes '" + strings.Replace(answer, "0,", "99,", 1) + "' | head -c 4000000; echo '" + answer + "'", 3000 << 20, true, ""},
		"steers":        {"printf '\\033[2J\\n'; exit 1", 0, false, "nvidia-smi:  [2J"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeTools(t, map[string]string{"nvidia-smi": c.script})
			devices, troubles := listing(t, oneCUDA).Look(t.Context(), Own{})
			d := devices[0]
			if name == "endless" { // More than is read: what came first counts, and is of one card.
				c.foreign, c.known = d.Foreign, d.ForeignKnown
			}
			if len(devices) != 2 || d.ID != "CUDA0" || !d.Known || d.ForeignKnown != c.known || d.Foreign != c.foreign || d.Unusable != "" || devices[1].Kind != DeviceRAM {
				t.Errorf("%+v", devices)
			}
			if got := strings.Join(troubles, "; "); !strings.HasPrefix(got, c.trouble) || (got == "") != (c.trouble == "") || strings.Contains(got, "\x1b") {
				t.Errorf("troubles: %q", got)
			}
		})
	}
}

// A tool that hangs is killed with all that it started.
func TestDevicesBesideAHangingTool(t *testing.T) {
	fakeTools(t, map[string]string{"nvidia-smi": "sleep 600 & sleep 600"})
	l := listing(t, oneCUDA)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	devices, troubles := l.Look(ctx, Own{})
	if len(devices) != 2 || devices[0].ForeignKnown || len(troubles) != 1 || !strings.Contains(troubles[0], "did not answer") {
		t.Errorf("%+v, %q", devices, troubles)
	}
	if took := time.Since(begin); took > toolTime {
		t.Errorf("it took %v", took)
	}
}

// A tool that did not answer in its time is left alone for a minute, and its trouble
// is told once.
func TestDevicesLeaveAToolAlone(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	fakeTools(t, map[string]string{"nvidia-smi": `echo x >> '` + asked + `'; exec sleep 600`})
	l := listing(t, oneCUDA)
	now := time.Now()
	l.tools.now = func() time.Time { return now }
	look := func(troubles, questions int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		devices, got := l.Look(ctx, Own{})
		if len(devices) != 2 || devices[0].ForeignKnown || !devices[0].Known {
			t.Errorf("%+v", devices)
		}
		if len(got) != troubles {
			t.Errorf("troubles: %q", got)
		}
		if data, err := os.ReadFile(asked); err != nil || strings.Count(string(data), "x") != questions {
			t.Errorf("asked: %q %v, want %d", data, err, questions)
		}
	}
	look(1, 1)
	now = now.Add(restTime - 1)
	look(0, 1)
	now = now.Add(1)
	look(0, 2) // and it is the same trouble
	fakeTools(t, map[string]string{"nvidia-smi": "echo 'no permission'; exit 1"})
	now = now.Add(restTime)
	for _, troubles := range []int{1, 0} {
		if _, got := l.Look(t.Context(), Own{}); len(got) != troubles {
			t.Errorf("another trouble: %q", got)
		}
	}
	fakeTools(t, map[string]string{"nvidia-smi": "echo '0, GPU-9a8b7c6d, [N/A], 12288, 3000, 9100, NVIDIA GeForce RTX 3060'"})
	if devices, got := l.Look(t.Context(), Own{}); len(got) != 0 || !devices[0].ForeignKnown {
		t.Errorf("it works: %+v, %q", devices, got)
	}
	fakeTools(t, map[string]string{"nvidia-smi": "echo 'no permission'; exit 1"})
	if _, got := l.Look(t.Context(), Own{}); len(got) != 1 {
		t.Errorf("it fails again: %q", got)
	}
}

// Without an engine, and with one for the CPU, the GPUs that are there are shown
// with the reason.
func TestDevicesThatNoEngineCanUse(t *testing.T) {
	fakeTools(t, map[string]string{"nvidia-smi": "echo '0, GPU-9a8b7c6d, [N/A], 12288, 3000, 9100, NVIDIA GeForce RTX 3060'"})
	tacit, err := Engine{Server: "/nonexistent"}.List(t.Context(), Listing{})
	if err != nil {
		t.Fatal(err)
	}
	for why, l := range map[string]Listing{
		"there is no llama.cpp here that could use it":          {},
		"this build of llama.cpp has no CUDA":                   listing(t, "Available devices:\n  (none)"),
		"this build of llama.cpp does not list what it can use": tacit,
		"this build of llama.cpp has no CUDA ":                  listing(t, ""),
		"CUDA does not start: no CUDA-capable device is found":  listing(t, "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is found\nAvailable devices:"),
	} {
		devices, _ := l.Look(t.Context(), Own{})
		if len(devices) != 2 || devices[0].ID != "nvidia0" || devices[0].Unusable != strings.TrimSpace(why) || devices[0].UUID != "GPU-9a8b7c6d" {
			t.Errorf("%s: %+v", why, devices)
		}
	}
}
