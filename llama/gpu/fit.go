package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// fit makes one list of what the engine lists and what the tools show.
func (p Probe) fit(cards []card, processes []process) []GPU {
	listed := slices.DeleteFunc(slices.Clone(p.Listed), func(l Listed) bool { return helpsCPU(l.ID) })
	same := p.duplicates(listed)
	found, hidden := p.pair(listed, same, cards)
	var list []GPU
	for i, l := range listed {
		g := GPU{ID: l.ID, Name: l.Name, Total: l.Total, Free: l.Free, Known: l.Known}
		if twin := same[i]; twin >= 0 {
			g.Unusable = "it is the same GPU as " + listed[twin].ID
			list = append(list, g)
			continue
		}
		var c card
		n, sure := found[i]
		if sure {
			// Whoever hides a GPU from CUDA does not want it used by other ways.
			c, g.Unusable = cards[n], hides(hidden[n])
			g.UUID = c.uuid
		}
		switch {
		case p.unified(l, c, sure):
			g = p.ofHost(g, c, sure, processes)
		case sure && c.inUse:
			if !g.Known {
				g.Total, g.Known = c.total, true
			}
			// The engine counts what it took itself as it looked.
			g.Free = min(c.free, g.Total)
			g.Foreign, g.ForeignKnown = c.used-min(c.used, p.held(l.ID, c.uuid, processes)), true
		}
		list = append(list, g)
	}
	return append(list, p.rest(listed, same, found, hidden, cards)...)
}

// helpsCPU: the engine lists what speeds up the CPU among its devices.
func helpsCPU(id string) bool {
	switch backend(id) {
	case "BLAS", "ZenDNN", "zDNN":
		return true
	}
	return false
}

// backend is the engine's id without its number: "CUDA" of "CUDA0".
func backend(id string) string { return strings.TrimRight(id, "0123456789") }

// openCL is how the engine calls a GPU that it reaches so; it has but one.
const openCL = "GPUOpenCL"

// general backends reach GPUs of any maker, better ones those of their own.
func general(id string) int {
	return slices.Index([]string{"SYCL", "Vulkan", openCL}, backend(id))
}

// duplicates says for each listed GPU which other one is the same one, reached
// in a better way; -1 for none. A build with both CUDA and Vulkan lists each
// twice, and would have its memory lent twice.
func (p Probe) duplicates(listed []Listed) []int {
	same := slices.Repeat([]int{-1}, len(listed))
	taken := map[string]bool{}
	for i, l := range listed {
		if general(l.ID) < 0 {
			continue
		}
		for j, better := range listed {
			key := fmt.Sprint(backend(l.ID), " ", j)
			if general(better.ID) < general(l.ID) && same[j] < 0 && !taken[key] && alike(l.Name, better.Name) && (near(l, better) || p.shares(l) || p.shares(better)) {
				same[i], taken[key] = j, true
				break
			}
		}
	}
	return same
}

// near: the totals of one GPU differ a little between ways to ask, but for those
// without memory of their own.
func near(a, b Listed) bool {
	return !a.Known || !b.Known || nearly(a.Total, b.Total)
}

func nearly(a, b uint64) bool { return max(a, b)-min(a, b) <= max(a, b)/10 }

// plain is a GPU's name as it can be compared: without its maker, marks, case
// and the driver in brackets.
func plain(name string) string {
	name, _, _ = strings.Cut(name, " (")
	name = strings.ToLower(name)
	for _, noise := range []string{"(tm)", "(r)", "nvidia ", "amd ", "intel "} {
		name = strings.ReplaceAll(name, noise, "")
	}
	return strings.TrimSuffix(strings.TrimSpace(name), " graphics")
}

// alike: two names of what may be one GPU.
func alike(a, b string) bool { return plain(a) == plain(b) && plain(a) != "" }

// mayBe says whether a listed GPU may be the card by all that is known of both.
func mayBe(l Listed, c card) bool {
	switch b := backend(l.ID); {
	case c.maker == nvidia && (b == "ROCm" || b == "MTL"), c.maker == amd && (b == "CUDA" || b == "MTL"), c.divided, c.trouble != "":
		return false
	case c.name != "" && !alike(l.Name, c.name):
		return false
	}
	return !l.Known || c.total == 0 || nearly(l.Total, c.total) || c.name != "" && small(l, c)
}

// small: of some GPUs that use the host's memory the tool shows only the part
// that is set aside for them.
func small(l Listed, c card) bool { return l.Known && c.total > 0 && c.total < l.Total/2 }

// pair finds which listed GPU is which card, where that is sure: by the order
// that the runtime keeps, if all of the list agrees with it in name and memory;
// else by name and memory, where just one fits one. found has the card's place
// in cards by the GPU's place in the list; hidden, by the card's, which variable
// keeps its maker's runtime from it.
func (p Probe) pair(listed []Listed, same []int, cards []card) (found map[int]int, hidden map[int]string) {
	found, hidden = map[int]int{}, map[int]string{}
	seen := map[maker]shown{nvidia: visibleNvidia(of(cards, nvidia), p.Env), amd: visibleAMD(of(cards, amd), p.Env)}
	for n, c := range cards {
		if why := seen[c.maker].hidden[c.index]; why != "" {
			hidden[n] = why
		}
	}
	var cuda []int
	for i, l := range listed {
		if backend(l.ID) == "CUDA" {
			cuda = append(cuda, i)
		}
	}
	if s := seen[nvidia]; s.ordered && allMay(listed, cuda, s.cards) {
		for n, i := range cuda {
			found[i] = slices.IndexFunc(cards, s.cards[n].is)
		}
	}
	single(found, func(i, n int) bool {
		byMaker := general(listed[i].ID) < 0
		return same[i] < 0 && (!byMaker || hidden[n] == "") && mayBe(listed[i], cards[n])
	}, len(listed), len(cards))
	return found, hidden
}

func (c card) is(other card) bool { return c.maker == other.maker && c.index == other.index }

func of(cards []card, m maker) []card {
	return slices.DeleteFunc(slices.Clone(cards), func(c card) bool { return c.maker != m })
}

func allMay(listed []Listed, indexes []int, cards []card) bool {
	if len(indexes) != len(cards) {
		return false
	}
	for n, i := range indexes {
		if !mayBe(listed[i], cards[n]) {
			return false
		}
	}
	return true
}

// single pairs those not paired yet that fit just one another.
func single(found map[int]int, fits func(i, n int) bool, listed, cards int) {
	taken := map[int]bool{}
	for _, n := range found {
		taken[n] = true
	}
	mates, rivals := make([][]int, listed), make([]int, cards)
	for i := range listed {
		if _, done := found[i]; done {
			continue
		}
		for n := range cards {
			if !taken[n] && fits(i, n) {
				mates[i] = append(mates[i], n)
				rivals[n]++
			}
		}
	}
	for i, m := range mates {
		if len(m) == 1 && rivals[m[0]] == 1 {
			found[i] = m[0]
		}
	}
}

// unified says whether a listed GPU uses the host's memory.
func (p Probe) unified(l Listed, c card, sure bool) bool {
	switch {
	case backend(l.ID) == "MTL":
		return strings.HasPrefix(l.Name, "Apple")
	case backend(l.ID) == "CUDA" && p.Integrated, sure && (c.unified || small(l, c)), p.shares(l):
		return true
	case sure:
		return false
	}
	for _, twin := range p.Listed {
		if p.shares(twin) && alike(l.Name, twin.Name) && !slices.ContainsFunc(p.Listed, func(o Listed) bool {
			return backend(o.ID) == "Vulkan" && alike(o.Name, l.Name) && !p.shares(o)
		}) {
			return true
		}
	}
	// Windows lets such a GPU have half of the host's memory.
	return l.Known && p.HostTotal > 0 && l.Total >= p.HostTotal/5*2 && integrated(l.Name)
}

// shares: Vulkan says of a GPU that its memory is the host's; those of phones and
// their like have no other.
func (p Probe) shares(l Listed) bool {
	if strings.Contains(strings.ToLower(l.Name), "adreno") {
		return true
	}
	number, ok := strings.CutPrefix(l.ID, "Vulkan")
	if !ok {
		return false
	}
	for line := range strings.Lines(p.Said) {
		if strings.HasPrefix(line, "ggml_vulkan: "+number+" = ") && strings.Contains(line, "| uma: 1 |") {
			return true
		}
	}
	return false
}

// integratedName are names of GPUs that are part of a processor: of Intel's, those
// that are not called after a card's model, such as Arc A770; of AMD's, those
// without a number, with that of a processor's such as 780M or 8060S, and Vega with
// at most 11 units.
var integratedName = regexp.MustCompile(`^((u?hd|iris|iris xe|iris pro|iris plus)( graphics)?( p?\d\w*)?|arc|arc 1\d\d[vt]( gpu)?|graphics|` +
	`radeon( \d{3}m| 80[456]0s| vega \d| vega 1[01]| r\d)?|custom gpu \w+|(nvidia )?(tegra|orin|thor|gb10)\b.*|mali.*|powervr.*|v3d.*|videocore.*)$`)

func integrated(name string) bool { return integratedName.MatchString(plain(name)) }

// ofHost is the GPU with the host's memory for its own.
func (p Probe) ofHost(g GPU, c card, sure bool, processes []process) GPU {
	g.Unified = true
	if p.HostTotal > 0 {
		if !g.Known {
			g.Total, g.Free, g.Known = p.HostTotal, p.HostFree, true
			if backend(g.ID) == "MTL" { // What macOS lets a GPU have.
				g.Total = p.HostTotal / 4 * 3
			}
		}
		g.Total = min(g.Total, p.HostTotal)
		g.Free = min(g.Free, p.HostFree, g.Total)
	}
	if !sure {
		return g
	}
	for _, other := range processes {
		if other.uuid == c.uuid && other.known {
			g.ForeignKnown = true
			if !slices.Contains(p.Own.PIDs, other.pid) {
				g.Foreign += other.bytes
			}
		}
	}
	return g
}

// perEngine is what a driver keeps on a GPU for a process that computes there: its
// context, its kernels, the buffers of libraries. It is 250 to 600 MiB with CUDA.
const perEngine = 640 << 20

// held is what relay's own engines hold of a card, at most where no tool shows it.
func (p Probe) held(id, uuid string, processes []process) (bytes uint64) {
	visible := false
	for _, own := range processes {
		if own.known && slices.Contains(p.Own.PIDs, own.pid) {
			visible = true
			if own.uuid == uuid {
				bytes += own.bytes
			}
		}
	}
	if visible {
		return bytes
	}
	engines := max(p.Own.Engines[id], 0)
	if p.Own.Bytes[id] > 0 {
		engines = max(engines, 1)
	}
	return p.Own.Bytes[id] + uint64(engines)*perEngine
}

// rest are the cards that the engine cannot use, and why.
func (p Probe) rest(listed []Listed, same []int, found map[int]int, hidden map[int]string, cards []card) (list []GPU) {
	paired := map[int]bool{}
	for _, n := range found {
		paired[n] = true
	}
	for n, c := range cards {
		if paired[n] || hidden[n] == "" && mayBeListed(listed, same, found, c) {
			continue
		}
		g := GPU{ID: fmt.Sprint(c.maker, c.index), UUID: c.uuid, Name: c.name, Total: c.total, Free: c.free, Known: c.inUse}
		if !g.Known {
			g.Total = 0
		}
		if g.Name == "" {
			g.Name = "a GPU of " + strings.ToUpper(string(c.maker))
		}
		switch {
		case hidden[n] != "":
			g.Unusable = hides(hidden[n])
		case p.NoEngine != "":
			g.Unusable = p.NoEngine
		case c.trouble != "":
			g.Unusable = "nvidia-smi says of it: " + c.trouble
		case c.divided:
			g.Unusable = "it is divided by MIG, and the engine lists none of its parts"
		default:
			g.Unusable = p.unlisted(listed, c.maker)
		}
		list = append(list, g)
	}
	return list
}

func hides(variable string) string {
	if variable == "" {
		return ""
	}
	return variable + " hides it"
}

// mayBeListed: one of the listed GPUs of which it is not sure which card it is
// may be this one.
func mayBeListed(listed []Listed, same []int, found map[int]int, c card) bool {
	for i, l := range listed {
		if _, sure := found[i]; sure || same[i] >= 0 {
			continue
		}
		if c.divided && backend(l.ID) == "CUDA" && strings.Contains(l.Name, "MIG") || mayBe(l, c) {
			return true
		}
	}
	return false
}

// unlisted is why the engine does not list a card of this maker.
func (p Probe) unlisted(listed []Listed, m maker) string {
	runtime, init := "CUDA", "ggml_cuda_init: failed to initialize CUDA: "
	if m == amd {
		runtime, init = "ROCm", "ggml_cuda_init: failed to initialize ROCm: "
	}
	if slices.ContainsFunc(listed, func(l Listed) bool { return backend(l.ID) == runtime }) {
		return "the engine does not list it"
	}
	if _, why, failed := strings.Cut(p.Said, init); failed {
		why, _, _ = strings.Cut(why, "\n")
		return fmt.Sprintf("%s does not start: %s", runtime, strings.TrimSpace(why))
	}
	if strings.Contains(p.Said, "loaded "+runtime+" backend") {
		return "the engine does not list it"
	}
	return "this build of llama.cpp has no " + runtime
}
