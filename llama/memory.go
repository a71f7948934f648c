package llama

import (
	"fmt"

	"github.com/shirou/gopsutil/v4/mem"
)

// HostMemory is the RAM that processes started here may use: total, and
// available without pushing others out, in bytes. On Linux it honours the
// limits of the cgroups that this process is in.
func HostMemory() (total, available uint64, err error) {
	m, err := mem.VirtualMemory()
	if err != nil {
		return 0, 0, fmt.Errorf("%w: this machine's memory cannot be read: %w", ErrEngine, err)
	}
	total, available = m.Total, m.Available
	if limit, left, ok := cgroupMemory(); ok && limit < total {
		total, available = limit, min(available, left)
	}
	return total, min(available, total), nil
}
