package llama

import (
	"fmt"
	"strings"
)

// checkPlacement fails where layers were to go to GPUs and none did: llama.cpp
// goes on without a GPU that it cannot use. What the engine reports counts, and
// where it does not report weights on one, whether its process holds memory of
// a GPU. Where neither can be known, it is believed.
func (p *Process) checkPlacement(s Spec) error {
	if len(s.Devices) == 0 || s.GPULayers == 0 {
		return nil
	}
	r := p.Report()
	if r.GPU() {
		return nil
	}
	said := len(r.Buffers) > 0
	if s.OnGPU != nil {
		on, known := s.OnGPU(p.PID())
		if on {
			return nil
		}
		said = said || known
	}
	if !said {
		p.log.Warn("engine does not say where it computes", "model", s.Name, "devices", s.Devices)
		return nil
	}
	why := p.journal.cause()
	if why == "" {
		why = "it put no layers on a GPU"
	}
	return fmt.Errorf("%w: placed on %s, but computes on the CPU: %s", ErrEngine, strings.Join(s.Devices, ", "), why)
}
