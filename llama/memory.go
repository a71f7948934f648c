package llama

import (
	"fmt"
	"math"

	"github.com/shirou/gopsutil/v4/mem"
)

// HostMemory is the RAM that processes started here may use: total, and
// available without pushing others out, in bytes. On Linux it honours the
// limits of the cgroups that this process is in, and does not count what is set
// aside as huge pages, which engines do not ask for.
func HostMemory() (total, available uint64, err error) {
	r, err := ReadHostMemory()
	return r.Total, r.Available, err
}

// RAM is this machine's memory, in bytes.
type RAM struct {
	// Total and Available are as of HostMemory.
	Total, Available uint64
	// Installed is all that the system has, and HugePages what of it is set
	// aside as such.
	Installed, HugePages uint64
	// Limit is the tightest limit of the cgroups around this process; 0 where
	// none is below what the system has.
	Limit uint64
}

// ReadHostMemory reads it now.
func ReadHostMemory() (RAM, error) {
	m, err := mem.VirtualMemory()
	if err != nil {
		return RAM{}, fmt.Errorf("%w: this machine's memory cannot be read: %w", ErrEngine, err)
	}
	limit, left, limited := cgroupMemory()
	if !limited {
		limit, left = math.MaxUint64, math.MaxUint64
	}
	return ram(m, limit, left), nil
}

func ram(m *mem.VirtualMemoryStat, limit, left uint64) RAM {
	r := RAM{Installed: m.Total, HugePages: min(m.HugePagesTotal*m.HugePageSize, m.Total)}
	r.Total = m.Total - r.HugePages
	// Linux leaves huge pages out of what is available already.
	r.Available = min(m.Available, r.Total)
	if limit < r.Total {
		r.Limit, r.Total = limit, limit
		r.Available = min(r.Available, left)
	}
	r.Available = min(r.Available, r.Total)
	return r
}
