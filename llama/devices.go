package llama

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

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

// Listing is the engine's own list of what it can compute on besides the CPU.
// The zero value has nothing, as where there is no engine.
type Listing struct {
	tools *tools
	asked bool // There is an engine.
	gpus  []gpu.Listed
	said  string // All that the engine wrote.
	none  string // Why there is no list.
}

// List asks the engine for its list. That takes seconds on a machine with
// several GPUs, and some memory of each while it lasts: the list stays the same
// until the hardware or the build changes. was is the list before, or the zero
// value; where there is an error it stands.
func (e Engine) List(ctx context.Context, was Listing) (Listing, error) {
	if was.tools == nil {
		was.tools = newTools()
	}
	if !e.flags["--list-devices"] {
		return Listing{tools: was.tools, asked: true, none: "this build of llama.cpp does not list what it can use"}, nil
	}
	out, err := was.tools.ask(ctx, askTime, e.Server, "--list-devices")
	if err != nil {
		return was, fmt.Errorf("%w: %s cannot list its devices: %s", ErrEngine, e.Server, whatItSaid(out, err))
	}
	return Listing{tools: was.tools, asked: true, gpus: parseDevices(out), said: out}, nil
}

// toolTime is how long a maker's tool may take to answer.
const toolTime = 8 * time.Second

// Look looks at the devices now: the GPUs of the list in its order, then those
// that are there and cannot be used, and host memory last. Which memory is in
// use, and by whom, it asks the makers' tools, in well under a second where they
// work; one that does not answer in its time is left alone for a minute. troubles are
// tools that are there and do not work, a sentence part each, in any order. They come
// back only when they are others than at the last look.
func (l Listing) Look(ctx context.Context, own Own) (devices []Device, troubles []string) {
	host := HostDevice()
	p := gpu.Probe{
		Ask: l.tools.askMaker, Env: os.LookupEnv, Listed: l.gpus, Said: l.said, NoEngine: l.none, HostTotal: host.Total, HostFree: host.Free,
		Integrated: tegra(os.DirFS("/")), Own: own,
	}
	if !l.asked {
		p.NoEngine = "there is no llama.cpp here that could use it"
	}
	gpus, troubles := p.Look(ctx)
	for _, g := range gpus {
		devices = append(devices, Device{
			ID: printable(g.ID, 40), Name: printable(g.Name, 100), Kind: DeviceGPU, Total: g.Total, Free: g.Free, Known: g.Known,
			UUID: printable(g.UUID, 60), Unified: g.Unified, Foreign: g.Foreign, ForeignKnown: g.ForeignKnown,
			Unusable: printable(g.Unusable, 200),
		})
	}
	for i, t := range troubles {
		troubles[i] = printable(t, 200)
	}
	return append(devices, host), l.tools.news(troubles)
}

// tegra says whether this is one of NVIDIA's systems on a chip, whose GPU has no
// memory of its own; many have no nvidia-smi that could tell.
func tegra(root fs.FS) bool {
	data, err := fs.ReadFile(root, "proc/device-tree/compatible")
	return err == nil && strings.Contains(string(data), "nvidia,tegra")
}

var deviceID = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]{0,31}\z`)

// "  CUDA0: NVIDIA H200 (143771 MiB, 143130 MiB free)"
var deviceLine = regexp.MustCompile(`^\s+([A-Za-z][A-Za-z0-9_-]*): (.*) \((\d+) MiB, (\d+) MiB free\)\s*$`)

// parseDevices reads the output of --list-devices.
func parseDevices(out string) []gpu.Listed {
	_, out, ok := strings.Cut(out, "Available devices:")
	if !ok {
		return nil
	}
	var list []gpu.Listed
	for line := range strings.Lines(out) {
		m := deviceLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		d := gpu.Listed{ID: m[1], Name: printable(m[2], 100)}
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
