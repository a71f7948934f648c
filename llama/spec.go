package llama

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
)

// Kind is what a model is for.
type Kind string

// The kinds of models.
const (
	KindChat   Kind = "chat"
	KindEmbed  Kind = "embed"
	KindRerank Kind = "rerank"
)

// Spec is everything about one engine process. The zero value of a field means
// what its comment says.
type Spec struct {
	// Name is the model's name: the engine answers under it. Required.
	Name string
	// Kind defaults to KindChat.
	Kind Kind
	// Model is the path of the GGUF file; of a split one, its first part. Required.
	Model string
	// Files are further files that the engine may read: the other parts of a
	// split model. They are not put on the command line.
	Files []string
	// Projector is the path of the multimodal projector; empty for none.
	Projector string

	// Context is the number of tokens that one slot holds. Required, > 0.
	Context int
	// Slots is the number of requests served at once; 0 means 1.
	Slots int
	// Threads is the number of CPU threads; 0 means one for each physical core
	// that this process may use, but for one that is left to others.
	Threads int
	// Devices are the engine's own ids of the GPUs to use, in order; empty
	// means none: everything on the CPU.
	Devices []string
	// GPULayers is how many layers go to Devices, the output layer counted; < 0
	// means all. It counts only with Devices.
	GPULayers int
	// Split is how many of these layers go to each of Devices, in their order;
	// the sum is GPULayers. Empty leaves it to the engine, which goes by how
	// much memory is free at that moment.
	Split []int
	// CPUExperts is how many layers, counted from the first, keep their experts
	// in host memory. It counts only with Devices.
	CPUExperts int
	// Remotes are the RPC servers that compute layers of the model, in the order of
	// these layers: first what stays in host memory here, then Remotes, then Devices,
	// then the output layer, on the last of Devices or in host memory. With Remotes,
	// GPULayers is the sum of what goes to Remotes and Devices, the output layer
	// counted also where there are no Devices, and Split has those of Devices, the
	// output layer counted.
	Remotes []Remote
	// Connected is handed every connection that the engine opens to one of Remotes,
	// by its index, in a goroutine of its own; c is a *net.TCPConn that it owns and
	// closes. When the process is gone all are closed and ctx is cancelled, at which it
	// breaks what it has opened itself: the process counts as gone, and a start as
	// failed, when each call has returned. It must not wait for that itself. Required
	// with Remotes.
	Connected func(ctx context.Context, remote int, c net.Conn) `json:"-"`
	// Args are further arguments from the model's record. They are checked
	// against CheckArgs.
	Args []string
	// Env are variables from the model's record, as NAME=VALUE. They are checked
	// against CheckEnv. What relay's own environment has of them stands.
	Env []string
	// Started, where it is set, is told the engine's process as soon as there is one,
	// long before it is ready: what it takes from then on is relay's own. Start calls
	// it once, and waits for it.
	Started func(pid int) `json:"-"`

	// RunDir is the process's own folder for its socket and log; it is made
	// with mode 0700. Required. Two processes never share one.
	RunDir string
	// CacheDir is a folder where a GPU's compiled kernels outlive the process;
	// empty means in RunDir.
	CacheDir string
	// Sandbox defaults to SandboxAuto.
	Sandbox SandboxMode
	// Shim is the command that becomes the shim, program first; empty means
	// this very executable with "engine-shim".
	Shim []string

	// ReadyIn bounds the time from start to the first token; 0 means five
	// minutes and 20 seconds for each GiB of the files.
	ReadyIn time.Duration
	// Logger gets the process's events; nil means none are logged.
	Logger *slog.Logger

	onPort    bool // listen on a port although there are sockets: for tests
	unguarded bool // leave RPC ports without a guard although there is one: for tests
}

// Validate says which field makes no sense.
func (s Spec) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrSpec}, args...)...)
	}
	switch {
	case s.Name == "" || len(s.Name) > 256 || printable(s.Name, 256) != s.Name || strings.ContainsRune(s.Name, ','):
		return bad("the model's name %q is empty, too long, or has a comma", printable(s.Name, 60))
	case s.Kind != "" && s.Kind != KindChat && s.Kind != KindEmbed && s.Kind != KindRerank:
		return bad("a model of kind %q", s.Kind)
	case !filepath.IsAbs(s.Model):
		return bad("the path of the model's file, %q, is not absolute", s.Model)
	case s.Projector != "" && !filepath.IsAbs(s.Projector):
		return bad("the path of the projector, %q, is not absolute", s.Projector)
	case !filepath.IsAbs(s.RunDir):
		return bad("the run folder, %q, is not absolute", s.RunDir)
	case s.CacheDir != "" && !filepath.IsAbs(s.CacheDir):
		return bad("the cache folder, %q, is not absolute", s.CacheDir)
	case s.Context < 1 || s.Slots < 0 || s.Slots > 1024 || s.Context > math.MaxInt32/max(1, s.Slots):
		return bad("%d slots of %d tokens", s.Slots, s.Context)
	case s.GPULayers > maxLayers || s.CPUExperts < 0 || s.CPUExperts > maxLayers:
		return bad("%d layers on GPUs, the experts of %d in host memory", s.GPULayers, s.CPUExperts)
	case s.Threads < 0 || s.Threads > 4096:
		return bad("%d threads", s.Threads)
	}
	if _, err := ParseSandboxMode(string(s.Sandbox)); err != nil {
		return err
	}
	for _, f := range s.Files {
		if !filepath.IsAbs(f) {
			return bad("the path of a further file, %q, is not absolute", f)
		}
	}
	for i, d := range s.Devices {
		if !deviceID.MatchString(d) || d == "none" || slices.Contains(s.Devices[:i], d) {
			return bad("device %q", printable(d, 60))
		}
	}
	if err := s.checkSplit(); err != nil {
		return err
	}
	if err := s.checkRemotes(); err != nil {
		return err
	}
	if err := CheckEnv(s.Env); err != nil {
		return err
	}
	return CheckArgs(s.Args)
}

// maxLayers is more layers than any model has: llama.cpp takes 512.
const maxLayers = 4096

// checkSplit says what is wrong with Split.
func (s Spec) checkSplit() error {
	if len(s.Split) == 0 {
		return nil
	}
	sum := 0
	for _, n := range s.Split {
		if n < 0 || n > maxLayers {
			return fmt.Errorf("%w: %d layers on one device", ErrSpec, n)
		}
		sum += n
	}
	if len(s.Split) != len(s.Devices) || sum != s.GPULayers-s.remoteLayers() || sum == 0 {
		return fmt.Errorf("%w: %d layers on %d devices, split as %v", ErrSpec, s.GPULayers, len(s.Devices), s.Split)
	}
	return nil
}

// files are all files that the engine is to read.
func (s Spec) files() []string {
	files := append([]string{s.Model}, s.Files...)
	if s.Projector != "" {
		files = append(files, s.Projector)
	}
	return files
}

// defaultThreads is one for each physical core that this process may use, but
// for one core that is left to everybody else. llama.cpp's threads wait for one
// another in a loop after every operation: where another program takes one of
// their cores they all wait for it. On two busy cores, a model of 95 million
// parameters went from 190 tokens a second to 6 with two threads, and from 125
// to 51 with one.
func defaultThreads() int {
	n, err := cpu.Counts(false)
	if err != nil || n < 1 {
		n = runtime.NumCPU()
	}
	return max(1, min(n, runtime.GOMAXPROCS(0))-1) // the latter knows cgroup limits
}
