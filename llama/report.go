package llama

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is what an engine said about itself while it loaded, and what relay
// measured.
type Report struct {
	// Devices are the GPUs that it was started with.
	Devices []string
	// Layers is the number of layers, the output layer counted, and Offloaded
	// how many of them are on GPUs and Remotes, the output layer counted with Remotes
	// wherever it is. Both are 0 where the engine did not say.
	Layers, Offloaded int
	// Buffers is the memory that the engine reserved, device by device.
	Buffers []Buffer
	// Load is the time from start to the first token.
	Load time.Duration
	// Sandbox is what is in force around the process.
	Sandbox SandboxStatus
	// Remotes is the memory that the engine reserved on each of the spec's Remotes, in
	// bytes. It is in Buffers too, under names such as "RPC0[127.0.0.1:9000]".
	Remotes []uint64
	// Guard says who else can reach the ports of an engine with Remotes; the zero value
	// for one without.
	Guard Guard
}

// Buffer is memory that an engine reserved on one device, in bytes.
type Buffer struct {
	// Device is the engine's name of it: "CPU", "CUDA0", "CUDA_Host", ….
	Device string
	// Model is for weights, Context for the cache of keys and values, Compute
	// for what is in between.
	Model, Context, Compute uint64
}

// HostID is the id of host memory as a device.
const HostID = "RAM"

// Used is the memory of this machine that the engine said it reserved, in bytes by
// the id of the device: all that is not on one of the GPUs that it was started with,
// and not on another machine, is HostID's.
// The program itself and what a GPU's driver takes are not in it.
func (r Report) Used() map[string]uint64 {
	used := map[string]uint64{}
	for _, b := range r.Buffers {
		if _, _, ok := remoteBuffer(b.Device); ok {
			continue
		}
		used[r.on(b.Device)] += b.Model + b.Context + b.Compute
	}
	return used
}

// GPU says whether the weights of at least one layer are on a GPU: the proof
// that the model does not quietly run on the CPU.
func (r Report) GPU() bool { return len(r.weighed()) > 0 }

// weighed are the GPUs on which there are weights, in the order of Devices.
func (r Report) weighed() (list []string) {
	for _, id := range r.Devices {
		if slices.ContainsFunc(r.Buffers, func(b Buffer) bool { return b.Model > 0 && r.on(b.Device) == id }) {
			list = append(list, id)
		}
	}
	return list
}

// strange says whether there are weights in a buffer that is neither on one of the
// GPUs nor known for host memory.
func (r Report) strange() bool {
	return slices.ContainsFunc(r.Buffers, func(b Buffer) bool { return b.Model > 0 && r.on(b.Device) == HostID && !onHost(b.Device) })
}

// remoteName is what an engine calls its buffers on an RPC server, by the number of
// the device there: RPC0[127.0.0.1:9000].
var remoteName = regexp.MustCompile(`\ARPC(\d{1,3})\[127\.0\.0\.1:(\d{1,5})\]\z`)

// remoteBuffer says on which port's RPC server a buffer of this name is, and on
// which of its devices.
func remoteBuffer(name string) (port, device int, ok bool) {
	m := remoteName.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	device, _ = strconv.Atoi(m[1]) // digits, and few
	port, _ = strconv.Atoi(m[2])
	return port, device, true
}

// remote is the memory on the RPC server behind a port, in bytes.
func (r Report) remote(port int) (sum uint64) {
	for _, b := range r.Buffers {
		if at, _, ok := remoteBuffer(b.Device); ok && at == port {
			sum += b.Model + b.Context + b.Compute
		}
	}
	return sum
}

// on is the id of the device on which a buffer of this name is. What a backend adds
// says how: CUDA0_Split, MTL0_Mapped, HTP0-REPACK; CUDA_Host is host memory that it
// reaches.
func (r Report) on(buffer string) string {
	for _, id := range r.Devices {
		// OpenCL calls its device GPUOpenCL and its buffers OpenCL.
		how, ok := strings.CutPrefix(buffer, strings.TrimPrefix(id, "GPU"))
		if ok && how != "_Host" && (how == "" || how[0] == '_' || how[0] == '-') {
			return id
		}
	}
	return HostID
}

// onHost says whether a buffer of this name is host memory for sure: CPU, CPU_Mapped,
// CPU_REPACK, AMX, and what GPUs can reach, such as CUDA_Host.
func onHost(buffer string) bool {
	return buffer == "CPU" || strings.HasPrefix(buffer, "CPU_") || strings.HasSuffix(buffer, "_Host") || buffer == "AMX" || buffer == "BLAS"
}

var (
	// load_tensors: offloaded 7/7 layers to GPU
	offloadLine = regexp.MustCompile(`offloaded (\d{1,6})/(\d{1,6}) layers to GPU`)
	// load_tensors:   CPU_Mapped model buffer size =     1.66 MiB
	bufferLine = regexp.MustCompile(`:\s+([A-Za-z][A-Za-z0-9_-]{0,40}(?:\[[0-9.]{7,15}:[0-9]{1,5}\])?)\s+(model|KV|RS|output|compute) buffer size =\s+([0-9.]{1,16}) MiB`)
)

// A reportReader picks the facts of a Report out of the lines of a log.
type reportReader struct {
	layers, offloaded int
	buffers           []Buffer
}

func (r *reportReader) line(line string) {
	if m := offloadLine.FindStringSubmatch(line); m != nil {
		r.offloaded, _ = strconv.Atoi(m[1]) // digits, and few
		r.layers, _ = strconv.Atoi(m[2])
	}
	m := bufferLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	mib, err := strconv.ParseFloat(m[3], 64)
	if err != nil || mib > 1<<40 {
		return
	}
	bytes := uint64(math.Round(mib * (1 << 20)))
	b := r.buffer(m[1])
	if b == nil {
		return
	}
	switch m[2] {
	case "model":
		b.Model += bytes
	case "compute":
		b.Compute += bytes
	default: // what grows with context and slots
		b.Context += bytes
	}
}

// buffer finds the entry of a device or adds one; nil where there are too many
// for any engine.
func (r *reportReader) buffer(device string) *Buffer {
	for i := range r.buffers {
		if r.buffers[i].Device == device {
			return &r.buffers[i]
		}
	}
	if len(r.buffers) == 64+maxRemotes*maxRemoteDevices {
		return nil
	}
	r.buffers = append(r.buffers, Buffer{Device: device})
	return &r.buffers[len(r.buffers)-1]
}
