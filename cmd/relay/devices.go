package main

import (
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"relay/llama"
	"relay/scheduler"
)

// deviceReport is the answer of `relay devices`.
type deviceReport struct {
	Devices []scheduler.Device `json:"devices"`
	Cores   int                `json:"cores"`
	Threads int                `json:"threads"`
	// Lent is what a peer here would offer right now, in bytes; Kept says why
	// that is less than what is there.
	Lent uint64 `json:"lent"`
	Kept string `json:"kept"`
	// Engine is the build that would be used; NoEngine why there is none.
	Engine   *engineReport       `json:"engine"`
	NoEngine string              `json:"no_engine,omitempty"`
	Sandbox  llama.SandboxStatus `json:"sandbox"`
}

type engineReport struct {
	scheduler.Build
	Path string `json:"path"`
	From string `json:"from"`
}

func newDevices() *cobra.Command {
	cmd := &cobra.Command{
		Use: "devices", Short: "What this machine has to lend, and with which engine",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var s settings
		if err := s.fromEnvironment(); err != nil {
			return err
		}
		r, err := lookAtDevices(cmd, machine{settings: s})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), r)
		}
		printDevices(cmd.OutOrStdout(), r)
		return nil
	}
	return cmd
}

func lookAtDevices(cmd *cobra.Command, m machine) (deviceReport, error) {
	r := deviceReport{Cores: runtime.NumCPU(), Threads: m.threads(), Sandbox: llama.ProbeSandbox()}
	_, available, err := llama.HostMemory()
	if err != nil {
		return r, fmt.Errorf("measure this machine's memory: %w", err)
	}
	lend := m.lends()
	r.Kept = fmt.Sprintf("%s are free now, %s are kept for this machine", size(available), size(lend.Reserve))
	r.Devices = []scheduler.Device{scheduler.DevicesOf([]llama.Device{llama.HostDevice()})[0]}
	found, err := llama.Find(cmd.Context(), llama.FindOptions{Bin: m.engineBin, StateDir: m.stateDir, PathEnv: os.Getenv("PATH")})
	if err != nil {
		r.NoEngine = sentence(err)
		return r, nil
	}
	r.Engine = &engineReport{scheduler.Build{Version: found.Version, Commit: found.Commit, RPC: found.RPC}, found.Server, string(found.Source)}
	devices, err := found.Devices(cmd.Context(), llama.Own{})
	if err != nil {
		r.NoEngine = sentence(err)
		return r, nil
	}
	r.Devices = scheduler.DevicesOf(devices)
	r.Devices = lend.Of(r.Devices)
	for _, d := range r.Devices {
		r.Lent += d.Lent
	}
	return r, nil
}

func printDevices(w io.Writer, r deviceReport) {
	var rows [][]string
	for _, d := range r.Devices {
		total, free := "unknown", "unknown"
		if d.Known {
			total, free = size(d.Total), size(d.Free)
		}
		rows = append(rows, []string{d.ID, d.Kind, d.Name, total, free})
	}
	printTable(w, []string{"DEVICE", "KIND", "NAME", "TOTAL", "FREE"}, rows)
	fmt.Fprintf(w, "\nlends    %s (%s)\n", size(r.Lent), r.Kept)
	fmt.Fprintf(w, "cores    %d, an engine uses %d\n", r.Cores, r.Threads)
	if r.Engine != nil {
		fmt.Fprintf(w, "engine   llama.cpp %s (%s), RPC %s, from the %s: %s\n", r.Engine.Version, r.Engine.Commit, r.Engine.RPC, r.Engine.From, r.Engine.Path)
	}
	if r.NoEngine != "" {
		fmt.Fprintf(w, "engine   none: %s\n", r.NoEngine)
	}
	fmt.Fprintf(w, "sandbox  %s\n", r.Sandbox.Text)
}
