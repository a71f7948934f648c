package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

const gib = 1 << 30

// look is Look beside tools that answer so.
func look(t *testing.T, p Probe, answers map[string]string) []GPU {
	t.Helper()
	if p.Env == nil {
		p.Env = env()
	}
	p.Ask = tools(answers)
	gpus, troubles := p.Look(t.Context())
	if troubles != nil {
		t.Errorf("troubles: %q", troubles)
	}
	return gpus
}

// two are the engine's words for the cards of nvidia_two.csv.
var two = []Listed{
	{ID: "CUDA0", Name: "NVIDIA GeForce RTX 4090", Total: 24080 * mib, Free: 18000 * mib, Known: true},
	{ID: "CUDA1", Name: "NVIDIA GeForce RTX 3060", Total: 11910 * mib, Free: 11700 * mib, Known: true},
}

const (
	uuid4090 = "GPU-1f2e3d4c-0000-4000-8000-00000000aaaa"
	uuid3060 = "GPU-9a8b7c6d-0000-4000-8000-00000000bbbb"
)

func expect(t *testing.T, got []GPU, want ...GPU) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

func TestLookNvidia(t *testing.T) {
	answers := func(cards string) map[string]string {
		return map[string]string{"nvidia-smi --query-gpu": recorded(t, cards), "nvidia-smi --query-compute-apps": recorded(t, "nvidia_processes.csv")}
	}
	big := GPU{ID: "CUDA0", UUID: uuid4090, Name: two[0].Name, Total: two[0].Total, Free: 19140 * mib, Known: true, Foreign: 5120 * mib, ForeignKnown: true}
	small := GPU{ID: "CUDA1", UUID: uuid3060, Name: two[1].Name, Total: two[1].Total, Free: two[1].Total, Known: true, Foreign: 11 * mib, ForeignKnown: true}

	// The tool counts what is free, as the engine counts itself while it looks;
	// the total is what the engine can have.
	expect(t, look(t, Probe{Listed: two}, answers("nvidia_two.csv")), big, small)

	// What relay's own engines hold is not foreign: by process where that is
	// seen, else by what is known.
	own := big
	own.Foreign = 1020 * mib
	expect(t, look(t, Probe{Listed: two, Own: Own{PIDs: []int{4242}, Bytes: map[string]uint64{"CUDA0": 1, "CUDA1": gib}}}, answers("nvidia_two.csv")), own, small)
	// Where no process is seen, each engine may hold what its driver keeps besides.
	own.Foreign = (5020 - 640) * mib
	none := small
	none.Foreign = 0
	expect(t, look(t, Probe{Listed: two, Own: Own{PIDs: []int{7}, Bytes: map[string]uint64{"CUDA0": 100 * mib, "CUDA1": gib}}}, answers("nvidia_two.csv")), own, none)
	expect(t, look(t, Probe{Listed: two, Own: Own{PIDs: []int{978}, Bytes: map[string]uint64{"CUDA0": 100 * mib}}}, answers("nvidia_two.csv")), own, small)
	own.Foreign = (5020 - 3*640) * mib
	engines := map[string]int{"CUDA0": 3}
	expect(t, look(t, Probe{Listed: two, Own: Own{PIDs: []int{978}, Bytes: map[string]uint64{"CUDA0": 100 * mib}, Engines: engines}}, answers("nvidia_two.csv")), own, small)
	own.Foreign = (5120 - 3*640) * mib // They have reserved nothing yet.
	expect(t, look(t, Probe{Listed: two, Own: Own{PIDs: []int{978}, Engines: engines}}, answers("nvidia_two.csv")), own, small)
	own.Foreign = 1020 * mib // It is seen: there is nothing to allow.
	expect(t, look(t, Probe{Listed: two, Own: Own{PIDs: []int{4242}, Engines: engines}}, answers("nvidia_two.csv")), own, small)

	// Hidden ones move the count of the others.
	first := small
	first.ID = "CUDA0"
	hidden := GPU{ID: "nvidia0", UUID: uuid4090, Name: two[0].Name, Total: 24576 * mib, Free: 19140 * mib, Known: true, Unusable: "CUDA_VISIBLE_DEVICES hides it"}
	only := []Listed{{ID: "CUDA0", Name: two[1].Name, Total: two[1].Total, Free: two[1].Free, Known: true}}
	expect(t, look(t, Probe{Listed: only, Env: env("CUDA_VISIBLE_DEVICES", "GPU-9a8b")}, answers("nvidia_two.csv")), first, hidden)

	// In another order names and memory tell them apart.
	turned := []Listed{only[0], {ID: "CUDA1", Name: two[0].Name, Total: two[0].Total, Free: two[0].Free, Known: true}}
	second := big
	second.ID = "CUDA1"
	expect(t, look(t, Probe{Listed: turned, Env: env("CUDA_DEVICE_ORDER", "FASTEST_FIRST")}, answers("nvidia_two.csv")), first, second)

	// No figures from the engine: the tool's.
	silent := []Listed{{ID: "CUDA0", Name: two[0].Name}, two[1]}
	full := big
	full.Total = 24576 * mib
	expect(t, look(t, Probe{Listed: silent}, answers("nvidia_two.csv")), full, small)

	// No tool: what the engine says, and foreign use is unknown.
	expect(t, look(t, Probe{Listed: two}, nil),
		GPU{ID: "CUDA0", Name: two[0].Name, Total: two[0].Total, Free: two[0].Free, Known: true},
		GPU{ID: "CUDA1", Name: two[1].Name, Total: two[1].Total, Free: two[1].Free, Known: true})
}

// Eight alike: the order is trusted only where all of it fits.
func TestLookManyAlike(t *testing.T) {
	answers := map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_many.csv")}
	var listed []Listed
	for i := range 8 {
		listed = append(listed, Listed{fmt.Sprint("CUDA", i), "NVIDIA H100 80GB HBM3", 81089 * mib, 80000 * mib, true})
	}
	for i, g := range look(t, Probe{Listed: listed}, answers) {
		if g.UUID != fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i) || !g.ForeignKnown || (g.Foreign > gib) != (i >= 4) {
			t.Errorf("%+v", g)
		}
	}
	// CUDA shows fewer, and nothing says which: unknown, and none is called unusable.
	got := look(t, Probe{Listed: listed[:5]}, answers)
	if len(got) != 5 {
		t.Errorf("%+v", got)
	}
	for _, g := range got {
		if g.UUID != "" || g.ForeignKnown || g.Free != 80000*mib {
			t.Errorf("%+v", g)
		}
	}
	// The same where the engine's order is another one.
	for _, g := range look(t, Probe{Listed: listed, Env: env("CUDA_DEVICE_ORDER", "FASTEST_FIRST")}, answers) {
		if g.UUID != "" || g.ForeignKnown || g.Unusable != "" {
			t.Errorf("%+v", g)
		}
	}
}

func TestLookUnified(t *testing.T) {
	gb10 := map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_gb10.csv")}
	const uuid = "GPU-2dee1e25-0000-4000-8000-0000000000aa"
	p := Probe{Listed: []Listed{{"CUDA0", "NVIDIA GB10", 122500 * mib, 100000 * mib, true}}, HostTotal: 120 * gib, HostFree: 90 * gib}
	want := GPU{ID: "CUDA0", UUID: uuid, Name: "NVIDIA GB10", Total: 122500 * mib, Free: 90 * gib, Known: true, Unified: true}
	expect(t, look(t, p, gb10), want)
	// Limited as a container's memory is.
	p.HostTotal, p.HostFree = 32*gib, 16*gib
	limited := want
	limited.Total, limited.Free = 32*gib, 16*gib
	expect(t, look(t, p, gb10), limited)
	// The engine has no figures either: the host's, never 0.
	p.Listed[0].Known, p.Listed[0].Total, p.Listed[0].Free = false, 0, 0
	expect(t, look(t, p, gb10), limited)
	// Processes are told of all the same.
	gb10["nvidia-smi --query-compute-apps"] = uuid + ", 5, 300\n" + uuid + ", 6, 700\n"
	p.Own.PIDs = []int{6}
	used := limited
	used.Foreign, used.ForeignKnown = 300*mib, true
	expect(t, look(t, p, gb10), used)

	for name, p := range map[string]Probe{
		"Jetson without a tool": {Listed: []Listed{{"CUDA0", "Orin", 30 * gib, 30 * gib, true}}, Integrated: true},
		"Apple":                 {Listed: []Listed{{"MTL0", "Apple M2", 21845 * mib, 21845 * mib, true}}},
		"in a processor": {Listed: []Listed{{"Vulkan0", "AMD Radeon 780M (RADV PHOENIX)", 20 * gib, 20 * gib, true}},
			Said: "ggml_vulkan: 0 = AMD Radeon 780M (RADV PHOENIX) (radv) | uma: 1 | fp16: 1 |\n"},
	} {
		p.HostTotal, p.HostFree = 32*gib, 8*gib
		if got := look(t, p, nil); len(got) != 1 || !got[0].Unified || got[0].Free != 8*gib || got[0].Total != p.Listed[0].Total || got[0].ForeignKnown {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// What macOS lets a GPU have, where the engine does not say.
	apple := look(t, Probe{Listed: []Listed{{ID: "MTL0", Name: "Apple M2"}}, HostTotal: 32 * gib, HostFree: 30 * gib}, nil)
	expect(t, apple, GPU{ID: "MTL0", Name: "Apple M2", Total: 24 * gib, Free: 24 * gib, Known: true, Unified: true})
	// A card of its own in a Mac, or beside a processor's, is none.
	for _, l := range []Listed{{"MTL0", "AMD Radeon Pro 5500M", 4 * gib, 4 * gib, true}, {"Vulkan1", "AMD Radeon RX 7600", 8 * gib, 7 * gib, true}} {
		got := look(t, Probe{Listed: []Listed{l}, Said: "ggml_vulkan: 0 = x | uma: 1 |\nggml_vulkan: 1 = y | uma: 0 |\n", HostTotal: gib}, nil)
		if len(got) != 1 || got[0].Unified || got[0].Total != l.Total {
			t.Errorf("%+v", got)
		}
	}
}

// A processor's GPU is the host's memory in whatever way it is reached.
func TestLookIntegrated(t *testing.T) {
	const uma = "ggml_vulkan: 0 = x | uma: 1 |\nggml_vulkan: 1 = y | uma: 0 |\n"
	for name, c := range map[string]struct {
		said    string
		listed  []Listed
		unified []string // Those that can be used.
		own     []string
	}{
		"SYCL beside Vulkan": {uma, []Listed{{"SYCL0", "Intel(R) Iris(R) Xe Graphics", 28 * gib, 28 * gib, true}, {"Vulkan0", "Intel(R) Iris(R) Xe Graphics (ADL GT2)", 16 * gib, 16 * gib, true}},
			[]string{"SYCL0"}, nil},
		"ROCm beside Vulkan": {uma, []Listed{{"ROCm0", "AMD Radeon 780M Graphics", 8 * gib, 8 * gib, true}, {"Vulkan0", "AMD Radeon 780M (RADV PHOENIX)", 20 * gib, 20 * gib, true}},
			[]string{"ROCm0"}, nil},
		"Vulkan says which of two": {uma, []Listed{{"SYCL0", "Intel(R) Arc(TM) A770 Graphics", 16 * gib, 16 * gib, true}, {"Vulkan0", "Intel(R) UHD Graphics 770", 16 * gib, 16 * gib, true},
			{"Vulkan1", "Intel(R) Arc(TM) A770 Graphics (DG2)", 16 * gib, 16 * gib, true}}, []string{"Vulkan0"}, []string{"SYCL0"}},
		"a phone's":        {"", []Listed{{openCL, "QUALCOMM Adreno(TM) X1-85", 4 * gib, 4 * gib, true}}, []string{openCL}, nil},
		"a phone's, twice": {"", []Listed{{"Vulkan0", "Qualcomm(R) Adreno(TM) X1-85 GPU", 15 * gib, 15 * gib, true}, {openCL, "Qualcomm(R) Adreno(TM) X1-85 GPU", 4 * gib, 4 * gib, true}}, []string{"Vulkan0"}, nil},
		"SYCL alone":       {"", []Listed{{"SYCL0", "Intel(R) UHD Graphics 770", 28 * gib, 28 * gib, true}}, []string{"SYCL0"}, nil},
		"half, on Windows": {"", []Listed{{openCL, "Intel(R) Iris(R) Xe Graphics", 16*gib - 1, 16*gib - 1, true}}, []string{openCL}, nil},
		"ROCm alone":       {"", []Listed{{"ROCm0", "AMD Radeon Graphics", 30 * gib, 30 * gib, true}}, []string{"ROCm0"}, nil},
		"its own part":     {"", []Listed{{"ROCm0", "AMD Radeon 780M Graphics", 4 * gib, 4 * gib, true}}, nil, []string{"ROCm0"}},
		"a card": {"", []Listed{{"SYCL0", "Intel(R) Arc(TM) A770 Graphics", 16 * gib, 16 * gib, true}, {"ROCm0", "AMD Radeon RX 7900 XTX", 24 * gib, 24 * gib, true},
			{"SYCL1", "Intel(R) Data Center GPU Max 1550", 64 * gib, 64 * gib, true}, {"CUDA0", "NVIDIA GeForce RTX 5090", 32 * gib, 32 * gib, true}}, nil, []string{"SYCL0", "ROCm0", "SYCL1", "CUDA0"}},
	} {
		var unified, own []string
		for _, g := range look(t, Probe{Listed: c.listed, Said: c.said, HostTotal: 32 * gib, HostFree: 8 * gib}, nil) {
			switch {
			case g.Unusable != "":
			case g.Unified && g.Free <= 8*gib:
				unified = append(unified, g.ID)
			default:
				own = append(own, g.ID)
			}
		}
		if !slices.Equal(unified, c.unified) || !slices.Equal(own, c.own) {
			t.Errorf("%s: %q of the host's memory, %q not", name, unified, own)
		}
	}
	for _, name := range []string{"Intel(R) UHD Graphics 630", "Intel(R) HD Graphics P530", "Intel(R) Iris(R) Graphics 6100", "Intel(R) Iris(R) Plus Graphics", "Intel(R) Graphics", "Intel(R) Arc(TM) Graphics", "Intel(R) Arc(TM) 140V GPU (16GB)",
		"AMD Radeon(TM) Graphics", "AMD Radeon 8060S Graphics", "AMD Radeon(TM) Vega 8 Graphics", "AMD Custom GPU 0405", "NVIDIA Tegra X1", "NVIDIA GB10", "Mali-G610", "V3D 7.1.7"} {
		if !integrated(name) {
			t.Errorf("%s is a part of a processor", name)
		}
	}
	for _, name := range []string{"Intel(R) Arc(TM) B580 Graphics", "Intel(R) Arc(TM) Pro B60", "Intel(R) Iris(R) Xe MAX Graphics", "AMD Radeon RX 580", "AMD Radeon Pro W7900", "AMD Radeon VII", "AMD Radeon RX Vega 56", "Radeon RX Vega 64",
		"AMD Instinct MI300X", "NVIDIA H200", "Tesla T4", ""} {
		if integrated(name) {
			t.Errorf("%s is a card", name)
		}
	}
}

func TestLookDivided(t *testing.T) {
	answers := map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_mig.csv")}
	part := Listed{"CUDA0", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984 * mib, 9900 * mib, true}
	divided := GPU{ID: "nvidia0", UUID: "GPU-aaaaaaaa-0000-4000-8000-000000000000", Name: "NVIDIA H100 80GB HBM3"}
	other := GPU{ID: "nvidia1", UUID: "GPU-bbbbbbbb-0000-4000-8000-000000000000", Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Free: 81085 * mib, Known: true,
		Unusable: "the engine does not list it"}
	// The part is as the engine sees it; whose it is, and what others hold of it, is not known.
	expect(t, look(t, Probe{Listed: []Listed{part}}, answers), GPU{ID: "CUDA0", Name: part.Name, Total: part.Total, Free: part.Free, Known: true}, other)
	divided.Unusable = "it is divided by MIG, and the engine lists none of its parts"
	whole := GPU{ID: "CUDA0", UUID: other.UUID, Name: other.Name, Total: 81089 * mib, Free: 81085 * mib, Known: true, Foreign: 4 * mib, ForeignKnown: true}
	expect(t, look(t, Probe{Listed: []Listed{{"CUDA0", other.Name, 81089 * mib, 80000 * mib, true}}}, answers), whole, divided)
}

// A card in trouble is not taken for the one that works.
func TestLookInTrouble(t *testing.T) {
	works := Listed{"CUDA0", "NVIDIA RTX A5000", 24240 * mib, 24000 * mib, true}
	expect(t, look(t, Probe{Listed: []Listed{works}}, map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_lost.csv")}),
		GPU{ID: "CUDA0", UUID: "GPU-aaaaaaaa-0000-4000-8000-000000000000", Name: works.Name, Total: works.Total, Free: works.Total, Known: true, Foreign: 3 * mib, ForeignKnown: true},
		GPU{ID: "nvidia1", UUID: "GPU-bbbbbbbb-0000-4000-8000-000000000000", Name: works.Name, Unusable: "nvidia-smi says of it: GPU requires reset"})
}

// What is there and cannot be used is shown, and why.
func TestLookUnusable(t *testing.T) {
	answers := map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_two.csv"), "rocm-smi": recorded(t, "rocm.json")}
	for name, c := range map[string]struct {
		p    Probe
		want map[string]string
	}{
		"a build for the CPU": {Probe{Said: "Available devices:\n  (none)\n"}, map[string]string{"nvidia0": "this build of llama.cpp has no CUDA", "nvidia1": "this build of llama.cpp has no CUDA",
			"amd0": "this build of llama.cpp has no ROCm", "amd1": "this build of llama.cpp has no ROCm"}},
		"no engine": {Probe{NoEngine: "none here"}, map[string]string{"nvidia0": "none here", "nvidia1": "none here", "amd0": "none here", "amd1": "none here"}},
		"an old driver": {Probe{Said: "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\nAvailable devices:\n"},
			map[string]string{"nvidia0": "CUDA does not start: CUDA driver version is insufficient for CUDA runtime version",
				"nvidia1": "CUDA does not start: CUDA driver version is insufficient for CUDA runtime version", "amd0": "this build of llama.cpp has no ROCm", "amd1": "this build of llama.cpp has no ROCm"}},
		"all hidden": {Probe{Env: env("CUDA_VISIBLE_DEVICES", "", "HIP_VISIBLE_DEVICES", "-1")}, map[string]string{"nvidia0": "CUDA_VISIBLE_DEVICES hides it",
			"nvidia1": "CUDA_VISIBLE_DEVICES hides it", "amd0": "HIP_VISIBLE_DEVICES hides it", "amd1": "HIP_VISIBLE_DEVICES hides it"}},
		"one backend of two": {Probe{Listed: two}, map[string]string{"CUDA0": "", "CUDA1": "", "amd0": "this build of llama.cpp has no ROCm", "amd1": "this build of llama.cpp has no ROCm"}},
		"an old card": {Probe{Listed: two[:1]}, map[string]string{"CUDA0": "", "nvidia1": "the engine does not list it", "amd0": "this build of llama.cpp has no ROCm",
			"amd1": "this build of llama.cpp has no ROCm"}},
	} {
		got := map[string]string{}
		for _, g := range look(t, c.p, answers) {
			got[g.ID] = g.Unusable
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// One card that the engine reaches in two ways is one card.
func TestLookTwoWays(t *testing.T) {
	listed := slices.Concat(two, []Listed{
		{"Vulkan0", "NVIDIA GeForce RTX 4090", 24564 * mib, 23000 * mib, true},
		{"Vulkan1", "NVIDIA GeForce RTX 3060", 12288 * mib, 12000 * mib, true},
		{"Vulkan2", "Intel(R) UHD Graphics 770 (ADL-S GT1)", 16 * gib, 16 * gib, true},
		{"BLAS", "Accelerate", 0, 0, false},
	})
	got := look(t, Probe{Listed: listed}, map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_two.csv")})
	var words []string
	for _, g := range got {
		words = append(words, g.ID+" "+g.Unusable)
	}
	if want := []string{"CUDA0 ", "CUDA1 ", "Vulkan0 it is the same GPU as CUDA0", "Vulkan1 it is the same GPU as CUDA1", "Vulkan2 "}; !slices.Equal(words, want) {
		t.Errorf("%q", words)
	}
	if !got[0].ForeignKnown || got[2].ForeignKnown {
		t.Errorf("%+v", got)
	}
	// With Vulkan alone it is the tool's card all the same, and one that is hidden
	// from CUDA is left alone.
	got = look(t, Probe{Listed: listed[2:4], Env: env("CUDA_VISIBLE_DEVICES", "1")}, map[string]string{"nvidia-smi --query-gpu": recorded(t, "nvidia_two.csv")})
	if len(got) != 2 || got[0].UUID != uuid4090 || got[0].Unusable != "CUDA_VISIBLE_DEVICES hides it" ||
		got[1].UUID != uuid3060 || got[1].Unusable != "" || got[1].Foreign != 11*mib {
		t.Errorf("%+v", got)
	}
}

func TestLookAMD(t *testing.T) {
	answers := map[string]string{"rocm-smi": recorded(t, "rocm.json")}
	listed := []Listed{{"ROCm0", "AMD Radeon RX 7900 XTX", 24560 * mib, 24000 * mib, true}, {"ROCm1", "AMD Radeon 8060S Graphics", 96 * gib, 90 * gib, true}}
	expect(t, look(t, Probe{Listed: listed, HostTotal: 120 * gib, HostFree: 80 * gib}, answers),
		GPU{ID: "ROCm0", UUID: "GPU-1d2c3b4a59687786", Name: listed[0].Name, Total: listed[0].Total, Free: 25753026560 - 1048576000, Known: true, Foreign: 1048576000, ForeignKnown: true},
		// The tool shows the half GiB that is set aside for it, the engine all that it can have.
		GPU{ID: "ROCm1", Name: listed[1].Name, Total: 96 * gib, Free: 80 * gib, Known: true, Unified: true})
}

// Whatever the tools and the engine say, nothing is lent twice or made up.
func FuzzLook(f *testing.F) {
	f.Add(recorded(f, "nvidia_two.csv"), recorded(f, "rocm.json"), recorded(f, "nvidia_processes.csv"), "NVIDIA GeForce RTX 4090", uint64(24<<30), "0")
	f.Add(recorded(f, "nvidia_mig.csv"), "", "", "NVIDIA H100 80GB HBM3", uint64(80<<30), "MIG-1")
	f.Add(recorded(f, "nvidia_gb10.csv"), "", "", "NVIDIA GB10", uint64(0), "")
	f.Add(recorded(f, "nvidia_lost.csv"), "", "", "NVIDIA RTX A5000", uint64(24<<30), "0")
	f.Fuzz(func(t *testing.T, nvidia, rocm, processes, name string, total uint64, visible string) {
		listed := []Listed{{"CUDA0", name, total, total, total > 0}, {"CUDA1", name, total, 0, total > 0}, {"Vulkan0", name, total, total, total > 0}, {"ROCm0", "AMD", total, 0, total > 0}}
		p := Probe{Listed: listed, Env: env("CUDA_VISIBLE_DEVICES", visible), HostTotal: 16 * gib, HostFree: 8 * gib, Own: Own{PIDs: []int{4242}},
			Ask: tools(map[string]string{"nvidia-smi --query-gpu": nvidia, "nvidia-smi --query-compute-apps": processes, "rocm-smi": rocm})}
		gpus, _ := p.Look(t.Context())
		ids, uuids := map[string]bool{}, map[string]bool{}
		for _, g := range gpus {
			if ids[g.ID] || g.Free > g.Total || !g.Known && (g.Total|g.Free) != 0 || !g.ForeignKnown && g.Foreign != 0 || g.Unified && g.Free > p.HostFree {
				t.Errorf("%+v", g)
			}
			ids[g.ID] = true
			if g.UUID != "" && g.Unusable == "" && uuids[g.UUID] && strings.Count(strings.ToLower(nvidia+rocm), strings.ToLower(strings.TrimPrefix(g.UUID, "GPU-"))) < 2 {
				t.Errorf("%s twice: %+v", g.UUID, gpus)
			}
			uuids[g.UUID] = true
		}
		if len(gpus) < len(listed) {
			t.Errorf("only %+v", gpus)
		}
	})
}
