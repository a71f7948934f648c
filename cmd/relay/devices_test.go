package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"relay/llama"
	"relay/scheduler"
)

const gib = 1 << 30

// everyDevice is a machine in which something of everything is there.
func everyDevice() deviceReport {
	l := lending{scheduler.Lend{Reserve: 2 * gib, VRAMReserve: 512 * mib, BusyIgnore: 256 * mib},
		llama.RAM{Installed: 64 * gib, HugePages: 8 * gib, Limit: 32 * gib, Total: 32 * gib, Available: 20 * gib}, false}
	r := deviceReport{Cores: 16, CoresLent: 8, Passed: []string{"/opt/llama/llama-server cannot be run"}, Running: true,
		Engine:   &engineReport{scheduler.Build{Version: "b7000", Commit: "80fb11a", RPC: "3.6.0"}, "/usr/bin/llama-server", "PATH"},
		Guard:    llama.Guard{OK: true, Text: "only relay reaches the ports between engines"},
		Sandbox:  llama.SandboxStatus{Text: "engines read only their own files"},
		Warnings: []string{"nvidia-smi: it did not answer"}}
	r.Devices = l.rows([]llama.Device{
		{ID: "CUDA0", Name: "NVIDIA GeForce RTX 4090", Kind: llama.DeviceGPU, UUID: "GPU-1", Total: 24 * gib, Free: 18 * gib, Known: true, Foreign: 5 * gib, ForeignKnown: true},
		{ID: "CUDA1", Name: "NVIDIA GeForce RTX 3060", Kind: llama.DeviceGPU, UUID: "GPU-2", Total: 12 * gib, Free: 11 * gib, Known: true, Foreign: 11 * mib, ForeignKnown: true},
		{ID: "Vulkan0", Name: "Intel(R) UHD Graphics 770", Kind: llama.DeviceGPU, Total: 32 * gib, Free: 20 * gib, Known: true, Unified: true},
		{ID: "Vulkan1", Name: "a card", Kind: llama.DeviceGPU},
		{ID: "Vulkan2", Name: "NVIDIA GeForce RTX 4090", Kind: llama.DeviceGPU, Total: 24 * gib, Free: 18 * gib, Known: true, Unusable: "it is the same GPU as CUDA0"},
		{ID: "amd0", Name: "AMD Radeon RX 7600", Kind: llama.DeviceGPU, Unusable: "this build of llama.cpp has no ROCm"},
		{ID: "RAM", Name: "host memory", Kind: llama.DeviceRAM, Total: 32 * gib, Free: 20 * gib, Known: true},
	})
	r.take(r.Devices)
	return r
}

func TestDevicesTable(t *testing.T) {
	var table, asJSON bytes.Buffer
	printDevices(&table, everyDevice())
	golden(t, "devices.golden", table.String())
	if err := printJSON(&asJSON, everyDevice()); err != nil {
		t.Fatal(err)
	}
	golden(t, "devices_json.golden", asJSON.String())
}

// What a peer that runs here tells counts: its own engines are no other programs.
func TestDevicesAsThePeerTells(t *testing.T) {
	r := deviceReport{Cores: 16, CoresLent: 8, Passed: []string{}, Running: true, Sandbox: llama.SandboxStatus{Text: "engines read only their own files"}, Warnings: []string{},
		Engine: &engineReport{scheduler.Build{Version: "b7000", Commit: "80fb11a", RPC: "3.6.0"}, "/usr/bin/llama-server", "PATH"}}
	r.tell(scheduler.PeerState{CoresLent: 4, Devices: []scheduler.Device{
		{ID: "RAM", Name: "host memory", Kind: "ram", Total: 32 * gib, Free: 20 * gib, Known: true, Lent: 18 * gib, Room: 18 * gib},
		{ID: "CUDA0", Name: "NVIDIA GeForce RTX 4090", Kind: "gpu", Total: 24 * gib, Free: 2 * gib, Known: true, Lent: 22 * gib, Room: gib},
		{ID: "CUDA1", Name: "NVIDIA GeForce RTX 3060", Kind: "gpu", Total: 12 * gib, Free: 4 * gib, Known: true, Lent: 3 * gib, Room: 3 * gib, Busy: "another program uses CUDA1 (8.0 GiB of its memory)"},
		{ID: "Vulkan0", Name: "Intel(R) UHD Graphics 770", Kind: "gpu", Total: 32 * gib, Free: 20 * gib, Known: true, Lent: 15 * gib, Room: 15 * gib, Unified: true},
		{ID: "Vulkan1", Name: "a card", Kind: "gpu"},
		{ID: "amd0", Name: "AMD Radeon RX 7600", Kind: "gpu", Unusable: "this build of llama.cpp has no ROCm", Busy: "this build of llama.cpp has no ROCm"},
	}}, &scheduler.Lend{Bytes: 22 * gib, Reserve: 2 * gib, VRAMReserve: 512 * mib})
	var table bytes.Buffer
	printDevices(&table, r)
	golden(t, "devices_told.golden", table.String())
	if host := r.Devices[len(r.Devices)-1]; host.ID != "RAM" || r.Lent != 18*gib || r.Devices[4].Busy || !r.Devices[1].Busy || r.Devices[0].Usable != 22*gib {
		t.Errorf("%+v", r)
	}
	r.tell(scheduler.PeerState{NoEngine: "no build", Paused: "its owner pauses it", Devices: []scheduler.Device{{ID: "RAM", Kind: "ram", Total: gib, Free: gib, Known: true}}}, nil)
	if r.NoEngine != "no build" || r.Lent != 0 || !strings.Contains(r.Kept, "its owner pauses it") {
		t.Errorf("%+v", r)
	}
}

// What the owner said stands beside what a running peer tells, as without one.
func TestOwnersLess(t *testing.T) {
	ram := scheduler.Device{ID: "RAM", Kind: "ram", Total: 32 * gib, Free: 20 * gib, Known: true}
	for _, c := range []struct {
		lend     *scheduler.Lend
		lent     uint64
		noEngine string
		want     string
	}{
		{&scheduler.Lend{None: true, Reserve: gib}, 0, "", "1.0 GiB are kept for this machine (--reserve-mb); its owner lends nothing (--lend none)"},
		{&scheduler.Lend{Bytes: 4 * gib}, 4 * gib, "", "its owner lends 4.0 GiB of it at most (--lend-mb)"},
		{&scheduler.Lend{Bytes: 4 * gib}, 3 * gib, "", ""},
		{&scheduler.Lend{}, 0, "no build", "without an engine nothing is lent"},
		{nil, 0, "no build", ""},
	} {
		var r deviceReport
		ram.Lent, ram.Room = c.lent, c.lent
		r.tell(scheduler.PeerState{NoEngine: c.noEngine, Devices: []scheduler.Device{ram}}, c.lend)
		if r.Kept != c.want {
			t.Errorf("%+v: %q", c.lend, r.Kept)
		}
	}
}

func TestWhatCanBeUsedOfADevice(t *testing.T) {
	card := llama.Device{ID: "CUDA0", Kind: llama.DeviceGPU, Total: 24 * gib, Free: 20 * gib, Known: true, ForeignKnown: true}
	with := func(change func(*llama.Device)) llama.Device {
		d := card
		change(&d)
		return d
	}
	plain := lending{Lend: scheduler.Lend{Reserve: 2 * gib, VRAMReserve: gib, BusyIgnore: 256 * mib}}
	limited, none, noEngine := plain, plain, plain
	limited.Bytes, none.None, noEngine.noEngine = 4*gib, true, true
	for name, c := range map[string]struct {
		l    lending
		d    llama.Device
		want uint64
		busy bool
		says string
	}{
		"a card":                  {plain, card, 19 * gib, false, "1.0 GiB are kept"},
		"used a little":           {plain, with(func(d *llama.Device) { d.Foreign = 256 * mib }), 19 * gib, false, "other programs hold 256 MiB"},
		"used by others":          {plain, with(func(d *llama.Device) { d.Foreign = 257 * mib }), 0, true, "more than 256 MiB: it is left to them (RELAY_BUSY_IGNORE_MB)"},
		"used by nobody knows":    {plain, with(func(d *llama.Device) { d.ForeignKnown = false }), 19 * gib, false, "what other programs hold of it is not known"},
		"unknown memory":          {plain, with(func(d *llama.Device) { d.Known, d.Total, d.Free = false, 0, 0 }), 0, false, "its memory is not known"},
		"less free than reserved": {plain, with(func(d *llama.Device) { d.Free = 7 }), 0, false, "1.0 GiB are kept"},
		"of the host":             {plain, with(func(d *llama.Device) { d.Unified = true }), 21 * gib, false, "which is lent once"},
		"a limit":                 {limited, card, 4 * gib, false, "4.0 GiB of it at most (--lend-mb)"},
		"nothing":                 {none, card, 0, false, "--lend none"},
		"no engine":               {noEngine, card, 0, false, "without an engine"},
		"not usable":              {plain, with(func(d *llama.Device) { d.Unusable = "no" }), 0, false, ""},
	} {
		host := llama.Device{ID: "RAM", Kind: llama.DeviceRAM, Total: 32 * gib, Free: 26 * gib, Known: true}
		r := c.l.rows([]llama.Device{c.d, host})[0]
		if r.Usable != c.want || r.Busy != c.busy || c.says != "" && !slices.ContainsFunc(r.Less, func(s string) bool { return strings.Contains(s, c.says) }) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
