package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"relay/llama"
	"relay/scheduler"
	"relay/store"
)

// deviceReport is the answer of `relay devices`.
type deviceReport struct {
	Devices []deviceRow `json:"devices"`
	Cores   int         `json:"cores"`
	Threads int         `json:"threads"`
	// Lent is what a peer here would offer of the host's memory right now, in
	// bytes; Kept says why that is less than what is there.
	Lent uint64 `json:"lent"`
	Kept string `json:"kept"`
	// Engine is the build that would be used; NoEngine why there is none, and
	// Passed why each build before it was not taken.
	Engine   *engineReport       `json:"engine"`
	NoEngine string              `json:"no_engine,omitempty"`
	Passed   []string            `json:"passed"`
	Sandbox  llama.SandboxStatus `json:"sandbox"`
	// Running: a peer runs here now.
	Running bool `json:"running"`
	// Warnings are about what could not be learnt.
	Warnings []string `json:"warnings"`
}

type engineReport struct {
	scheduler.Build
	Path string `json:"path"`
	From string `json:"from"`
}

// deviceRow is a device, with sizes in bytes.
type deviceRow struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	UUID  string `json:"uuid,omitempty"`
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
	// Known says that Total and Free could be learnt.
	Known bool `json:"known"`
	// Usable is what a peer here would lend of it now, and Less says why that is
	// less than all, a sentence each.
	Usable uint64   `json:"usable"`
	Less   []string `json:"less"`
	// Unified: Total and Free are of the host's memory, which is lent once only.
	Unified bool `json:"unified"`
	// Foreign is what other programs hold of it, where that is known; Busy: that
	// is more than is ignored.
	Foreign      uint64 `json:"foreign"`
	ForeignKnown bool   `json:"foreign_known"`
	Busy         bool   `json:"busy"`
	// Unusable is why nothing can be placed on it; "" where it can.
	Unusable string `json:"unusable,omitempty"`
}

func newDevices() *cobra.Command {
	cmd := &cobra.Command{
		Use: "devices", Short: "What this machine has to lend, and with which engine",
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := lookAtDevices(cmd)
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

func lookAtDevices(cmd *cobra.Command) (deviceReport, error) {
	m, running, err := settingsHere(cmd)
	r := deviceReport{Running: running, Passed: []string{}, Warnings: []string{}}
	switch {
	case m == nil:
		return r, err
	case err != nil:
		r.Warnings = append(r.Warnings, "what earlier starts were told is not known: "+sentence(err))
	case running:
		r.Warnings = append(r.Warnings, "a peer runs here: what its engines hold counts as in use, and what it lends by flags that it remembers is in `relay status`")
	}
	r.Cores, r.Threads, r.Sandbox = runtime.NumCPU(), m.threads(), llama.ProbeSandbox()
	memory, err := llama.ReadHostMemory()
	if err != nil {
		return r, fmt.Errorf("measure this machine's memory: %w", err)
	}
	var listing llama.Listing
	found, err := llama.Find(cmd.Context(), llama.FindOptions{Bin: m.engineBin, StateDir: m.stateDir, PathEnv: os.Getenv("PATH")})
	if err == nil {
		r.Engine = &engineReport{scheduler.Build{Version: found.Version, Commit: found.Commit, RPC: found.RPC}, found.Server, string(found.Source)}
		r.Passed = append(r.Passed, found.Passed...)
		listing, err = found.List(cmd.Context(), listing)
	}
	if err != nil {
		r.NoEngine = sentence(err)
	}
	devices, troubles := listing.Look(cmd.Context(), llama.Own{})
	r.Warnings = append(r.Warnings, troubles...)
	l := lending{m.lends(), memory, r.NoEngine != ""}
	r.Devices = l.rows(devices)
	host := r.Devices[len(r.Devices)-1]
	r.Lent, r.Kept = host.Usable, strings.Join(host.Less, "; ")
	return r, nil
}

// settingsHere are the settings that a peer here would go by: where none runs,
// also those that it would remember. Nothing is made on disk. An error beside
// them says why those could not be read.
func settingsHere(cmd *cobra.Command) (m *machine, running bool, err error) {
	var s settings
	if err := s.fromEnvironment(); err != nil {
		return nil, false, err
	}
	plain := &machine{settings: s}
	tree, err := store.TreeAt(s.stateDir)
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Stat(tree.IdentityKey()); err != nil { // No peer ever ran.
		return plain, false, nil
	}
	m, err = offline(cmd)
	switch {
	case errors.Is(err, store.ErrLocked):
		return plain, true, nil
	case err != nil:
		return plain, false, err
	}
	m.close()
	return m, false, nil
}

// lending is what a machine's owner lends, and of which memory.
type lending struct {
	scheduler.Lend
	memory   llama.RAM
	noEngine bool
}

// rows are the devices, host memory last.
func (l lending) rows(devices []llama.Device) (rows []deviceRow) {
	for i, d := range l.Of(scheduler.DevicesOf(devices)) {
		rows = append(rows, l.row(devices[i], d.Lent))
	}
	return rows
}

// row is the device with what can be used of it, and why that is not all. usable is
// what is lent of it while nothing runs.
func (l lending) row(d llama.Device, usable uint64) deviceRow {
	r := deviceRow{ID: d.ID, Kind: string(d.Kind), Name: d.Name, UUID: d.UUID, Total: d.Total, Free: d.Free, Known: d.Known,
		Unified: d.Unified, Foreign: d.Foreign, ForeignKnown: d.ForeignKnown, Unusable: d.Unusable, Less: []string{}}
	less := func(format string, args ...any) { r.Less = append(r.Less, fmt.Sprintf(format, args...)) }
	if d.Unusable != "" {
		return r
	}
	ofHost := d.Kind == llama.DeviceRAM || d.Unified
	reserve, setting := l.Reserve, "--reserve-mb"
	if !ofHost {
		reserve, setting = l.VRAMReserve, "RELAY_VRAM_RESERVE_MB"
	}
	if d.Unified {
		less("it uses this machine's own memory, which is lent once")
	}
	if d.Kind == llama.DeviceRAM && l.memory.Limit > 0 {
		less("of the %s that are installed this process may have %s", size(l.memory.Installed), size(l.memory.Limit))
	}
	if d.Kind == llama.DeviceRAM && l.memory.HugePages > 0 {
		less("%s are set aside as huge pages", size(l.memory.HugePages))
	}
	switch {
	case !d.Known:
		less("its memory is not known")
	case d.Kind == llama.DeviceRAM || !d.ForeignKnown:
		less("%s are free now", size(d.Free))
	}
	switch {
	case d.Kind == llama.DeviceRAM:
	case !d.ForeignKnown:
		less("what other programs hold of it is not known")
	case d.Foreign > l.BusyIgnore:
		r.Busy = true
		less("other programs hold %s, more than %s: it is left to them (RELAY_BUSY_IGNORE_MB)", size(d.Foreign), size(l.BusyIgnore))
	case d.Foreign > 0:
		less("other programs hold %s", size(d.Foreign))
	}
	if reserve > 0 {
		less("%s are kept for this machine (%s)", size(reserve), setting)
	}
	switch {
	case l.None:
		less("its owner lends nothing (--lend none)")
	case l.noEngine:
		usable = 0
		less("without an engine nothing is lent")
	case l.Bytes > 0 && d.Free-min(d.Free, reserve) > l.Bytes:
		less("its owner lends %s of it at most (--lend-mb)", size(l.Bytes))
	}
	if d.Known && !r.Busy {
		r.Usable = usable
	}
	return r
}

func printDevices(w io.Writer, r deviceReport) {
	var rows [][]string
	for _, d := range r.Devices {
		total, free, usable := "unknown", "unknown", "unknown"
		if d.Known {
			total, free = size(d.Total), size(d.Free)
		}
		if d.Known || d.Busy {
			usable = size(d.Usable)
		}
		if d.Unusable != "" {
			usable = "no"
		}
		rows = append(rows, []string{d.ID, d.Kind, d.Name, total, free, usable})
	}
	printTable(w, []string{"DEVICE", "KIND", "NAME", "TOTAL", "FREE", "USABLE"}, rows)
	fmt.Fprintln(w)
	// The labels stand under one another.
	width := len("sandbox")
	for _, d := range r.Devices {
		width = max(width, len(d.ID))
	}
	say := func(label, text string) { fmt.Fprintf(w, "%-*s  %s\n", width, label, text) }
	for _, d := range r.Devices {
		if d.Unusable != "" {
			say(d.ID, "cannot be used: "+d.Unusable)
		} else if len(d.Less) > 0 {
			say(d.ID, strings.Join(d.Less, "; "))
		}
	}
	say("cores", fmt.Sprintf("%d, an engine uses %d", r.Cores, r.Threads))
	if r.Engine != nil {
		say("engine", fmt.Sprintf("llama.cpp %s (%s), RPC %s, from the %s: %s", r.Engine.Version, r.Engine.Commit, r.Engine.RPC, r.Engine.From, r.Engine.Path))
	}
	if r.NoEngine != "" {
		say("engine", "none: "+r.NoEngine)
	}
	for _, p := range slices.Sorted(slices.Values(r.Passed)) {
		say("passed", p)
	}
	say("sandbox", r.Sandbox.Text)
	for _, warning := range r.Warnings {
		say("warning", warning)
	}
}
