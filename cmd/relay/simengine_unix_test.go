//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/llama"
	"relay/llama/demo"
	"relay/llama/gguf/gguftest"
)

// standIn is the stand-in as relay finds an engine: a script named llama-server,
// with these options in front of those that relay gives.
func standIn(t *testing.T, options string) llama.Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// By this name the test binary is the program.
	if err := os.Symlink(self, filepath.Join(dir, "relay")); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec " + dir + "/relay sim-engine " + options + " \"$@\"\n"
	path := filepath.Join(dir, "llama-server")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := llama.Find(t.Context(), llama.FindOptions{Bin: path})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// standInSpec is the demo model for the stand-in: seven layers, the output
// layer counted.
func standInSpec(t *testing.T) llama.Spec {
	t.Helper()
	path, err := demo.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return llama.Spec{Name: "demo", Model: path, Context: 512, Slots: 2, Sandbox: llama.SandboxOff, RunDir: filepath.Join(t.TempDir(), "run"), Args: []string{"-fa", "on", "--temp=0.5"}}
}

func stopProcess(t *testing.T, p *llama.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

const twoGPUs = `--sim-device "CUDA0:Pretend A:1000" --sim-device "CUDA1:Pretend B: small:500"`

// A model is put on pretended GPUs as it would be on real ones.
func TestStandInOnGPUs(t *testing.T) {
	e := standIn(t, twoGPUs)
	if !llama.SameBuild(e.Commit, "80fb11a") {
		t.Errorf("%+v", e)
	}
	list, err := e.List(t.Context(), llama.Listing{})
	devices, _ := list.Look(t.Context(), llama.Own{})
	if err != nil || len(devices) != 3 || devices[1].ID != "CUDA1" || devices[1].Name != "Pretend B: small" || !devices[1].Known || devices[1].Total != 500<<20 {
		t.Fatalf("%+v %v", devices, err)
	}
	s := standInSpec(t)
	s.Devices, s.GPULayers, s.Split = []string{"CUDA0", "CUDA1"}, 6, []int{2, 4}
	p, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer stopProcess(t, p)
	r := p.Report()
	used := r.Used()
	if r.Layers != 7 || r.Offloaded != 6 || len(r.Buffers) != 3 || used[llama.HostID] == 0 {
		t.Errorf("%+v", r)
	}
	// One layer stays on the host; of its cache each has 256 bytes a token.
	kv := map[string]uint64{}
	for _, b := range r.Buffers {
		kv[b.Device] = b.Context / (512 * 2 * 256)
	}
	if kv["CPU"] != 1 || kv["CUDA0"] != 2 || kv["CUDA1"] != 3 { // and the output layer
		t.Errorf("layers by device: %v of %+v", kv, r.Buffers)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":5}`))
	if err != nil {
		t.Fatal(err)
	}
	before, err := p.Timings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.Client().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if after, err2 := p.Timings(t.Context()); resp.StatusCode != 200 || err != nil || err2 != nil || after.Tokens <= before.Tokens || after.PromptTokens <= before.PromptTokens {
		t.Errorf("%d %v; %+v, then %+v %v", resp.StatusCode, err, before, after, err2)
	}
}

// The options by which relay starts an engine for a kind of model, and those of
// the stand-in's own, do what they say.
func TestStandInKinds(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "turns.json")
	if err := os.WriteFile(script, []byte(`[{"match":"Rome","turns":[{"content":"All roads lead there."}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	projector := filepath.Join(dir, "p.gguf")
	if err := os.WriteFile(projector, gguftest.Projector(64).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	const image = `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlh"}}]}],"max_tokens":1}`
	for _, c := range []struct {
		name, options string
		set           func(*llama.Spec)
		path, body    string
		status        int
		text          string
	}{
		{"script", "--script " + script, nil, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Rome?"}]}`, 200, "All roads lead there."},
		{"embed", "--sim-width 3", func(s *llama.Spec) { s.Kind = llama.KindEmbed }, "/v1/embeddings", `{"input":"a"}`, 200, `"embedding":[`},
		{"rerank", "", func(s *llama.Spec) { s.Kind = llama.KindRerank }, "/v1/rerank", `{"query":"a","documents":["b"]}`, 200, `"relevance_score":`},
		{"images", "", func(s *llama.Spec) { s.Projector = projector }, "/v1/chat/completions", image, 200, `"prompt_tokens":67`},
		{"no images", "", nil, "/v1/chat/completions", image, 500, "image input is not supported"},
		{"no embeddings", "", nil, "/v1/embeddings", `{"input":"a"}`, 501, "Start it with `--embeddings`"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := standInSpec(t)
			if c.set != nil {
				c.set(&s)
			}
			p, err := standIn(t, c.options).Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			defer stopProcess(t, p)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := p.Client().RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status || !strings.Contains(string(b), c.text) {
				t.Errorf("%d %s %v", resp.StatusCode, b, err)
			}
		})
	}
}

func TestStandInFails(t *testing.T) {
	for _, c := range []struct {
		name, options string
		set           func(*llama.Spec)
		want          error
		text          string
	}{
		{"refuses", `--sim-refuse "the tensors are made of cheese"`, nil, llama.ErrEngine, "made of cheese"},
		{"gives no token", "--fault stall", func(s *llama.Spec) { s.ReadyIn = time.Second }, llama.ErrTimeout, "does not answer a first request"},
		{"has no such GPU", "", func(s *llama.Spec) { s.Devices, s.GPULayers = []string{"CUDA7"}, -1 }, llama.ErrEngine, "invalid device: CUDA7"},
		{"has too small a GPU", `--sim-device CUDA0:tiny:1`, func(s *llama.Spec) { s.Devices, s.GPULayers = []string{"CUDA0"}, -1 }, llama.ErrEngine, "out of memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := standInSpec(t)
			if c.set != nil {
				c.set(&s)
			}
			p, err := standIn(t, c.options).Start(t.Context(), s)
			if err == nil {
				stopProcess(t, p)
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStandInDies(t *testing.T) {
	p, err := standIn(t, "--sim-die-after 2 --sim-grow 8").Start(t.Context(), standInSpec(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stopProcess(t, p)
	before, err := p.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context()); err != nil { // the second request
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	for after := before; after.RSS < before.RSS+4<<20; {
		if after, err = p.Usage(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-deadline:
			t.Fatalf("it took %d bytes and takes %d", before.RSS, after.RSS)
		default:
		}
	}
	_ = p.Check(t.Context()) // the third, which it may or may not answer before it is gone
	select {
	case <-p.Done():
	case <-deadline:
		t.Fatal("it lives")
	}
	if err := p.Err(); !errors.Is(err, llama.ErrEngine) || !strings.Contains(err.Error(), "GGML_ASSERT") {
		t.Errorf("got %v", err)
	}
}
