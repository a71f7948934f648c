package llama

import (
	"fmt"

	"github.com/shirou/gopsutil/v4/process"
)

// Usage is the host memory of an engine's process, in bytes.
type Usage struct {
	// RSS is what is resident, mapped files included.
	RSS uint64
	// Private is the part that is the process's own: what ending it gives back
	// at once. Where the system does not tell it, it is RSS.
	Private uint64
}

// Usage looks at the memory of the engine's process now. The error is ErrEngine
// where it cannot be seen, above all because the process has ended.
func (p *Process) Usage() (Usage, error) {
	u, err := usageOf(p.PID())
	if err == nil {
		select {
		case <-p.done: // its number may be another's by now
			err = fmt.Errorf("%w: it has ended", ErrEngine)
		default:
		}
	}
	if err != nil {
		return Usage{}, err
	}
	return u, nil
}

func usageOf(pid int) (Usage, error) {
	unseen := func(err error) (Usage, error) {
		return Usage{}, fmt.Errorf("%w: the memory of its process cannot be seen: %w", ErrEngine, err)
	}
	if pid <= 0 {
		return unseen(fmt.Errorf("process %d", pid))
	}
	m, err := (&process.Process{Pid: int32(pid)}).MemoryInfo()
	if err != nil {
		return unseen(err)
	}
	return Usage{RSS: m.RSS, Private: private(pid, m.RSS)}, nil
}
