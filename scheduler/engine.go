package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"relay/llama"
	"relay/llama/gguf"
	"relay/scheduler/ways"
)

// LlamaEngine runs models on llama.cpp.
type LlamaEngine struct {
	// Found is the build.
	Found llama.Engine
	// RunDir holds a folder for each process, CacheDir what GPUs keep compiled, and
	// ShareCacheDir the same for rpc-servers: their coordinators can write there.
	RunDir, CacheDir, ShareCacheDir string
	Sandbox                         llama.SandboxMode
	Log                             *slog.Logger

	listing llama.Listing // As it was last asked for.
}

// Build names the build.
func (e *LlamaEngine) Build() Build {
	return Build{Version: e.Found.Version, Commit: e.Found.Commit, RPC: e.Found.RPC}
}

// Devices looks at what the engine sees, host memory last.
func (e *LlamaEngine) Devices(ctx context.Context, own Own, list bool) ([]Device, error) {
	if list {
		var err error
		if e.listing, err = e.Found.List(ctx, e.listing); err != nil {
			return nil, err
		}
	}
	found, troubles := e.listing.Look(ctx, llama.Own(own))
	for _, trouble := range troubles {
		e.Log.Warn("a GPU's own tool does not work", "trouble", trouble)
	}
	return DevicesOf(found), nil
}

// DevicesOf puts the engine's devices into the words of records.
func DevicesOf(found []llama.Device) []Device {
	list := make([]Device, 0, len(found))
	for _, d := range found {
		list = append(list, Device{
			ID: d.ID, Name: d.Name, Kind: string(d.Kind), Total: d.Total, Free: d.Free, Known: d.Known,
			Unified: d.Unified, Unusable: d.Unusable, Foreign: d.Foreign, ForeignKnown: d.ForeignKnown, UUID: d.UUID,
		})
	}
	return list
}

// Start starts a process for a model, and waits for its first token.
func (e *LlamaEngine) Start(ctx context.Context, l Launch) (Process, error) {
	if err := checkUID(l.UID); err != nil { // It becomes the name of a folder.
		return nil, err
	}
	spec := llama.Spec{
		Name: l.Model.Name, Kind: llama.Kind(l.Model.Kind), Model: l.Path, Files: l.Files, Projector: l.Projector, Context: l.Model.Context, Slots: l.Model.Slots,
		CPUExperts: l.Way.CPUExperts, Threads: l.Threads, Args: l.Model.Args, Env: l.Model.Env,
		Started: l.Started,
		RunDir:  filepath.Join(e.RunDir, l.instance()), CacheDir: e.CacheDir, Sandbox: e.Sandbox, Logger: e.Log,
	}
	for _, p := range l.Way.Parts {
		if p.Device != ways.HostID && p.Layers > 0 {
			spec.Devices, spec.Split = append(spec.Devices, p.Device), append(spec.Split, p.Layers)
			spec.GPULayers += p.Layers
		}
	}
	if g := l.Way.Group; g != nil {
		for _, share := range g.Shares {
			var remote llama.Remote
			for _, p := range share.Parts {
				if p.Layers > 0 {
					remote.Layers = append(remote.Layers, p.Layers)
					spec.GPULayers += p.Layers
				}
			}
			spec.Remotes = append(spec.Remotes, remote)
		}
		if len(spec.Devices) == 0 {
			spec.GPULayers++ // The output layer, which is counted there and lies in host memory.
		}
		spec.Connected = l.Connected
	}
	p, err := e.Found.Start(ctx, spec)
	if err != nil { // Whoever shows it names the model.
		return nil, &Error{Why: ReasonOf(err), Message: strings.TrimPrefix(err.Error(), fmt.Sprintf("model %q: ", spec.Name)), Err: err}
	}
	return llamaProcess{p}, nil
}

// StartShare starts an rpc-server, and waits until it speaks its protocol.
func (e *LlamaEngine) StartShare(ctx context.Context, l ShareLaunch) (ShareProcess, error) {
	if err := checkUID(l.UID); err != nil { // It becomes the name of a folder.
		return nil, err
	}
	spec := llama.RPCSpec{
		Name: l.UID, Threads: l.Threads, Tensors: l.Tensors, Env: l.Env, Started: l.Started,
		RunDir: filepath.Join(e.RunDir, l.UID+"-share"), CacheDir: e.ShareCacheDir, Sandbox: e.Sandbox, Logger: e.Log,
	}
	for _, p := range l.Parts {
		if p.Layers > 0 {
			spec.Devices = append(spec.Devices, p.Device)
		}
	}
	p, err := e.Found.StartRPC(ctx, spec)
	if err != nil {
		return nil, &Error{Why: ReasonOf(err), Message: strings.TrimPrefix(err.Error(), fmt.Sprintf("model %q: ", spec.Name)), Err: err}
	}
	return shareProcess{p}, nil
}

type shareProcess struct{ *llama.RPCServer }

func (p shareProcess) Worked() (time.Duration, error) { return workedBy(p.PID()) }

// workedBy is how much of the processors a process has taken.
func workedBy(pid int) (time.Duration, error) {
	process, err := process.NewProcess(int32(pid))
	if err != nil {
		return 0, err
	}
	times, err := process.Times()
	if err != nil {
		return 0, err
	}
	return time.Duration((times.User + times.System) * float64(time.Second)), nil
}

func (p shareProcess) Usage() (Usage, error) {
	u, err := p.RPCServer.Usage()
	return Usage(u), err
}

type llamaProcess struct{ *llama.Process }

// Device says where the model computes, by the engine's own report.
func (p llamaProcess) Device() string {
	r := p.Report()
	if r.GPU() {
		return fmt.Sprintf("GPU (%d of %d layers)", r.Offloaded, r.Layers)
	}
	return "CPU"
}

// Alive asks for its health: whatever it says, it answers.
func (p llamaProcess) Alive(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/health", nil)
	if err != nil {
		return err
	}
	answer, err := p.Client().RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func (p llamaProcess) Worked() (time.Duration, error) { return workedBy(p.PID()) }

// Used is what the engine says it has reserved.
func (p llamaProcess) Used() map[string]uint64 { return p.Report().Used() }

func (p llamaProcess) Usage() (Usage, error) {
	u, err := p.Process.Usage()
	return Usage(u), err
}

func (p llamaProcess) Timings(ctx context.Context) (Timings, error) {
	t, err := p.Process.Timings(ctx)
	return Timings{Prompt: t.PromptTokens, Tokens: t.Tokens, PromptTime: t.PromptTime, TokenTime: t.TokenTime}, err
}

// ReadGGUF is Options.ReadHeader for files of llama.cpp.
func ReadGGUF(path string) (Header, error) {
	h, err := gguf.Read(path)
	if err != nil {
		return Header{}, err
	}
	if h.ContextTrain > math.MaxInt32 || h.Layers > math.MaxInt32 {
		return Header{}, errors.New("the header of this file claims what no model has")
	}
	return Header{
		Name: h.Name, Arch: h.Arch, Kind: string(h.Kind), Parameters: h.Params, Layers: int(h.Layers), TrainContext: int(h.ContextTrain),
		Parts: h.Parts, Projector: h.Kind == gguf.KindProjector, Can: Can{Tools: h.Tools, Images: h.Images, Audio: h.Audio}, Pools: h.Pools,
		Shape: func(m Model) (ways.Shape, error) {
			shape, err := h.Shape(gguf.Serving{Kind: gguf.Kind(m.Kind), Context: m.Context, Slots: m.Slots, Args: m.Args})
			return shapeOf(shape), err
		},
		Tensors: func() (list []Tensor, err error) {
			tensors, err := h.Tensors()
			for _, t := range tensors {
				list = append(list, Tensor{Layer: t.Layer, Part: t.Part, Offset: t.Offset, Bytes: t.Bytes})
			}
			return list, err
		},
	}, nil
}

// shapeOf puts the engine's words for memory into those of plans.
func shapeOf(s gguf.Shape) ways.Shape {
	shape := ways.Shape{Input: s.Input, Output: s.Output, Tied: s.Tied, Experts: s.Experts, Used: s.Used, Compute: s.Compute, Host: s.Host, Largest: s.Largest}
	for _, l := range s.Layers {
		shape.Layers = append(shape.Layers, ways.Layers(l))
	}
	return shape
}
