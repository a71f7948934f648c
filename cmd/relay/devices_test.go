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
	r := deviceReport{Cores: 16, Threads: 8, Passed: []string{"/opt/llama/llama-server cannot be run"}, Running: true,
		Engine:   &engineReport{scheduler.Build{Version: "b7000", Commit: "80fb11a", RPC: "3.6.0"}, "/usr/bin/llama-server", "PATH"},
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
	host := r.Devices[len(r.Devices)-1]
	r.Lent, r.Kept = host.Usable, strings.Join(host.Less, "; ")
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
