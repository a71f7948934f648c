//go:build unix

package llama

import (
	"context"
	"errors"
	"net"
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

func TestValidateRemotes(t *testing.T) {
	good := func() Spec {
		return Spec{
			Name: "m", Model: "/m.gguf", Context: 512, RunDir: "/run", Remotes: []Remote{{Layers: []int{4}}, {Layers: []int{3, 1}}}, GPULayers: 9,
			Connected: func(context.Context, int, net.Conn) {},
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   error
	}{
		{"none of its own", func(*Spec) {}, nil},
		{"one GPU", func(s *Spec) { s.Devices, s.GPULayers = []string{"CUDA0"}, 12 }, nil},
		{"two GPUs", func(s *Spec) { s.Devices, s.GPULayers, s.Split = []string{"CUDA0", "CUDA1"}, 12, []int{1, 3} }, nil},
		{"only the output on a GPU", func(s *Spec) { s.Devices = []string{"CUDA0"} }, nil},
		{"no output layer", func(s *Spec) { s.GPULayers = 8 }, ErrSpec},
		{"layers of its own and no GPU", func(s *Spec) { s.GPULayers = 10 }, ErrSpec},
		{"all layers", func(s *Spec) { s.GPULayers = -1 }, ErrSpec},
		{"a split that is short", func(s *Spec) { s.Devices, s.GPULayers, s.Split = []string{"CUDA0", "CUDA1"}, 12, []int{1, 2} }, ErrSpec},
		{"no split", func(s *Spec) { s.Devices, s.GPULayers = []string{"CUDA0", "CUDA1"}, 12 }, ErrSpec},
		{"a server without devices", func(s *Spec) { s.Remotes[0].Layers = nil }, ErrSpec},
		{"a device without layers", func(s *Spec) { s.Remotes[1].Layers = []int{4, 0} }, ErrSpec},
		{"too many layers", func(s *Spec) { s.Remotes[0].Layers, s.GPULayers = []int{maxLayers + 1}, maxLayers+6 }, ErrSpec},
		{"too many devices", func(s *Spec) { s.Remotes[0].Layers = make([]int, maxRemoteDevices+1) }, ErrSpec},
		{"too many servers", func(s *Spec) { s.Remotes = make([]Remote, maxRemotes+1) }, ErrSpec},
		{"nobody to connect", func(s *Spec) { s.Connected = nil }, ErrSpec},
		{"experts", func(s *Spec) { s.CPUExperts = 1 }, ErrSpec},
		{"a GPU called RPC0", func(s *Spec) { s.Devices = []string{"RPC0"} }, ErrSpec},
	} {
		s := good()
		c.change(&s)
		if err := s.Validate(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestValidateRPC(t *testing.T) {
	for _, c := range []struct {
		name string
		s    RPCSpec
		want error
	}{
		{"right", RPCSpec{Name: "m", RunDir: "/run", Devices: []string{"CUDA0", HostID}, Tensors: "/t"}, nil},
		{"no name", RPCSpec{RunDir: "/run"}, ErrSpec},
		{"a name in lines", RPCSpec{Name: "a\nb", RunDir: "/run"}, ErrSpec},
		{"a run folder somewhere", RPCSpec{Name: "m", RunDir: "run"}, ErrSpec},
		{"tensors somewhere", RPCSpec{Name: "m", RunDir: "/run", Tensors: "t"}, ErrSpec},
		{"a cache somewhere", RPCSpec{Name: "m", RunDir: "/run", CacheDir: "c"}, ErrSpec},
		{"threads", RPCSpec{Name: "m", RunDir: "/run", Threads: -1}, ErrSpec},
		{"a device twice", RPCSpec{Name: "m", RunDir: "/run", Devices: []string{"CUDA0", "CUDA0"}}, ErrSpec},
		{"a device that is more", RPCSpec{Name: "m", RunDir: "/run", Devices: []string{"CUDA0,CPU"}}, ErrSpec},
		{"a mode", RPCSpec{Name: "m", RunDir: "/run", Sandbox: "some"}, ErrSpec},
		{"a variable", RPCSpec{Name: "m", RunDir: "/run", Env: []string{"LLAMA_CACHE=/"}}, ErrVariable},
	} {
		if err := c.s.Validate(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := (Engine{RPC: "6.0.0"}).StartRPC(t.Context(), c.s); c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.Is(err, ErrNoEngine) {
			t.Errorf("%s: started: %v", c.name, err)
		}
	}
}

// A build that lacks a part says which.
func TestCheckRPC(t *testing.T) {
	whole := func() Engine { return Engine{RPCServer: "/rpc", RPC: "6.0.0", flags: map[string]bool{"--rpc": true}} }
	if err := whole().CheckRPC(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Engine){
		"no ggml-rpc-server": func(e *Engine) { e.RPCServer = "" },
		"no --rpc":           func(e *Engine) { e.flags = nil },
		"is not known":       func(e *Engine) { e.RPC = "" },
	} {
		e := whole()
		change(&e)
		if err := e.CheckRPC(); !errors.Is(err, ErrNoEngine) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestArgumentsRemotes(t *testing.T) {
	e := Engine{flags: map[string]bool{"--mmproj-device": true, "--no-mmproj-offload": true, "--cache-ram": true, "--fit": true}}
	s := Spec{Name: "m", Model: "/m.gguf", Context: 512, Remotes: []Remote{{Layers: []int{4}}, {Layers: []int{3, 1}}}, GPULayers: 9, Projector: "/p.gguf"}
	line := func() string {
		args, err := e.arguments(s, endpoint{port: 8000}, []int{9000, 9001})
		if err != nil {
			t.Fatal(err)
		}
		return " " + strings.Join(args, " ") + " "
	}
	for want, got := range map[string]string{
		" --host 127.0.0.1 --port 8000 --ctx-size 512 --parallel 1 --fit off --cache-ram 0 ": line(),
		" --rpc 127.0.0.1:9000,127.0.0.1:9001 --device RPC0,RPC1,RPC2 --n-gpu-layers 9 --split-mode layer --tensor-split 4,3,2" +
			" --override-tensor ^(output|token_embd|cls|dense_)=CPU --no-mmproj-offload ": line(),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	s.Devices, s.GPULayers = []string{"CUDA0"}, 12
	if got, want := line(), " --device RPC0,RPC1,RPC2,CUDA0 --n-gpu-layers 12 --split-mode layer --tensor-split 4,3,1,4 --override-tensor ^none$=CPU --mmproj-device CUDA0 "; !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.Devices, s.Split = []string{"CUDA0", "CUDA1"}, []int{1, 3}
	if got, want := line(), " --device RPC0,RPC1,RPC2,CUDA0,CUDA1 --n-gpu-layers 12 --split-mode layer --tensor-split 4,3,1,1,3 "; !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
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
