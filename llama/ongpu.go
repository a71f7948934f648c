package llama

import (
	"fmt"
	"slices"
	"strings"
)

// checkPlacement fails where layers were to go to GPUs and did not: llama.cpp goes
// on without a GPU that it cannot use. Where Split says how many layers go to each,
// there must be weights on each of those that get some. What the engine reports
// counts; where that does not tell, it is believed.
func (p *Process) checkPlacement(s Spec) error {
	if len(s.Devices) == 0 || s.GPULayers == 0 {
		return nil
	}
	r := p.Report()
	on := r.weighed()
	var without []string
	for i, n := range s.Split {
		if n > 0 && !slices.Contains(on, s.Devices[i]) {
			without = append(without, s.Devices[i])
		}
	}
	switch {
	case len(on) > 0 && len(without) == 0:
		return nil
	case len(r.Buffers) == 0 || r.strange():
		p.log.Warn("engine does not say where it computes", "model", s.Name, "devices", s.Devices)
		return nil
	}
	where := "computes on the CPU"
	if len(on) > 0 {
		where = "puts nothing on " + strings.Join(without, ", ")
	}
	why := p.journal.cause()
	if why == "" {
		why = "it does not say why"
	}
	return fmt.Errorf("%w: placed on %s, but %s: %s", ErrEngine, strings.Join(s.Devices, ", "), where, why)
}
