//go:build unix

package llama

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/llama/demo"
	"relay/llama/gguf"
	"relay/llama/gguf/gguftest"
)

// splitDemo writes the demo model in three parts, in a folder of their own.
func splitDemo(t testing.TB, bare bool) []string {
	t.Helper()
	f, err := gguftest.Parse(demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	paths, err := gguftest.WriteParts(t.TempDir(), "split", f.Split(3, bare))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// A split model answers as the whole one, in the sandbox, also where its first
// part has no tensors.
func TestStartSplit(t *testing.T) {
	e := engine(t)
	for _, bare := range []bool{false, true} {
		paths := splitDemo(t, bare)
		h, err := gguf.Read(paths[2])
		if err != nil {
			t.Fatal(err)
		}
		s := demoSpec(t)
		s.Model, s.Files = h.Parts[0], h.Parts[1:]
		p := start(t, e, s)
		if status, got := post(t, p, "/v1/chat/completions", question); status != 200 || !strings.Contains(got, answer) {
			t.Errorf("first part bare=%v: %d %s", bare, status, got)
		}
		if r := p.Report(); r.Sandbox.Files != ProbeSandbox().Files {
			t.Errorf("sandbox %+v", r.Sandbox)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		// The sandbox opens what is named, and nothing beside it.
		if s.Files = h.Parts[1:2]; ProbeSandbox().Files {
			if p, err := e.Start(t.Context(), s); err == nil {
				t.Errorf("a part that is not named was read: %v", p.Stop(t.Context()))
			}
		}
	}
}

// A projector beside the model gives it eyes, in the sandbox.
func TestStartProjector(t *testing.T) {
	s := demoSpec(t)
	s.Projector = filepath.Join(t.TempDir(), "mmproj.gguf")
	if err := os.WriteFile(s.Projector, gguftest.Projector(128).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := gguf.Read(s.Projector); err != nil || h.Kind != gguf.KindProjector {
		t.Fatalf("%s: %v", h.Kind, err)
	}
	e := engine(t)
	blind := start(t, e, demoSpec(t))
	seeing := start(t, e, s)
	for p, sees := range map[*Process]bool{blind: false, seeing: true} {
		status, props, err := p.ask(t.Context(), http.MethodGet, "/props", nil)
		if got := strings.Contains(string(props), `"vision":true`); status != 200 || err != nil || got != sees {
			t.Errorf("it says that it sees: %v: %d %v %s", got, status, err, props)
		}
		status, got := post(t, p, "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,`+picture(t)+`"}}]}],"max_tokens":4,"temperature":0}`)
		if (status == 200) != sees {
			t.Errorf("asked about an image: %d %s", status, got)
		}
	}
	if _, got := post(t, seeing, "/v1/chat/completions", question); !strings.Contains(got, answer) {
		t.Errorf("asked without an image: %s", got)
	}
}

// picture is a small image as base64.
func picture(t testing.TB) string {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 32, 32))
	for i := range 32 {
		img.Set(i, i, color.RGBA{R: 255, A: 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// All files count for how long a start may take.
func TestReadyBudget(t *testing.T) {
	dir := t.TempDir()
	sized := func(name string, gib int64) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, gib<<30); err != nil {
			t.Skipf("no sparse files here: %v", err)
		}
		return path
	}
	s := Spec{Name: "m", Model: sized("1", 1), Files: []string{sized("2", 4), sized("3", 16)}, Projector: sized("p", 2)}
	if got, err := readyBudget(s); err != nil || got != readyBase+23*readyPerGiB {
		t.Errorf("%v: %v", got, err)
	}
	s.ReadyIn = time.Second
	if got, err := readyBudget(s); err != nil || got != time.Second {
		t.Errorf("%v: %v", got, err)
	}
	for _, missing := range []func(*Spec){func(s *Spec) { s.Files = append(s.Files, dir+"/4") }, func(s *Spec) { s.Projector = dir + "/q" }} {
		s := s
		missing(&s)
		if _, err := readyBudget(s); !errors.Is(err, ErrFile) {
			t.Errorf("a file is missing: %v", err)
		}
	}
}
