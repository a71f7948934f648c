package llama

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gpuDevices are the devices that drivers of GPUs have in dev: NVIDIA's, also
// those of its systems on a chip, the kernel's own, AMD's, that of Windows under
// Linux, and Qualcomm's.
func gpuDevices(dev string) []string {
	var all []string
	for _, pattern := range []string{"nvidia*", "nvmap", "nvhost-*", "nvgpu", "dri", "kfd", "dxg", "kgsl-3d0"} {
		paths, err := filepath.Glob(filepath.Join(dev, pattern))
		if err != nil {
			continue // the patterns are right
		}
		all = append(all, paths...)
	}
	return all
}

// wakeGPU is wakeNVIDIA by relay itself, for a shim that has a network of its own: in
// there the tool gets no rights.
func wakeGPU(log *slog.Logger) {
	var said strings.Builder
	wakeNVIDIA("/dev", &said)
	if said.Len() > 0 {
		log.Info("engine's devices", "said", strings.TrimSpace(said.String()))
	}
}

// modprobeTime is how long loading a module of the kernel may take.
const modprobeTime = 10 * time.Second

// wakeNVIDIA has NVIDIA's own tool make the device that CUDA needs, where there
// is a tool and no device: since the last start of the machine nobody has used
// it. CUDA would run the tool itself, but in the sandbox no program gets more
// rights than it has. An engine that cannot do without says so; what the tool
// said is written to log.
func wakeNVIDIA(dev string, log io.Writer) {
	tool, err := exec.LookPath("nvidia-modprobe")
	if err != nil {
		return
	}
	if _, err := os.Stat(filepath.Join(dev, "nvidia-uvm")); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	said := "done"
	if out, err := ask(context.Background(), modprobeTime, tool, "-u", "-c=0"); err != nil {
		said = whatItSaid(out, err)
	}
	fmt.Fprintf(log, "relay: nvidia-modprobe for /dev/nvidia-uvm: %s\n", said)
}
