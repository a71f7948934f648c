package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/api"
	"relay/llama"
	"relay/scheduler"
	"relay/store"
)

// deviceReport is the answer of `relay devices`.
type deviceReport struct {
	Devices []deviceRow `json:"devices"`
	// Cores are those that relay may use here, CoresLent those that models may keep
	// busy.
	Cores     int `json:"cores"`
	CoresLent int `json:"cores_lent"`
	// Lent is what a peer here offers, or would offer, of the host's memory right now,
	// in bytes; Kept says why that is less than what is there.
	Lent uint64 `json:"lent"`
	Kept string `json:"kept"`
	// Engine is the build that would be used; NoEngine why there is none, and
	// Passed why each build before it was not taken.
	Engine   *engineReport       `json:"engine"`
	NoEngine string              `json:"no_engine,omitempty"`
	Passed   []string            `json:"passed"`
	Sandbox  llama.SandboxStatus `json:"sandbox"`
	// Guard says who else could reach the ports between engines of several machines.
	Guard llama.Guard `json:"guard"`
	// Running: a peer runs here now. Told: the devices are as it says, and what its own
	// engines hold is not counted as in use.
	Running bool `json:"running"`
	Told    bool `json:"told"`
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
	// Usable is what a peer here lends, or would lend, of it now, and Less says why that
	// is less than all, a sentence each.
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
	}
	r.Cores, r.Sandbox = runtime.GOMAXPROCS(0), llama.ProbeSandbox()
	r.Guard = llama.ProbeGuard(cmd.Context(), nil)
	r.CoresLent = min(m.threads(), r.Cores)
	found, err := llama.Find(cmd.Context(), llama.FindOptions{Bin: m.engineBin, StateDir: m.stateDir, PathEnv: os.Getenv("PATH")})
	if err == nil {
		r.Engine = &engineReport{scheduler.Build{Version: found.Version, Commit: found.Commit, RPC: found.RPC}, found.Server, string(found.Source)}
		r.Passed = append(r.Passed, found.Passed...)
	} else {
		r.NoEngine = sentence(err)
	}
	if running {
		self, lend, err := peerHere(cmd.Context())
		if err == nil {
			r.tell(self, lend)
			return r, nil
		}
		r.Warnings = append(r.Warnings, "a peer runs here that does not tell of its devices: what its own engines hold counts as in use, of GPUs as other programs', and flags that it remembers are not known ("+sentence(err)+")")
	}
	return r, r.measure(cmd.Context(), m, found)
}

// measure looks at the machine, on which relay's own engines are programs like any
// other.
func (r *deviceReport) measure(ctx context.Context, m *machine, found llama.Engine) error {
	memory, err := llama.ReadHostMemory()
	if err != nil {
		return fmt.Errorf("measure this machine's memory: %w", err)
	}
	var listing llama.Listing
	if r.NoEngine == "" {
		if listing, err = found.List(ctx, listing); err != nil {
			r.NoEngine = sentence(err)
		}
	}
	devices, troubles := listing.Look(ctx, llama.Own{})
	r.Warnings = append(r.Warnings, troubles...)
	r.take(lending{m.lends(), memory, r.NoEngine != ""}.rows(devices))
	return nil
}

// take takes the rows of all devices, host memory last.
func (r *deviceReport) take(rows []deviceRow) {
	r.Devices = rows
	host := rows[len(rows)-1]
	r.Lent, r.Kept = host.Usable, strings.Join(host.Less, "; ")
}

// peerPatience is how long the peer that runs here may take to tell of its devices.
const peerPatience = 5 * time.Second

// peerHere asks the peer that runs here what it has, and what it was told to lend, which
// one of an older release does not tell. The error says that it does not answer, or has
// not looked yet.
func peerHere(ctx context.Context) (scheduler.PeerState, *scheduler.Lend, error) {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	s, err := ask[api.Status](ctx, http.MethodGet, "/v0/status", nil)
	if err != nil {
		return scheduler.PeerState{}, nil, err
	}
	var lend *scheduler.Lend
	if l := s.Lend; l != nil {
		lend = &scheduler.Lend{None: l.None, Bytes: l.Most, Reserve: l.Reserve, VRAMReserve: l.VRAMReserve}
	}
	for _, p := range s.Peers {
		if p.Self && slices.ContainsFunc(p.Devices, func(d scheduler.Device) bool { return d.ID == llama.HostID }) {
			return p, lend, nil
		}
	}
	return scheduler.PeerState{}, nil, errors.New("it has not looked at them yet")
}

// tell takes what the peer that runs here says of its devices, and what it was told to
// lend where that is known.
func (r *deviceReport) tell(p scheduler.PeerState, lend *scheduler.Lend) {
	r.Told = true
	if p.NoEngine != "" {
		r.NoEngine = p.NoEngine
	}
	if p.CoresLent > 0 {
		r.CoresLent = p.CoresLent
	}
	var rows []deviceRow
	for _, d := range p.Devices {
		row := toldRow(d, p.Paused)
		if lend != nil && d.Unusable == "" {
			row.Less = append(row.Less, ownersLess(*lend, d.Kind == string(llama.DeviceRAM) || d.Unified, r.NoEngine != "", d.Lent >= lend.Bytes)...)
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b deviceRow) int { return cmp.Compare(isHost(a), isHost(b)) })
	r.take(rows)
}

// isHost is 1 for host memory, which comes last.
func isHost(d deviceRow) int {
	if d.ID == llama.HostID {
		return 1
	}
	return 0
}

// toldRow is a device as the peer that lends it tells of it.
func toldRow(d scheduler.Device, paused string) deviceRow {
	r := deviceRow{ID: d.ID, Kind: d.Kind, Name: d.Name, UUID: d.UUID, Total: d.Total, Free: d.Free, Known: d.Known, Usable: d.Lent,
		Unified: d.Unified, Foreign: d.Foreign, ForeignKnown: d.ForeignKnown, Unusable: d.Unusable, Less: []string{}}
	if d.Unusable != "" {
		r.Usable = 0
		return r
	}
	if r.Busy = d.Busy != ""; r.Busy || !d.Known {
		r.Usable = 0
	}
	less := func(format string, args ...any) { r.Less = append(r.Less, fmt.Sprintf(format, args...)) }
	if d.Unified {
		less("it uses this machine's own memory, which is lent once")
	}
	if !d.Known {
		less("its memory is not known")
	}
	if r.Busy {
		less("%s: the GPU is left to it", d.Busy)
	}
	if taken := d.Lent - min(d.Lent, d.Room); taken > 0 {
		less("%s of what is lent are taken by models", size(taken))
	}
	if paused != "" {
		less("%s", paused)
	}
	return r
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
	reserve := l.Reserve
	if !ofHost {
		reserve = l.VRAMReserve
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
	if l.noEngine {
		usable = 0
	}
	r.Less = append(r.Less, ownersLess(l.Lend, ofHost, l.noEngine, d.Free-min(d.Free, reserve) > l.Bytes)...)
	if d.Known && !r.Busy {
		r.Usable = usable
	}
	return r
}

// ownersLess says what of a device its owner does not lend, and by which setting. full:
// as much as its owner lends at most is there to be lent.
func ownersLess(l scheduler.Lend, ofHost, noEngine, full bool) (less []string) {
	reserve, setting := l.Reserve, "--reserve-mb"
	if !ofHost {
		reserve, setting = l.VRAMReserve, "RELAY_VRAM_RESERVE_MB"
	}
	if reserve > 0 {
		less = append(less, fmt.Sprintf("%s are kept for this machine (%s)", size(reserve), setting))
	}
	switch {
	case l.None:
		less = append(less, "its owner lends nothing (--lend none)")
	case noEngine:
		less = append(less, "without an engine nothing is lent")
	case l.Bytes > 0 && full:
		less = append(less, fmt.Sprintf("its owner lends %s of it at most (--lend-mb)", size(l.Bytes)))
	}
	return less
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
	say("cores", fmt.Sprintf("%d, %d of them lent", r.Cores, r.CoresLent))
	if r.Told {
		say("peer", "it runs here, and this is what it told the mesh of its devices")
	}
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
	if r.Guard.Text != "" {
		say("guard", r.Guard.Text)
	}
	for _, warning := range r.Warnings {
		say("warning", warning)
	}
}
