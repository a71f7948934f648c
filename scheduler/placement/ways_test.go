package placement_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"relay/scheduler/placement"
	"relay/scheduler/ways"
)

// layered is a model of ten layers of 1 GiB: 12.8 GiB on a CPU; 11.5 GiB on a GPU
// and 1.3 GiB beside it.
var layered = ways.Shape{Input: gib, Output: gib, Compute: gib / 2, Host: gib / 4, Layers: []ways.Layers{{Count: 10, Weights: gib}}}

func card(id string, lent, free float64) func(*placement.Peer) {
	return func(p *placement.Peer) {
		p.Machine.GPUs = append(p.Machine.GPUs, ways.Device{ID: id, GPU: true, Known: true, Lent: uint64(lent * gib), Free: uint64(free * gib)})
	}
}

func idle(more float64) func(*placement.Peer) {
	return func(p *placement.Peer) { p.Machine.Host.Evictable = uint64(more * gib) }
}

func idleOnGPU(more float64) func(*placement.Peer) {
	return func(p *placement.Peer) { p.Machine.GPUs[0].Evictable = uint64(more * gib) }
}

func disk(free float64) func(*placement.Peer) {
	return func(p *placement.Peer) { p.Holds, p.DiskKnown, p.DiskFree = false, true, uint64(free*gib) }
}

// pulls is how many MiB a second a peer fetches.
func pulls(mib float64) func(*placement.Peer) {
	return func(p *placement.Peer) { p.FetchRate = mib * (1 << 20) }
}

func fast(rate float64) func(*placement.Peer) {
	return func(p *placement.Peer) { p.Machine.Host.Decode = rate }
}

func parks(p *placement.Peer) {
	p.Parked, p.Failed, p.FailedText = true, "engine_failed", "the engine ended at once"
}
func falls(k ways.Kind, parked bool) func(*placement.Peer) {
	return func(p *placement.Peer) {
		p.Machine.Blocked = append(p.Machine.Blocked, ways.Block{Kind: k, Parked: parked, Reason: "engine_failed", Text: "it fell as " + string(k)})
	}
}
func pauses(p *placement.Peer) { p.Paused = "its owner plays a game" }

func TestWaysAndWants(t *testing.T) {
	type peers = []placement.Peer
	for _, tc := range []struct {
		name   string
		m      placement.Model
		peers  peers
		on     string // peer kind, "fetch"
		reason string
		final  bool
		text   string
		others []string // of the rejections the sentences
	}{
		{"a GPU before more RAM", placement.Model{}, peers{peer("attic", 64, 64), peer("den", 16, 16, card("CUDA0", 24, 20))}, "den:gpu", "", false,
			`model "qwen": goes to den (holds the file, 20.0 GiB free of 24.0 GiB lent on CUDA0); 12.8 GiB needed`, nil},
		{"GPU and RAM", placement.Model{}, peers{peer("den", 16, 16, card("CUDA0", 8, 8))}, "den:gpu+ram", "", false,
			`model "qwen": goes to den (holds the file, 8.0 GiB free of 8.0 GiB lent on CUDA0, the rest in RAM); 13.3 GiB needed`, nil},
		{"two GPUs", placement.Model{}, peers{peer("den", 2, 2, card("CUDA0", 8, 8), card("CUDA1", 8, 8))}, "den:gpus", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent on CUDA0 and CUDA1); 13.3 GiB needed`, nil},
		{"on CPU beside a GPU", placement.Model{}, peers{peer("den", 16, 16, card("CUDA0", 2, 2))}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on den is free: needs 11.5 GiB, CUDA0 lends 2.0 GiB in all`, nil},
		{"a CPU that is faster than the GPU", placement.Model{}, peers{peer("den", 32, 32, fast(1e12), card("CUDA0", 24, 20))}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 32.0 GiB free of 32.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on den is free in part: 15.2 tokens/s are predicted there, 84.7 on cpu`, nil},
		{"faster first", placement.Model{}, peers{peer("attic", 64, 64), peer("den", 16, 16, fast(40e9))}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"a little faster is no faster", placement.Model{}, peers{peer("attic", 64, 64), peer("den", 16, 16, fast(28e9))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 64.0 GiB free of 64.0 GiB lent); 12.8 GiB needed`, nil},
		{"neither memory does", placement.Model{}, peers{peer("den", 16, 4, card("CUDA0", 24, 1))}, "", "no_capacity", false,
			`model "qwen": runs nowhere: den: gpu needs 11.5 GiB, CUDA0 has 1.0 GiB free of the 24.0 GiB it lends, ` +
				`gpu+ram needs 10.5 GiB, CUDA0 has 1.0 GiB free of the 24.0 GiB it lends, cpu needs 12.8 GiB, RAM has 4.0 GiB free of the 16.0 GiB it lends`,
			[]string{`den: gpu needs 11.5 GiB, CUDA0 has 1.0 GiB free of the 24.0 GiB it lends, ` +
				`gpu+ram needs 10.5 GiB, CUDA0 has 1.0 GiB free of the 24.0 GiB it lends, cpu needs 12.8 GiB, RAM has 4.0 GiB free of the 16.0 GiB it lends`}},

		{"told to fetch it", placement.Model{Fetch: true}, peers{peer("attic", 8, 8), peer("den", 32, 32, disk(100))}, "den:cpu:fetch", "", false,
			`model "qwen": goes to den (fetches the file, 32.0 GiB free of 32.0 GiB lent); 12.8 GiB needed`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all"}},
		{"who holds it comes first", placement.Model{Fetch: true}, peers{peer("attic", 16, 16), peer("den", 32, 32, disk(100), fast(1e12))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"no room on the disk", placement.Model{Fetch: true}, peers{peer("attic", 8, 8), peer("den", 32, 32, disk(12))}, "", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 8.0 GiB on attic; no holder lends more than 8.0 GiB`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all", "den does not hold the file, and its disk has no room for it: 12.2 GiB needed, 12.0 GiB free"}},
		{"a disk that nobody knows", placement.Model{Fetch: true}, peers{peer("attic", 8, 8), peer("den", 32, 32, empty)}, "", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 8.0 GiB on attic; no holder lends more than 8.0 GiB`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all", "den does not hold the file, and how much room its disk has is not known"}},
		{"nobody to fetch it from", placement.Model{Fetch: true}, peers{peer("attic", 32, 32, gone), peer("den", 32, 32, disk(100))}, "", "no_holder", false,
			`model "qwen": the peers that hold it whole do not answer: attic`, []string{"attic does not answer", "den does not hold the file"}},

		{"idle models stay", placement.Model{}, peers{peer("attic", 16, 4, idle(12))}, "", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 4.0 GiB on attic; it would fit on attic if nothing else ran there`,
			[]string{"12.8 GiB needed, attic has 4.0 GiB free now of the 16.0 GiB it lends; idle models there would have to be unloaded"}},
		{"idle models go", placement.Model{Evict: true}, peers{peer("attic", 16, 4, idle(12))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 4.0 GiB free of 16.0 GiB lent, unloads idle models); 12.8 GiB needed`, nil},
		{"rather where none has to go", placement.Model{Evict: true, Fetch: true}, peers{peer("attic", 16, 4, idle(12), fast(1e12)), peer("den", 16, 16, disk(100))}, "den:cpu:fetch", "", false,
			`model "qwen": goes to den (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},

		{"idle models go for a way that is twice as fast", placement.Model{Evict: true}, peers{peer("attic", 16, 16, card("CUDA0", 24, 4), idleOnGPU(20))}, "attic:gpu", "", false,
			`model "qwen": goes to attic (holds the file, 4.0 GiB free of 24.0 GiB lent on CUDA0, unloads idle models); 12.8 GiB needed`, nil},
		{"not without being asked for", placement.Model{}, peers{peer("attic", 16, 16, card("CUDA0", 24, 2), idleOnGPU(22))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on attic is free in part: takes 11.5 GiB on CUDA0 and 1.3 GiB in RAM, once idle models are unloaded`, nil},
		{"nor for one that is less", placement.Model{Evict: true}, peers{peer("attic", 16, 16, fast(100e9), card("CUDA0", 24, 0), idleOnGPU(20))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"more of it beside RAM once idle models go", placement.Model{Evict: true}, peers{peer("attic", 16, 16, card("CUDA0", 11, 4), idleOnGPU(7))}, "attic:gpu+ram", "", false,
			`model "qwen": goes to attic (holds the file, 4.0 GiB free of 11.0 GiB lent on CUDA0, the rest in RAM, unloads idle models); 13.3 GiB needed`, nil},
		{"elsewhere nothing has to go at all", placement.Model{Evict: true}, peers{peer("attic", 16, 16, card("CUDA0", 24, 0), idleOnGPU(24)), peer("den", 16, 16, card("CUDA0", 24, 24))}, "den:gpu", "", false,
			`model "qwen": goes to den (holds the file, 24.0 GiB free of 24.0 GiB lent on CUDA0); 12.8 GiB needed`, nil},

		{"who has it sooner, before more room and more speed", placement.Model{Fetch: true},
			peers{peer("attic", 8, 8), peer("den", 64, 64, disk(100), pulls(50), fast(1e12)), peer("lab", 16, 16, disk(100), pulls(100))}, "lab:cpu:fetch", "", false,
			`model "qwen": goes to lab (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all"}},
		{"speed before less than a minute", placement.Model{Fetch: true},
			peers{peer("attic", 8, 8), peer("den", 16, 16, disk(100), pulls(400), fast(1e12)), peer("lab", 64, 64, disk(100), pulls(500))}, "den:cpu:fetch", "", false,
			`model "qwen": goes to den (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all"}},
		{"less than a minute before more room", placement.Model{Fetch: true},
			peers{peer("attic", 8, 8), peer("den", 16, 16, disk(100), pulls(500)), peer("lab", 64, 64, disk(100), pulls(400))}, "den:cpu:fetch", "", false,
			`model "qwen": goes to den (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all"}},
		{"who may take long before who knows how long", placement.Model{Fetch: true},
			peers{peer("attic", 8, 8), peer("den", 64, 64, disk(100), fast(1e12)), peer("lab", 16, 16, disk(100), pulls(1))}, "lab:cpu:fetch", "", false,
			`model "qwen": goes to lab (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all"}},

		{"placed there before what only runs", placement.Model{}, peers{peer("attic", 16, 0, runs), peer("den", 16, 16, placed)}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"of two that are ready the one where it is placed", placement.Model{}, peers{peer("attic", 64, 64, ready), peer("den", 16, 0, ready, placed)}, "den:cpu", "", false,
			`model "qwen": stays on den`, nil},
		{"placed there without its file", placement.Model{Fetch: true}, peers{peer("attic", 64, 64), peer("den", 16, 16, disk(100), placed)}, "den:cpu:fetch", "", false,
			`model "qwen": goes to den (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"where it was last before what only runs", placement.Model{}, peers{peer("attic", 16, 0, runs), peer("den", 16, 16, was)}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"placed before where it was last", placement.Model{}, peers{peer("attic", 64, 64, was), peer("den", 16, 16, placed)}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"where it was last, without its file", placement.Model{Fetch: true}, peers{peer("attic", 64, 64), peer("den", 16, 16, disk(100), was)}, "den:cpu:fetch", "", false,
			`model "qwen": goes to den (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"where it was last, and a GPU elsewhere is free", placement.Model{}, peers{peer("attic", 16, 16, was), peer("den", 16, 16, card("CUDA0", 24, 24))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on den is free: 15.2 tokens/s are predicted there, but it ran on attic last`, nil},
		{"two wanted, idle models go for one", placement.Model{Want: 1, Evict: true},
			peers{peer("attic", 16, 16), peer("den", 16, 4, idle(12), placed), peer("lab", 16, 4, idle(12), placed)}, "attic:cpu den:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent) and den (holds the file, 4.0 GiB free of 16.0 GiB lent, unloads idle models); ` +
				`12.8 GiB needed`, nil},
		{"two wanted, one fetches", placement.Model{Want: 1, Fetch: true},
			peers{peer("attic", 16, 16), peer("den", 16, 16, disk(100), fast(1e12)), peer("lab", 16, 16, disk(100), fast(1e12))}, "attic:cpu den:cpu:fetch", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent) and den (fetches the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`, nil},
		{"too small here, and another holder may come back", placement.Model{}, peers{peer("attic", 8, 8), peer("den", 32, 3, gone)}, "", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 8.0 GiB on attic; no holder that answers lends more than 8.0 GiB; den, which does not answer, lends 32.0 GiB`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all", "den does not answer"}},
		{"busy here, and holders with GPUs may come back", placement.Model{}, peers{peer("attic", 16, 8), peer("den", 2, 1, card("CUDA0", 24, 0), gone), peer("lab", 32, 32, empty)}, "", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 8.0 GiB on attic; it would fit on attic if nothing else ran there ` +
				`(relay model pull qwen on lab, where it would fit); den, which does not answer, lends 24.0 GiB on CUDA0 and 2.0 GiB in RAM`,
			[]string{"12.8 GiB needed, attic has 8.0 GiB free now of the 16.0 GiB it lends", "den does not answer", "lab does not hold the file (relay model pull qwen there)"}},
		{"not for its memory, and another holder may come back", placement.Model{}, peers{peer("attic", 16, 16, bare), peer("den", 32, 3, gone)}, "", "no_engine", false,
			`model "qwen": runs nowhere: attic has no engine: no llama-server in PATH; den, which does not answer, lends 32.0 GiB`,
			[]string{"attic has no engine: no llama-server in PATH", "den does not answer"}},
		{"holders that are no help if they come back", placement.Model{},
			peers{peer("attic", 8, 8), peer("den", 10, 10, gone), peer("lab", 32, 32, gone, client), peer("nas", 32, 32, gone, parks), peer("shed", 32, 32, gone, drained), peer("work", 32, 32, gone, empty)},
			"", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 8.0 GiB on attic; no holder that answers lends more than 8.0 GiB`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all", "den does not answer", "lab does not answer", "nas does not answer", "shed does not answer", "work does not answer"}},
		{"too small here, and another is paused", placement.Model{}, peers{peer("attic", 8, 8), peer("den", 32, 32, pauses)}, "", "no_capacity", false,
			`model "qwen": runs nowhere: 12.8 GiB needed, attic lends 8.0 GiB in all; den lends nothing for now: its owner plays a game`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all", "den lends nothing for now: its owner plays a game"}},

		{"only there", placement.Model{Only: "attic"}, peers{peer("attic", 16, 14), peer("den", 64, 64)}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 14.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; only on attic`, nil},
		{"only there, and it runs", placement.Model{Only: "den", Want: 1}, peers{peer("attic", 64, 64), peer("den", 16, 2, ready)}, "den:cpu", "", false,
			`model "qwen": stays on den; no more than 1 of 2 replicas find a place: it may run only on den`, nil},
		{"two wanted, the first of two has no room", placement.Model{Want: 1}, peers{peer("attic", 16, 14), peer("den", 8, 8), peer("lab", 16, 16, bare)}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 14.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`no more than 1 of 2 replicas find a place: 12.8 GiB needed, den lends 8.0 GiB in all`,
			[]string{"12.8 GiB needed, den lends 8.0 GiB in all", "lab has no engine: no llama-server in PATH"}},
		{"only there, and it is full", placement.Model{Only: "attic"}, peers{peer("attic", 16, 4), peer("den", 64, 64)}, "", "no_capacity", false,
			`model "qwen": it may run only on attic: 12.8 GiB needed, attic has 4.0 GiB free now of the 16.0 GiB it lends`,
			[]string{"12.8 GiB needed, attic has 4.0 GiB free now of the 16.0 GiB it lends"}},
		{"only there, and it is too small", placement.Model{Only: "attic"}, peers{peer("attic", 8, 8), peer("den", 64, 64)}, "", "no_capacity", true,
			`model "qwen": it may run only on attic: 12.8 GiB needed, attic lends 8.0 GiB in all`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all"}},
		{"only there, and it is down", placement.Model{Only: "attic"}, peers{peer("attic", 16, 16, gone), peer("den", 64, 64)}, "", "peer_gone", false,
			`model "qwen": it may run only on attic: attic does not answer`,
			[]string{"attic does not answer"}},
		{"only there, and it has left", placement.Model{Only: "attic"}, peers{peer("den", 64, 64)}, "", "peer_gone", false,
			`model "qwen": it may run only on attic, which is not in the mesh`, []string{"it may run only on attic, not on den"}},

		{"parked there", placement.Model{}, peers{peer("attic", 16, 16, parks)}, "", "engine_failed", true,
			`model "qwen": runs nowhere: attic: parked there until somebody says relay model retry qwen: the engine ended at once`,
			[]string{"attic: parked there until somebody says relay model retry qwen: the engine ended at once"}},
		{"parked there, not elsewhere", placement.Model{}, peers{peer("attic", 64, 64, parks), peer("den", 16, 16)}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed`,
			[]string{"attic: parked there until somebody says relay model retry qwen: the engine ended at once"}},
		{"parked there, elsewhere later", placement.Model{}, peers{peer("attic", 64, 64, parks), peer("den", 16, 16, failed)}, "", "engine_failed", false,
			`model "qwen": runs nowhere: attic: parked there until somebody says relay model retry qwen: the engine ended at once; den: the engine ended at once`,
			[]string{"attic: parked there until somebody says relay model retry qwen: the engine ended at once", "den: the engine ended at once"}},
		{"parked there, too small elsewhere", placement.Model{}, peers{peer("attic", 64, 64, parks), peer("den", 8, 8)}, "", "no_capacity", true,
			`model "qwen": runs nowhere: attic: parked there until somebody says relay model retry qwen: the engine ended at once; 12.8 GiB needed, den lends 8.0 GiB in all`,
			[]string{"attic: parked there until somebody says relay model retry qwen: the engine ended at once", "12.8 GiB needed, den lends 8.0 GiB in all"}},
		{"it fell on the GPU, and goes to the CPU", placement.Model{}, peers{peer("den", 16, 16, card("CUDA0", 24, 24), falls(ways.OneGPU, false), falls(ways.Hybrid, false))}, "den:cpu", "", false,
			`model "qwen": goes to den (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on den is free: it fell as gpu`, nil},
		{"it fell whichever way it could go", placement.Model{}, peers{peer("den", 4, 4, card("CUDA0", 24, 24), falls(ways.OneGPU, true), falls(ways.Hybrid, false))}, "", "engine_failed", false,
			`model "qwen": runs nowhere: den: it fell as gpu+ram`, []string{"den: it fell as gpu+ram"}},
		{"it is parked whichever way it could go", placement.Model{}, peers{peer("den", 16, 0, falls(ways.CPU, true))}, "", "engine_failed", true,
			`model "qwen": runs nowhere: den: parked there until somebody says relay model retry qwen: it fell as cpu`,
			[]string{"den: parked there until somebody says relay model retry qwen: it fell as cpu"}},
		{"it is parked on the GPU, and the RAM is taken", placement.Model{}, peers{peer("den", 16, 4, card("CUDA0", 24, 24), falls(ways.OneGPU, true), falls(ways.Hybrid, true))}, "", "no_capacity", false,
			`model "qwen": runs nowhere: den: gpu it fell as gpu, gpu+ram it fell as gpu+ram, cpu needs 12.8 GiB, RAM has 4.0 GiB free of the 16.0 GiB it lends`,
			[]string{`den: gpu it fell as gpu, gpu+ram it fell as gpu+ram, cpu needs 12.8 GiB, RAM has 4.0 GiB free of the 16.0 GiB it lends`}},
		{"its disk is full, and it fell", placement.Model{Fetch: true}, peers{peer("attic", 8, 8), peer("den", 16, 16, disk(0), falls(ways.CPU, false))}, "", "no_capacity", false,
			`model "qwen": need 12.8 GiB, most free is 8.0 GiB on attic; no holder lends more than 8.0 GiB`,
			[]string{"12.8 GiB needed, attic lends 8.0 GiB in all", "den does not hold the file, and its disk has no room for it: 12.2 GiB needed, 0 MiB free"}},
		{"its owner paused it", placement.Model{}, peers{peer("attic", 16, 16, ready, pauses)}, "", "no_capacity", false,
			`model "qwen": runs nowhere: attic lends nothing for now: its owner plays a game`,
			[]string{"attic lends nothing for now: its owner plays a game"}},
		{"none wanted", placement.Model{Want: -1}, peers{peer("attic", 16, 16, ready)}, "", "", false, `model "qwen": no replica is wanted for now`, nil},
		{"it stays as it runs", placement.Model{}, peers{peer("attic", 16, 0, ready, card("CUDA0", 24, 24), func(p *placement.Peer) {
			p.Way = &ways.Way{Kind: ways.CPU, Parts: []ways.Part{{Device: ways.HostID, Layers: 11, Bytes: 7}}}
		})}, "attic:cpu", "", false, `model "qwen": stays on attic; ` +
			`runs on cpu although CUDA0 on attic is free: needs 1.3 GiB, RAM has 0 MiB free of the 16.0 GiB it lends`, nil},
		{"a GPU elsewhere, and no file", placement.Model{Fetch: true}, peers{peer("attic", 16, 16), peer("den", 16, 16, card("CUDA0", 24, 24), disk(100), pulls(90))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on den is free: 15.2 tokens/s are predicted there, but it would have to fetch the file (about 138 s)`, nil},
		{"nobody knows how long fetching takes", placement.Model{Fetch: true}, peers{peer("attic", 16, 16), peer("den", 16, 16, card("CUDA0", 8, 8), card("CUDA1", 8, 7), disk(100))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 and CUDA1 on den are free in part: 15.2 tokens/s are predicted there, but it would have to fetch the file (how long that takes is not known)`, nil},
		{"it runs on a CPU, and elsewhere a GPU is free", placement.Model{}, peers{peer("attic", 16, 2, ready), peer("den", 16, 16, card("CUDA0", 24, 24)), peer("lab", 16, 16, card("CUDA0", 8, 8))}, "attic:cpu", "", false,
			`model "qwen": stays on attic; runs on cpu although CUDA0 on den is free: 15.2 tokens/s are predicted there, but it runs on attic already`, nil},
		{"it is placed on a CPU, and a GPU is free here and elsewhere", placement.Model{}, peers{peer("attic", 16, 16, placed, card("CUDA0", 2, 2)), peer("den", 16, 16, card("CUDA0", 24, 24))}, "attic:cpu", "", false,
			`model "qwen": goes to attic (holds the file, 16.0 GiB free of 16.0 GiB lent); 12.8 GiB needed; ` +
				`runs on cpu although CUDA0 on attic is free: needs 11.5 GiB, CUDA0 lends 2.0 GiB in all; ` +
				`runs on cpu although CUDA0 on den is free: 15.2 tokens/s are predicted there, but it is placed on attic`, nil},
		{"two run on CPUs", placement.Model{Want: 1}, peers{peer("attic", 16, 2, ready), peer("den", 16, 2, ready), peer("lab", 16, 16, card("CUDA0", 24, 24))}, "attic:cpu den:cpu", "", false,
			`model "qwen": stays on attic and den; on attic it runs on cpu although CUDA0 on lab is free: 15.2 tokens/s are predicted there, but it runs on attic already`, nil},
		{"a GPU elsewhere that is no option", placement.Model{}, peers{peer("attic", 16, 2, ready), peer("den", 16, 16, card("CUDA0", 24, 24), cordons), peer("lab", 16, 16, card("CUDA0", 24, 24), failed),
			peer("nas", 16, 16, card("CUDA0", 24, 24), falls(ways.OneGPU, false), falls(ways.Hybrid, false)), peer("shed", 16, 16, card("CUDA0", 24, 24), empty)}, "attic:cpu", "", false,
			`model "qwen": stays on attic`, []string{"den is cordoned", "lab: the engine ended at once", "shed does not hold the file (relay model pull qwen there)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.m
			m.UID, m.Name, m.CID, m.Bytes, m.Shape, m.Want = "u", "qwen", "bafy", 12*gib+gib/8, layered, max(0, m.Want+1)
			s := placement.Snapshot{Peers: tc.peers}
			plan := placement.Place(m, s)
			var got []string
			for _, o := range plan.Orders {
				text := o.Peer + ":" + string(o.Way.Kind)
				if o.Fetch {
					text += ":fetch"
				}
				got = append(got, text)
			}
			if on := strings.Join(got, " "); on != tc.on || plan.Reason != tc.reason || plan.Final != tc.final {
				t.Errorf("on %q, reason %q, final %v, want %q, %q, %v", on, plan.Reason, plan.Final, tc.on, tc.reason, tc.final)
			}
			if plan.Text != tc.text {
				t.Errorf("says\n%s\nwant\n%s", plan.Text, tc.text)
			}
			var others []string
			for _, r := range placement.Reject(m, s) {
				others = append(others, r.Text)
			}
			if !slices.Equal(others, tc.others) {
				t.Errorf("rejections\n%s\nwant\n%s", strings.Join(others, "\n"), strings.Join(tc.others, "\n"))
			}
		})
	}
}

// What runs keeps its way to the byte.
func TestKeptWay(t *testing.T) {
	way := ways.Way{Kind: ways.Hybrid, Parts: []ways.Part{{Device: "CUDA0", Layers: 3, Bytes: 5}, {Device: ways.HostID, Layers: 8, Bytes: 6}}, Decode: 1}
	p := peer("attic", 64, 64, ready, card("CUDA0", 24, 0))
	p.Way = &way
	plan := placement.Place(placement.Model{Name: "qwen", Shape: layered, Want: 1}, placement.Snapshot{Peers: []placement.Peer{p}})
	if got, want := fmt.Sprintf("%+v", plan.Orders), fmt.Sprintf("%+v", []placement.Order{{Peer: "attic", Way: way}}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Of what runs in a way that nobody knows the likeliest is said, whatever is
// looked at after it.
func TestUnknownWayIsCPU(t *testing.T) {
	s := placement.Snapshot{Peers: []placement.Peer{peer("attic", 1, 0, ready), peer("den", 64, 64, card("CUDA0", 24, 24))}}
	plan := placement.Place(placement.Model{Name: "qwen", Shape: layered, Want: 2}, s)
	want := []ways.Part{{Device: ways.HostID, Layers: 11, Bytes: layered.CPU()}}
	if len(plan.Orders) != 2 || plan.Orders[0].Way.Kind != ways.CPU || !slices.Equal(plan.Orders[0].Way.Parts, want) || plan.Orders[1].Way.Kind != ways.OneGPU {
		t.Errorf("%+v", plan.Orders)
	}
}

func TestLessThanNoneIsNone(t *testing.T) {
	plan := placement.Place(placement.Model{Name: "qwen", Want: -1}, placement.Snapshot{Peers: []placement.Peer{peer("attic", 16, 16, ready, leaves)}})
	if len(plan.Orders) > 0 || plan.Reason != "" {
		t.Errorf("%+v", plan)
	}
}

func TestEver(t *testing.T) {
	m := placement.Model{Name: "qwen", Shape: layered, Want: 3, Bytes: gib}
	s := placement.Snapshot{Peers: []placement.Peer{
		peer("attic", 16, 0), // busy now
		peer("den", 8, 8),    // too small
		peer("game", 32, 32, pauses), peer("lab", 16, 16, failed), peer("nas", 16, 16, parks),
		peer("phone", 16, 16, client), peer("shed", 16, 0, disk(2)), peer("tower", 4, 0, ready),
		peer("work", 4, 4, card("CUDA0", 24, 0)),
		peer("xeon", 16, 16, falls(ways.CPU, false)), peer("yard", 16, 16, falls(ways.CPU, true)),
	}}
	for fetch, want := range map[bool]int{false: 6, true: 7} {
		m.Fetch = fetch
		peers, why := placement.Ever(m, s)
		if peers != want || peers+len(why) != len(s.Peers) {
			t.Errorf("fetch %v: on %d peers, not on %+v", fetch, peers, why)
		}
		if got := why[0].Text; got != "12.8 GiB needed, den lends 8.0 GiB in all" {
			t.Errorf("says %q", got)
		}
	}
}

// A peer that is gone counts by what it last told; one that told nothing does not.
func TestEverCountsWhoIsGone(t *testing.T) {
	s := placement.Snapshot{Peers: []placement.Peer{
		peer("attic", 16, 0, gone), peer("den", 8, 8, gone), peer("lab", 16, 16, gone, drains),
		peer("nas", 16, 16, disk(100), fast(1e10)), // From attic, once that is back.
		peer("shed", 16, 16, gone, func(p *placement.Peer) { p.Machine.Host = ways.Device{ID: ways.HostID} }),
	}}
	peers, why := placement.Ever(placement.Model{Name: "qwen", Shape: layered, Want: 1, Bytes: gib, Fetch: true}, s)
	want := []placement.Rejection{{"den", "no_capacity", "12.8 GiB needed, den lends 8.0 GiB in all"}, {"lab", "draining", "lab is draining"}, {"shed", "peer_gone", "shed does not answer"}}
	if peers != 2 || !slices.Equal(why, want) {
		t.Errorf("on %d peers, not on %+v", peers, why)
	}
	if s.Peers[0].Alive {
		t.Error("the snapshot was changed")
	}
}

// Where only one peer may run it there is one answer, unless that one is not in the mesh.
func TestEverOnlyThere(t *testing.T) {
	s := placement.Snapshot{Peers: []placement.Peer{peer("attic", 64, 64), peer("den", 8, 8), peer("lab", 64, 64)}}
	for only, want := range map[string][]string{
		"den":   {"12.8 GiB needed, den lends 8.0 GiB in all"},
		"lab":   nil,
		"tower": {"it may run only on tower, not on attic", "it may run only on tower, not on den", "it may run only on tower, not on lab"},
	} {
		peers, why := placement.Ever(placement.Model{Name: "qwen", Shape: layered, Want: 1, Only: only}, s)
		var got []string
		for _, r := range why {
			got = append(got, r.Text)
		}
		if !slices.Equal(got, want) || (peers == 1) != (want == nil) {
			t.Errorf("only on %s: on %d peers, not on %q, want %q", only, peers, got, want)
		}
	}
}

// What waits for memory alone is told from what waits for something else.
func TestLater(t *testing.T) {
	busy := func(p *placement.Peer) { p.Machine.GPUs[0].Busy = "another program uses it" }
	for name, tc := range map[string]struct {
		m    placement.Model
		p    placement.Peer
		want bool
	}{
		"taken":                        {placement.Model{}, peer("attic", 16, 4), true},
		"idle models, which stay":      {placement.Model{}, peer("attic", 16, 4, idle(12)), true},
		"the GPU is busy":              {placement.Model{}, peer("attic", 4, 4, card("CUDA0", 24, 24), busy), true},
		"too small":                    {placement.Model{}, peer("attic", 8, 8), false},
		"it may run":                   {placement.Model{}, peer("attic", 16, 16), false},
		"no file":                      {placement.Model{}, peer("attic", 16, 4, empty), false},
		"gone":                         {placement.Model{}, peer("attic", 16, 4, gone), false},
		"paused":                       {placement.Model{}, peer("attic", 16, 4, pauses), false},
		"it failed":                    {placement.Model{}, peer("attic", 16, 4, failed), false},
		"it fell":                      {placement.Model{}, peer("attic", 16, 4, falls(ways.CPU, false)), false},
		"it fell, another way is left": {placement.Model{}, peer("attic", 16, 4, card("CUDA0", 24, 24), falls(ways.OneGPU, false), falls(ways.Hybrid, true)), true},
		"elsewhere only":               {placement.Model{Only: "den"}, peer("attic", 16, 4), false},
		"nobody asks":                  {placement.Model{Want: -1}, peer("attic", 16, 4), false},
	} {
		tc.m.Name, tc.m.Shape, tc.m.Want = "qwen", layered, tc.m.Want+1
		if plan := placement.Place(tc.m, placement.Snapshot{Peers: []placement.Peer{tc.p}}); plan.Later != tc.want {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

func TestOptions(t *testing.T) {
	seen := ways.Seen{Kind: ways.CPU, Parts: []ways.Part{{Device: ways.HostID, Layers: 11, Bytes: 13 * gib}}, Decode: 2, LoadMS: 900}
	s := placement.Snapshot{Peers: []placement.Peer{
		peer("attic", 16, 14, func(p *placement.Peer) { p.Machine.Seen = []ways.Seen{seen} }),
		peer("den", 32, 32, card("CUDA0", 24, 20), disk(100), func(p *placement.Peer) { p.FetchRate = gib / 4 }),
		peer("phone", 32, 32, client),
	}}
	list := placement.Options(placement.Model{Name: "qwen", Bytes: gib, Shape: layered, Want: 1}, s)
	if len(list) != 13 { // Attic alone could coordinate a group.
		t.Fatalf("%d options", len(list))
	}
	if o := list[0]; !o.Chosen || o.Name != "attic" || o.Kind != ways.CPU || o.Decode != 2 || o.Measured == nil || o.Measured.LoadMS != 900 || o.FetchSeconds != 0 {
		t.Errorf("%+v", o)
	}
	if o := list[1]; o.Chosen || o.Name != "den" || o.Kind != ways.OneGPU || o.Verdict != ways.Later || o.FetchSeconds != 4 || o.Reason != "no_holder" ||
		o.Text != "den does not hold the file (relay model pull qwen there)" {
		t.Errorf("%+v", o)
	}
	for _, o := range list {
		if o.Name == "phone" && (o.Verdict != ways.Never || o.FetchSeconds != 0) {
			t.Errorf("%+v", o)
		}
	}
}

// What keeps a peer from running anything comes before its memory, which it told before
// that; what it can never do is said beside it.
func TestOptionsOfAPeerThatIsUnable(t *testing.T) {
	for name, tc := range map[string]struct {
		change       func(*placement.Peer)
		reason, text string
		worst        ways.Verdict
	}{
		"gone":    {gone, "peer_gone", "attic does not answer", ways.Later},
		"paused":  {pauses, "no_capacity", "attic lends nothing for now: its owner plays a game", ways.Later},
		"cordons": {cordons, "cordoned", "attic is cordoned", ways.Later},
		"client":  {client, "not_allowed", "attic may not run whole models (its trust is client)", ways.Never},
	} {
		// It fits on the GPU; RAM has no room now; and there is one GPU.
		s := placement.Snapshot{Peers: []placement.Peer{peer("attic", 16, 2, card("CUDA0", 24, 24), tc.change)}}
		for _, o := range placement.Options(placement.Model{Name: "qwen", Shape: layered, Want: 1}, s) {
			verdict, text := tc.worst, tc.text
			if o.Kind == ways.GPUs && verdict < ways.Never {
				text += "; it has one GPU"
			}
			if o.Kind == ways.GPUs {
				verdict = ways.Never
			}
			if o.Verdict != verdict || o.Reason != tc.reason || o.Text != text {
				t.Errorf("%s: %s is %v, %s: %q, want %q", name, o.Kind, o.Verdict, o.Reason, o.Text, text)
			}
		}
	}
}

// What runs as its peer tells is shown with the speeds that are predicted of that split,
// and with the measured ones where it was seen; one that nobody can lay out has none.
func TestOptionsPredictWhatRuns(t *testing.T) {
	split := ways.Way{Kind: ways.Hybrid, Parts: []ways.Part{{Device: "CUDA0", Layers: 3, Bytes: 4 * gib}, {Device: ways.HostID, Layers: 8, Bytes: 9 * gib}}}
	otherwise := split
	otherwise.Parts = []ways.Part{{Device: "CUDA0", Layers: 4, Bytes: 5 * gib}, {Device: ways.HostID, Layers: 7, Bytes: 8 * gib}}
	saw := func(w ways.Way) func(*placement.Peer) {
		return func(p *placement.Peer) {
			p.Machine.Seen = []ways.Seen{{Kind: w.Kind, Parts: w.Parts, Decode: 3, Prefill: 70}}
		}
	}
	cpu := ways.Way{Kind: ways.CPU, Parts: []ways.Part{{Device: ways.HostID, Bytes: 13 * gib}}}
	told := split
	told.Decode, told.Prefill = 5, 6
	const seconds = 3/ways.ReferenceGPU + 8/ways.ReferenceRAM // For a token, by GiB.
	for name, tc := range map[string]struct {
		way             ways.Way
		change          func(*placement.Peer)
		decode, prefill float64
		guessed         bool
	}{
		"a split":          {split, placed, 1 / (seconds * gib), 1 / ((3/ways.ReferenceGPU/20 + 8/ways.ReferenceRAM/4) * gib), true},
		"another was seen": {split, saw(otherwise), 1 / (seconds * gib), 1 / ((3/ways.ReferenceGPU/20 + 8/ways.ReferenceRAM/4) * gib), true},
		"it was seen":      {split, saw(split), 3, 70, false},
		"on the CPU":       {cpu, placed, ways.ReferenceRAM / (11 * gib), 4 * ways.ReferenceRAM / (11 * gib), true},
		"it says itself":   {told, placed, 5, 6, false},
		"of other layers":  {ways.Way{Kind: ways.Hybrid, Parts: split.Parts[1:]}, placed, 0, 0, false},
		"nothing is known": {ways.Way{Kind: ways.Hybrid}, placed, 0, 0, false},
	} {
		q := peer("attic", 16, 0, ready, card("CUDA0", 8, 0), tc.change)
		q.Way = &tc.way
		o := placement.Options(placement.Model{Name: "qwen", Shape: layered, Want: 1}, placement.Snapshot{Peers: []placement.Peer{q}})[0]
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }
		if !o.Chosen || !o.Runs || o.Text != "runs" || !slices.Equal(o.Parts, tc.way.Parts) || !near(o.Decode, tc.decode) || !near(o.Prefill, tc.prefill) || o.Guessed != tc.guessed {
			t.Errorf("%s: %+v, want %g and %g tokens/s", name, o, tc.decode, tc.prefill)
		}
	}
}

// What was placed on the CPU, or in part, while the GPU had no room, or was busy,
// moves there once it has; a GPU that is hardly faster is not worth it, and nothing
// moves back.
func TestMovesToAGPUThatIsFree(t *testing.T) {
	cpu := ways.Way{Kind: ways.CPU, Parts: []ways.Part{{Device: ways.HostID, Layers: 11, Bytes: 13 * gib}}}
	// split has so many layers on the GPU.
	split := func(gpu int) ways.Way {
		return ways.Way{Kind: ways.Hybrid, Parts: []ways.Part{{Device: "CUDA0", Layers: gpu, Bytes: uint64(gpu)*gib + gib/2}, {Device: ways.HostID, Layers: 11 - gpu, Bytes: uint64(13-gpu) * gib}}}
	}
	on := func(way ways.Way, change ...func(*placement.Peer)) placement.Plan {
		p := peer("attic", 32, 16, append(list(ready, placed, func(p *placement.Peer) { p.Way = &way }), change...)...)
		return placement.Place(placement.Model{UID: "m", Name: "m", Shape: layered, Want: 1}, placement.Snapshot{Peers: []placement.Peer{p}})
	}
	rates := func(gpu, host float64) func(*placement.Peer) {
		return func(p *placement.Peer) { p.Machine.GPUs[0].Decode, p.Machine.Host.Decode = gpu, host }
	}
	loads := func(p *placement.Peer) { p.Ready = false }
	for name, tc := range map[string]struct {
		way    ways.Way
		change []func(*placement.Peer)
		want   ways.Kind
		text   string // Without an explanation why it stays on a CPU.
	}{
		"free":                     {cpu, list(card("CUDA0", 24, 24)), ways.OneGPU, "moves from the CPU to CUDA0 on attic, which is free now"},
		"two":                      {cpu, list(card("CUDA0", 8, 8), card("CUDA1", 8, 8)), ways.GPUs, "moves from the CPU to CUDA0 and CUDA1 on attic, which are free now"},
		"busy":                     {cpu, list(card("CUDA0", 24, 24), func(p *placement.Peer) { p.Machine.GPUs[0].Busy = "another program uses it" }), ways.CPU, "stays on attic"},
		"full":                     {cpu, list(card("CUDA0", 24, 0)), ways.CPU, "stays on attic"},
		"slow":                     {cpu, list(card("CUDA0", 24, 24), rates(1.2e10, 1e10)), ways.CPU, "stays on attic"},
		"half as fast again":       {cpu, list(card("CUDA0", 24, 24), rates(1.5e10, 1e10)), ways.OneGPU, "moves from the CPU to CUDA0 on attic, which is free now"},
		"it fell there":            {cpu, list(card("CUDA0", 24, 24), falls(ways.OneGPU, false), falls(ways.Hybrid, false)), ways.CPU, "stays on attic"},
		"split":                    {split(3), list(card("CUDA0", 24, 20)), ways.OneGPU, "moves all of it to CUDA0 on attic, which has room now"},
		"split, two":               {split(3), list(card("CUDA0", 12, 8), card("CUDA1", 8, 8)), ways.GPUs, "moves all of it to CUDA0 and CUDA1 on attic, which have room now"},
		"split, more of it":        {split(3), list(card("CUDA0", 14, 10)), ways.Hybrid, "moves more of it to CUDA0 on attic, which has room now"},
		"split, hardly more":       {split(8), list(card("CUDA0", 20, 10)), ways.Hybrid, "stays on attic"},
		"split, no room beside it": {split(8), list(card("CUDA0", 14, 5)), ways.Hybrid, "stays on attic"},
		"split, it fell on the GPU": {split(3), list(card("CUDA0", 24, 20), falls(ways.OneGPU, true), falls(ways.Hybrid, true)), ways.Hybrid,
			"stays on attic"},
		"split, and it loads":    {split(3), list(card("CUDA0", 24, 20), loads), ways.Hybrid, "stays on attic"},
		"split over one more":    {split(12), list(card("CUDA0", 24, 20)), ways.Hybrid, "stays on attic"}, // Of another definition.
		"nothing of it is known": {ways.Way{Kind: ways.Hybrid}, list(card("CUDA0", 24, 20)), ways.Hybrid, "stays on attic"},
	} {
		plan := on(tc.way, tc.change...)
		text, _, _ := strings.Cut(plan.Text, "; runs on cpu although")
		if len(plan.Orders) != 1 || plan.Orders[0].Way.Kind != tc.want || text != `model "m": `+tc.text {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

func list(change ...func(*placement.Peer)) []func(*placement.Peer) { return change }

// Nothing is unloaded for a model of which no speed is known.
func TestUnloadsNothingForAnUnknownSpeed(t *testing.T) {
	m := placement.Model{Name: "qwen", Shape: takes(8), Want: 1, Evict: true}
	plan := placement.Place(m, placement.Snapshot{Peers: []placement.Peer{peer("attic", 16, 9, idle(7))}})
	if want := `model "qwen": goes to attic (holds the file, 9.0 GiB free of 16.0 GiB lent); 8.0 GiB needed`; plan.Text != want {
		t.Errorf("says\n%s\nwant\n%s", plan.Text, want)
	}
}
