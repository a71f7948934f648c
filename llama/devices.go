package llama

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"relay/llama/gpu"
)

// Device is something that a model can be placed on.
type Device struct {
	// ID is the engine's own id, such as "CUDA0"; "RAM" for host memory.
	ID string
	// Name is the maker's name of it.
	Name string
	// Kind is DeviceGPU or DeviceRAM.
	Kind DeviceKind
	// Total and Free are in bytes. They mean nothing unless Known: unknown is
	// not zero.
	Total, Free uint64
	// Known says that Total and Free could be learnt.
	Known bool
	// UUID is the maker's own id of a GPU; "" where no tool tells.
	UUID string
	// Unified: the GPU has no memory of its own. Total and Free are of the host's
	// memory, which is lent once only.
	Unified bool
	// Foreign is what programs that are not relay's engines hold of a GPU's
	// memory, in bytes. It means nothing unless ForeignKnown.
	Foreign      uint64
	ForeignKnown bool
	// Unusable is why nothing can be placed on a GPU that is there, as part of a
	// sentence; "" where it can.
	Unusable string
	// Note is what else a person should know of it, as part of a sentence.
	Note string
}

// Own is what relay's own engines take of the GPUs, so that it is not held for
// foreign. The zero value says that none runs.
type Own = gpu.Own

// DeviceKind is gpu or ram.
type DeviceKind string

// The kinds of devices.
const (
	DeviceGPU DeviceKind = "gpu"
	DeviceRAM DeviceKind = "ram"
)

// HostDevice is this machine's memory as a device. It needs no engine.
func HostDevice() Device {
	d := Device{ID: "RAM", Name: "host memory", Kind: DeviceRAM}
	if total, available, err := HostMemory(); err == nil {
		d.Total, d.Free, d.Known = total, available, true
	}
	return d
}

// Devices lists the GPUs that the engine can use, and host memory last. Without
// a GPU there is host memory alone.
func (e Engine) Devices(ctx context.Context, own Own) ([]Device, error) {
	var list []Device
	if e.flags["--list-devices"] {
		out, err := ask(ctx, askTime, e.Server, "--list-devices")
		if err != nil {
			return nil, fmt.Errorf("%w: %s cannot list its devices: %s", ErrEngine, e.Server, whatItSaid(out, err))
		}
		list = parseDevices(out)
	}
	return append(list, HostDevice()), nil
}

var deviceID = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]{0,31}\z`)

// "  CUDA0: NVIDIA H200 (143771 MiB, 143130 MiB free)"
var deviceLine = regexp.MustCompile(`^\s+([A-Za-z][A-Za-z0-9_-]*): (.*) \((\d+) MiB, (\d+) MiB free\)\s*$`)

// parseDevices reads the output of --list-devices.
func parseDevices(out string) []Device {
	_, out, ok := strings.Cut(out, "Available devices:")
	if !ok {
		return nil
	}
	var list []Device
	for line := range strings.Lines(out) {
		m := deviceLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		d := Device{ID: m[1], Name: printable(m[2], 100), Kind: DeviceGPU}
		const mib = 1 << 20
		total, err1 := strconv.ParseUint(m[3], 10, 64)
		free, err2 := strconv.ParseUint(m[4], 10, 64)
		// Backends that cannot tell say 0, and some say more free than there is.
		if err1 == nil && err2 == nil && total > 0 && total < math.MaxUint64/mib {
			d.Total, d.Free, d.Known = total*mib, min(free, total)*mib, true
		}
		list = append(list, d)
	}
	return list
}
