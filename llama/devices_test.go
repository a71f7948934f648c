package llama

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"relay/llama/gpu"
)

func TestParseDevices(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name, out string
		want      []gpu.Listed
	}{
		{"none", "Available devices:\n  (none)\n", nil},
		{"nothing", "", nil},
		{"CUDA", "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA H200 (1 MiB, 1 MiB free)\nAvailable devices:\n" +
			"  CUDA0: NVIDIA H200 (143771 MiB, 143130 MiB free)\r\n",
			[]gpu.Listed{{ID: "CUDA0", Name: "NVIDIA H200", Total: 143771 * mib, Free: 143130 * mib, Known: true}}},
		{"two, one unknown", "Available devices:\n  Vulkan0: AMD Radeon (RADV GFX1100) (0 MiB, 0 MiB free)\n  MTL0: Apple M2 (Pro) (16384 MiB, 16000 MiB free)\n",
			[]gpu.Listed{{ID: "Vulkan0", Name: "AMD Radeon (RADV GFX1100)"}, {ID: "MTL0", Name: "Apple M2 (Pro)", Total: 16384 * mib, Free: 16000 * mib, Known: true}}},
		{"more free than there is", "Available devices:\n  X: x (10 MiB, 20 MiB free)\n",
			[]gpu.Listed{{ID: "X", Name: "x", Total: 10 * mib, Free: 10 * mib, Known: true}}},
		{"absurd", "Available devices:\n  X: x (99999999999999999999 MiB, 1 MiB free)\n", []gpu.Listed{{ID: "X", Name: "x"}}},
		{"steering", "Available devices:\n  X: a\x1b[2Jb (1 MiB, 1 MiB free)\n", []gpu.Listed{{ID: "X", Name: "a [2Jb", Total: mib, Free: mib, Known: true}}},
	} {
		if got := parseDevices(c.out); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func FuzzParseDevices(f *testing.F) {
	f.Add("Available devices:\n  CUDA0: NVIDIA H200 (143771 MiB, 143130 MiB free)\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, d := range parseDevices(out) {
			if !d.Known && (d.Total|d.Free) != 0 || d.Free > d.Total || d.ID == "" || strings.ContainsAny(d.Name, "\n\x1b") {
				t.Errorf("%+v", d)
			}
		}
	})
}

func TestTegra(t *testing.T) {
	for tree, want := range map[string]bool{"nvidia,p3737-0000+p3701-0000\x00nvidia,tegra234\x00": true, "raspberrypi,5-model-b\x00brcm,bcm2712\x00": false, "": false} {
		if got := tegra(fstest.MapFS{"proc/device-tree/compatible": {Data: []byte(tree)}}); got != want {
			t.Errorf("%q: %v", tree, got)
		}
	}
	if tegra(fstest.MapFS{}) {
		t.Error("a machine without a device tree")
	}
}

func TestHostMemory(t *testing.T) {
	total, available, err := HostMemory()
	if err != nil {
		t.Fatal(err)
	}
	if total < 1<<26 || available > total || available == 0 {
		t.Errorf("%d of %d on %s", available, total, runtime.GOOS)
	}
}
