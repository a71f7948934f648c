//go:build unix

package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := Spec{Name: "m", Model: "/m.gguf", Context: 256, RunDir: "/run"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name string
		set  func(*Spec)
		want error
	}{
		{"no name", func(s *Spec) { s.Name = "" }, ErrSpec},
		{"name with a comma", func(s *Spec) { s.Name = "a,b" }, ErrSpec},
		{"name of two lines", func(s *Spec) { s.Name = "a\nb" }, ErrSpec},
		{"kind", func(s *Spec) { s.Kind = "poem" }, ErrSpec},
		{"model", func(s *Spec) { s.Model = "m.gguf" }, ErrSpec},
		{"no model", func(s *Spec) { s.Model = "" }, ErrSpec},
		{"further file", func(s *Spec) { s.Files = []string{"-x"} }, ErrSpec},
		{"projector", func(s *Spec) { s.Projector = "p" }, ErrSpec},
		{"run folder", func(s *Spec) { s.RunDir = "run" }, ErrSpec},
		{"cache folder", func(s *Spec) { s.CacheDir = "c" }, ErrSpec},
		{"context", func(s *Spec) { s.Context = 0 }, ErrSpec},
		{"context times slots", func(s *Spec) { s.Context, s.Slots = 1<<30, 4 }, ErrSpec},
		{"slots", func(s *Spec) { s.Slots = -1 }, ErrSpec},
		{"threads", func(s *Spec) { s.Threads = -1 }, ErrSpec},
		{"device", func(s *Spec) { s.Devices = []string{"CUDA0,RPC0"} }, ErrSpec},
		{"device twice", func(s *Spec) { s.Devices = []string{"CUDA0", "CUDA0"} }, ErrSpec},
		{"device none", func(s *Spec) { s.Devices = []string{"none"} }, ErrSpec},
		{"layers", func(s *Spec) { s.GPULayers = 1 << 20 }, ErrSpec},
		{"experts", func(s *Spec) { s.CPUExperts = -1 }, ErrSpec},
		{"split without devices", func(s *Spec) { s.GPULayers, s.Split = 3, []int{3} }, ErrSpec},
		{"split of another sum", func(s *Spec) { s.Devices, s.GPULayers, s.Split = []string{"CUDA0", "CUDA1"}, 4, []int{1, 2} }, ErrSpec},
		{"split of all", func(s *Spec) { s.Devices, s.GPULayers, s.Split = []string{"CUDA0", "CUDA1"}, -1, []int{1, 2} }, ErrSpec},
		{"negative split", func(s *Spec) { s.Devices, s.GPULayers, s.Split = []string{"CUDA0", "CUDA1"}, 4, []int{-1, 5} }, ErrSpec},
		{"split of nothing", func(s *Spec) { s.Devices, s.Split = []string{"CUDA0"}, []int{0} }, ErrSpec},
		{"variable", func(s *Spec) { s.Env = []string{"LD_PRELOAD=/x.so"} }, ErrVariable},
		{"sandbox", func(s *Spec) { s.Sandbox = "maybe" }, ErrSpec},
		{"argument", func(s *Spec) { s.Args = []string{"--model", "/x"} }, ErrArgument},
	} {
		s := good
		c.set(&s)
		if err := s.Validate(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := (Engine{}).Start(t.Context(), s); !errors.Is(err, c.want) {
			t.Errorf("%s: started: %v", c.name, err)
		}
	}
}

func TestParseSandboxMode(t *testing.T) {
	for s, want := range map[string]SandboxMode{"": SandboxAuto, "auto": SandboxAuto, "require": SandboxRequire, "off": SandboxOff, "AUTO": "", "yes": ""} {
		if got, err := ParseSandboxMode(s); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", s, got, err)
		}
	}
}

func TestArguments(t *testing.T) {
	all := Engine{flags: map[string]bool{}, trace: true}
	for _, f := range []string{"--fit", "--cache-ram", "--ctx-checkpoints", "--threads-http", "--no-kv-unified", "--no-slots", "--no-ui", "--no-webui", "--jinja", "--offline",
		"--log-colors", "--log-prefix", "--log-timestamps", "--device", "--n-gpu-layers", "--temp", "-ub"} {
		all.flags[f] = true
	}
	line := func(e Engine, s Spec, at endpoint) string {
		args, err := e.arguments(s, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(args, " ")
	}
	s := Spec{Name: "m", Model: "/m.gguf", Context: 4096, Slots: 3, Threads: 2, Args: []string{"--temp=0.5"}}
	const want = "--model /m.gguf --alias m --host /run/e.sock --ctx-size 12288 --parallel 3 --fit off --cache-ram 0 --ctx-checkpoints 4 --threads-http 44 --no-kv-unified" +
		" --no-slots --no-ui --jinja --offline --log-colors off --log-prefix --log-timestamps --verbosity 4 --threads 2 --device none --n-gpu-layers 0 --temp 0.5"
	if got := line(all, s, endpoint{socket: "/run/e.sock"}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// An older build gets only what it has.
	old := Engine{flags: map[string]bool{"--no-webui": true, "--temp": true}}
	if got, want := line(old, s, endpoint{port: 7, keyFile: "/k"}),
		"--model /m.gguf --alias m --host 127.0.0.1 --port 7 --api-key-file /k --ctx-size 12288 --parallel 3 --no-webui --threads 2 --temp 0.5"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.Devices, s.GPULayers, s.Projector = []string{"CUDA1", "CUDA0"}, -1, "/p.gguf"
	if got := line(all, s, endpoint{socket: "/x.sock"}); !strings.Contains(got, "--device CUDA1,CUDA0 --n-gpu-layers 4096 --split-mode layer") || !strings.Contains(got, "--mmproj /p.gguf") {
		t.Errorf("got %s", got)
	}
	s.GPULayers, s.Split, s.CPUExperts = 7, []int{4, 3}, 2
	if _, err := all.arguments(s, endpoint{}, nil); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "no --n-cpu-moe") {
		t.Errorf("experts, with a build that cannot: %v", err)
	}
	for _, f := range []string{"--n-cpu-moe", "--load-mode", "--metrics"} {
		all.flags[f] = true
	}
	if got := line(all, s, endpoint{socket: "/x.sock"}); !strings.Contains(got, "--device CUDA1,CUDA0 --n-gpu-layers 7 --split-mode layer --tensor-split 4,3 --n-cpu-moe 2") ||
		!strings.Contains(got, "--load-mode none") || !strings.Contains(got, "--metrics") {
		t.Errorf("got %s", got)
	}
	s.Devices, s.Split, s.CPUExperts = []string{"CUDA1"}, []int{7}, 0
	if got := line(all, s, endpoint{socket: "/x.sock"}); !strings.Contains(got, "--device CUDA1 --n-gpu-layers 7 --split-mode none --temp 0.5") {
		t.Errorf("got %s", got)
	}
	s.Devices, s.Split, s.GPULayers = nil, nil, 0
	if got := line(all, s, endpoint{socket: "/x.sock"}); strings.Contains(got, "--load-mode") || strings.Contains(got, "--split-mode") {
		t.Errorf("got %s", got)
	}
	s.Kind, s.Args = KindEmbed, nil
	if got := line(all, s, endpoint{socket: "/x.sock"}); !strings.HasSuffix(got, "--embeddings --batch-size 2048 --ubatch-size 2048") {
		t.Errorf("got %s", got)
	}
	s.Kind, s.Args = KindRerank, []string{"-ub", "64"}
	if got := line(all, s, endpoint{socket: "/x.sock"}); !strings.HasSuffix(got, "--reranking -ub 64 --batch-size 64 --ubatch-size 64") {
		t.Errorf("got %s", got)
	}
	s.Args = []string{"--swa-full"}
	if _, err := all.arguments(s, endpoint{}, nil); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "has no --swa-full") {
		t.Errorf("an argument that the build lacks: %v", err)
	}
}

func TestPins(t *testing.T) {
	p, err := LoadPins()
	if err != nil {
		t.Fatal(err)
	}
	s := p.Source
	if len(s.Commit) != 40 || !strings.HasPrefix(s.Integrity, "sha512-") || s.RPC == "" || s.Version == "" {
		t.Errorf("%+v", s)
	}
	keys := []string{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, avx2 := range []bool{true, false} {
			keys = append(keys, p.Key(RecipeFor(goos, "amd64", avx2)))
		}
		keys = append(keys, p.Key(RecipeFor(goos, "arm64", false)))
	}
	slices.Sort(keys)
	if n := len(slices.Compact(keys)); n != 6 { // Linux and Windows are built alike
		t.Errorf("%d keys: %v", n, keys)
	}
	other := p
	other.Source.Commit = strings.Repeat("f", 40)
	if p.Key(HostRecipe()) == other.Key(HostRecipe()) {
		t.Error("another commit has the same key")
	}
	for _, a := range p.Archives {
		if address, ok := p.Address(a); ok != (p.Release.Tag != "" && a.SHA256 != "") {
			t.Errorf("%+v: %s", a, address)
		}
	}
	// No hash, no install.
	p.Release.Tag = "b1"
	a := PinnedArchive{File: "llama-{tag}-x.zip"}
	if _, ok := p.Address(a); ok {
		t.Error("without a hash it could be installed")
	}
	a.SHA256 = strings.Repeat("0", 64)
	if address, ok := p.Address(a); !ok || address != p.Release.Base+"/b1/llama-b1-x.zip" {
		t.Errorf("%s", address)
	}
}
