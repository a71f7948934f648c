package gpu

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The places of AMD's two tools: in PATH, and where ROCm puts them.
var (
	rocmSMI = []string{"rocm-smi", "/opt/rocm/bin/rocm-smi"}
	amdSMI  = []string{"amd-smi", "/opt/rocm/bin/amd-smi"}
)

// askAMD asks rocm-smi for its cards, which takes one call, and where it is not
// there or fails amd-smi, which replaces it. Never run on a machine with such a
// GPU: it goes by the formats that are documented.
func askAMD(ctx context.Context, ask Ask) ([]card, error) {
	program, out, err := askFirst(ctx, ask, rocmSMI, "--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--json")
	if cards := parseROCm(out); err == nil && cards != nil {
		return cards, nil
	}
	newer, out2, err2 := askFirst(ctx, ask, amdSMI, "metric", "--mem-usage", "--json")
	if newer != "" && err2 == nil {
		names, err := ask(ctx, newer, "static", "--asic", "--json")
		if err != nil {
			names = ""
		}
		return parseAMD(out2, names), nil
	}
	switch {
	case newer != "":
		return nil, fmt.Errorf("amd-smi: %s", saidLine(out2, err2))
	case program != "" && err != nil:
		return nil, fmt.Errorf("rocm-smi: %s", saidLine(out, err))
	}
	return nil, nil
}

// parseROCm reads {"card0": {"VRAM Total Memory (B)": "…", …}, …}. The names of
// values change from release to release in their case.
func parseROCm(out string) []card {
	var all map[string]json.RawMessage
	if !decode(out, &all) {
		return nil
	}
	var cards []card
	for key, raw := range all {
		number, ok := strings.CutPrefix(strings.ToLower(key), "card")
		index, err := strconv.Atoi(number)
		var values map[string]any
		if !ok || err != nil || index < 0 || index > math.MaxInt16 || json.Unmarshal(raw, &values) != nil {
			continue
		}
		c := card{maker: amd, index: index}
		var hasUsed bool
		for name, value := range values {
			text := strings.TrimSpace(fmt.Sprint(value))
			switch strings.ToLower(name) {
			case "vram total memory (b)":
				c.total, _ = bytesOf(text)
			case "vram total used memory (b)":
				c.used, hasUsed = bytesOf(text)
			case "card series":
				c.name = named(text)
			case "unique id":
				if strings.HasPrefix(text, "0x") {
					c.uuid = "GPU-" + strings.TrimPrefix(text, "0x")
				}
			}
		}
		cards = append(cards, c.settled(hasUsed))
	}
	return inOrder(cards)
}

// parseAMD reads the answers of amd-smi to `metric --mem-usage` and `static
// --asic`: a list, or an object with the list in "gpu_data".
func parseAMD(metric, static string) []card {
	var cards []card
	for _, e := range amdList(metric) {
		usage, _ := e["mem_usage"].(map[string]any)
		index, ok := e["gpu"].(float64)
		if !ok || index < 0 || index > math.MaxInt16 {
			continue
		}
		c := card{maker: amd, index: int(index)}
		var hasUsed bool
		c.total, _ = amdFigure(usage["total_vram"])
		c.used, hasUsed = amdFigure(usage["used_vram"])
		cards = append(cards, c.settled(hasUsed))
	}
	for _, e := range amdList(static) {
		index, ok := e["gpu"].(float64)
		asic, _ := e["asic"].(map[string]any)
		i := slices.IndexFunc(cards, func(c card) bool { return ok && float64(c.index) == index })
		if i < 0 {
			continue
		}
		name, _ := asic["market_name"].(string)
		cards[i].name = named(name)
		if serial, _ := asic["asic_serial"].(string); strings.HasPrefix(serial, "0x") {
			cards[i].uuid = "GPU-" + strings.ToLower(strings.TrimPrefix(serial, "0x"))
		}
	}
	return inOrder(cards)
}

func amdList(out string) (list []map[string]any) {
	if decode(out, &list) {
		return list
	}
	var wrapped struct {
		List []map[string]any `json:"gpu_data"`
	}
	decode(out, &wrapped)
	return wrapped.List
}

// amdFigure reads {"value": 24560, "unit": "MB"}, where MB are MiB.
func amdFigure(v any) (bytes uint64, ok bool) {
	m, _ := v.(map[string]any)
	n, ok := m["value"].(float64)
	unit, _ := m["unit"].(string)
	scale := map[string]float64{"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[unit]
	if n *= scale; !ok || scale == 0 || n < 0 || n > 1<<50 {
		return 0, false
	}
	return uint64(n), true
}

// bytesOf reads a number of bytes. What no machine has is not known.
func bytesOf(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > 1<<50 {
		return 0, false
	}
	return n, true
}

// named is the name of a card, or "" where the tool has but a number for it.
func named(text string) string {
	if text == "N/A" || strings.HasPrefix(text, "0x") {
		return ""
	}
	return text
}

// settled is the card with figures that fit one another.
func (c card) settled(hasUsed bool) card {
	c.used = min(c.used, c.total)
	if c.inUse = hasUsed && c.total > 0; !c.inUse {
		c.used = 0
		return c
	}
	c.free = c.total - c.used
	return c
}

// inOrder sorts cards by the tool's count, each once.
func inOrder(cards []card) []card {
	slices.SortStableFunc(cards, func(a, b card) int { return cmp.Compare(a.index, b.index) })
	cards = slices.CompactFunc(cards, func(a, b card) bool { return a.index == b.index })
	return cards[:min(len(cards), maxCards)]
}

// decode reads the first JSON value of an answer. A few lines of warnings may
// stand before it.
func decode(out string, into any) bool {
	const most = 16
	for range most {
		start := strings.IndexAny(out, "{[")
		if start < 0 {
			return false
		}
		if json.NewDecoder(strings.NewReader(out[start:])).Decode(into) == nil {
			return true
		}
		_, rest, more := strings.Cut(out[start:], "\n")
		if !more {
			return false
		}
		out = rest
	}
	return false
}
