package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"

	"relay/llama"
	"relay/llama/gguf"
)

// LlamaEngine runs models on llama.cpp.
type LlamaEngine struct {
	// Found is the build.
	Found llama.Engine
	// RunDir holds a folder for each process, CacheDir what GPUs keep compiled.
	RunDir, CacheDir string
	Sandbox          llama.SandboxMode
	// Threads is how many CPU threads one process uses; 0 means one for each core.
	Threads int
	Log     *slog.Logger
}

// Build names the build.
func (e LlamaEngine) Build() Build {
	return Build{Version: e.Found.Version, Commit: e.Found.Commit, RPC: e.Found.RPC}
}

// Devices lists what the engine sees, host memory last.
func (e LlamaEngine) Devices(ctx context.Context) ([]Device, error) {
	found, err := e.Found.Devices(ctx)
	if err != nil {
		return nil, err
	}
	return DevicesOf(found), nil
}

// DevicesOf puts the engine's devices into the words of records.
func DevicesOf(found []llama.Device) []Device {
	list := make([]Device, 0, len(found))
	for _, d := range found {
		list = append(list, Device{ID: d.ID, Name: d.Name, Kind: string(d.Kind), Total: d.Total, Free: d.Free, Known: d.Known})
	}
	return list
}

// Start starts a process for a model, and waits for its first token.
func (e LlamaEngine) Start(ctx context.Context, l Launch) (Process, error) {
	if err := checkUID(l.UID); err != nil { // It becomes the name of a folder.
		return nil, err
	}
	p, err := e.Found.Start(ctx, llama.Spec{
		Name: l.Model.Name, Kind: llama.Kind(l.Model.Kind), Model: l.Path, Files: l.Files, Projector: l.Projector, Context: l.Model.Context, Slots: l.Model.Slots,
		Threads: e.Threads, Args: l.Model.Args, RunDir: filepath.Join(e.RunDir, l.UID), CacheDir: e.CacheDir,
		Sandbox: e.Sandbox, Logger: e.Log,
	})
	if err != nil {
		return nil, err
	}
	return llamaProcess{p}, nil
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
		Parts: h.Parts, Projector: h.Kind == gguf.KindProjector,
		Need: func(context, slots int) (uint64, error) {
			m, err := h.Memory(gguf.Serving{Context: context, Slots: slots})
			return m.Total, err
		},
	}, nil
}
