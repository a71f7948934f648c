package llama

import (
	"math"
	"testing"

	"github.com/shirou/gopsutil/v4/mem"
)

func TestMemoryThatMayBeUsed(t *testing.T) {
	const gib, none = 1 << 30, math.MaxUint64
	for _, c := range []struct {
		name        string
		m           mem.VirtualMemoryStat
		limit, left uint64
		want        RAM
	}{
		{"plain", mem.VirtualMemoryStat{Total: 16 * gib, Available: 10 * gib}, none, none, RAM{Total: 16 * gib, Available: 10 * gib, Installed: 16 * gib}},
		{"huge pages", mem.VirtualMemoryStat{Total: 16 * gib, Available: 7 * gib, HugePagesTotal: 4096, HugePagesFree: 4096, HugePageSize: 2 << 20}, none, none,
			RAM{Total: 8 * gib, Available: 7 * gib, Installed: 16 * gib, HugePages: 8 * gib}},
		{"limited", mem.VirtualMemoryStat{Total: 16 * gib, Available: 10 * gib}, 4 * gib, 3 * gib, RAM{Total: 4 * gib, Available: 3 * gib, Installed: 16 * gib, Limit: 4 * gib}},
		{"limited, and others took it", mem.VirtualMemoryStat{Total: 16 * gib, Available: gib}, 4 * gib, 3 * gib, RAM{Total: 4 * gib, Available: gib, Installed: 16 * gib, Limit: 4 * gib}},
		{"a limit above all there is", mem.VirtualMemoryStat{Total: 16 * gib, Available: 10 * gib}, 64 * gib, 60 * gib, RAM{Total: 16 * gib, Available: 10 * gib, Installed: 16 * gib}},
		{"nonsense", mem.VirtualMemoryStat{Total: gib, Available: 2 * gib, HugePagesTotal: 1 << 40, HugePageSize: 1 << 20}, none, none, RAM{Installed: gib, HugePages: gib}},
	} {
		if got := ram(&c.m, c.limit, c.left); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
