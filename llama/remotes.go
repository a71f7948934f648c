package llama

import (
	"fmt"
	"slices"
	"strings"
)

// Remote is one RPC server that a coordinator's engine computes on.
type Remote struct {
	// Layers is how many layers go to each device that the server exports, in the
	// order of RPCSpec.Devices; each gets at least one.
	Layers []int
}

const (
	// maxRemotes is how many RPC servers one engine may have.
	maxRemotes = 64
	// maxRemoteDevices is how many devices one of them may export.
	maxRemoteDevices = 16
)

// layers is how many layers r gets.
func (r Remote) layers() int {
	sum := 0
	for _, n := range r.Layers {
		sum += n
	}
	return sum
}

// remoteLayers is how many layers go to RPC servers.
func (s Spec) remoteLayers() int {
	sum := 0
	for _, r := range s.Remotes {
		sum += r.layers()
	}
	return sum
}

// checkRemotes says what is wrong with Remotes and what goes with them.
func (s Spec) checkRemotes() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrSpec}, args...)...)
	}
	if len(s.Remotes) == 0 {
		return nil
	}
	if len(s.Remotes) > maxRemotes {
		return bad("%d RPC servers, %d are the most", len(s.Remotes), maxRemotes)
	}
	for i, r := range s.Remotes {
		if len(r.Layers) == 0 || len(r.Layers) > maxRemoteDevices {
			return bad("RPC server %d exports %d devices", i, len(r.Layers))
		}
		for _, n := range r.Layers {
			if n < 1 || n > maxLayers {
				return bad("%d layers on a device of RPC server %d", n, i)
			}
		}
	}
	own := s.GPULayers - s.remoteLayers()
	switch {
	case slices.ContainsFunc(s.Devices, func(d string) bool { return strings.HasPrefix(d, "RPC") }):
		return bad("a GPU that is called as RPC servers are: %q", s.Devices)
	case s.Connected == nil:
		return bad("nobody takes the connections to its RPC servers")
	case s.CPUExperts != 0:
		return bad("experts in host memory beside RPC servers")
	case len(s.Devices) == 0 && own != 1:
		return bad("%d layers on GPUs and RPC servers where RPC servers have %d and the output is one more", s.GPULayers, s.remoteLayers())
	case own < 1:
		return bad("%d layers on GPUs and RPC servers, and %d of them on RPC servers", s.GPULayers, s.remoteLayers())
	case len(s.Devices) > 1 && len(s.Split) == 0:
		return bad("no split over %d devices beside RPC servers", len(s.Devices))
	}
	return nil
}

// outputTensors is a pattern of the names of what belongs to the output layer, and
// of nothing that is in a layer: "blk.3.attn_output.weight" has one of the words as
// well. Where a model uses its input embeddings for the output too, the output
// layer is a copy under their name.
const outputTensors = `^(output|token_embd|cls|dense_)`

// noTensors is a pattern that no tensor's name has.
const noTensors = `^none$`

// remotePlacement adds what says which layers go to which RPC server, with ports as
// those of Remotes. RPC devices come first, so that the output and all that is asked
// for at the end stay here: the output layer is the last one, and counted with the
// last device. Without a GPU that would be an RPC server's: it is moved to host
// memory by name.
//
// There always is such a move, if only of nothing: without any, several devices have
// the engine keep four copies of all that goes into a computation, which nobody
// has counted.
func (e Engine) remotePlacement(s Spec, ports []int, add func(...string)) {
	var servers, devices, split []string
	last := 0
	for i, r := range s.Remotes {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", ports[i]))
		for _, n := range r.Layers {
			devices = append(devices, fmt.Sprintf("RPC%d", len(devices)))
			split = append(split, fmt.Sprint(n))
			last = n
		}
	}
	own := s.Split
	if len(own) == 0 && len(s.Devices) == 1 {
		own = []int{s.GPULayers - s.remoteLayers()}
	}
	for _, n := range own {
		split = append(split, fmt.Sprint(n))
	}
	moved := noTensors
	if len(s.Devices) == 0 {
		split[len(split)-1] = fmt.Sprint(last + 1)
		moved = outputTensors
	}
	devices = append(devices, s.Devices...)
	add("--rpc", strings.Join(servers, ","), "--device", strings.Join(devices, ","), "--n-gpu-layers", fmt.Sprint(s.GPULayers),
		"--split-mode", "layer", "--tensor-split", strings.Join(split, ","), "--override-tensor", moved+"=CPU")
	if s.Projector == "" {
		return
	}
	if len(s.Devices) > 0 && e.flags["--mmproj-device"] {
		add("--mmproj-device", s.Devices[0])
	} else if e.flags["--no-mmproj-offload"] {
		add("--no-mmproj-offload") // or else to an RPC server, as if it were a GPU of this machine
	}
}
