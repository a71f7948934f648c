package llama

import (
	"fmt"
	"slices"
	"strings"
)

// checkRemotePlacement fails where a device of an RPC server has no weights, as when
// the server exports others than it was to. An engine that says nothing is believed.
func (p *Process) checkRemotePlacement(s Spec) error {
	r := p.Report()
	if len(s.Remotes) > 0 && len(r.Buffers) == 0 {
		p.log.Warn("engine does not say where it computes", "model", s.Name, "remotes", len(s.Remotes))
		return nil
	}
	for i, remote := range s.Remotes {
		for d := range remote.Layers {
			if !slices.ContainsFunc(r.Buffers, func(b Buffer) bool {
				port, device, ok := remoteBuffer(b.Device)
				return ok && port == p.links.ports[i] && device == d && b.Model > 0
			}) {
				return fmt.Errorf("%w: it puts nothing on device %d of RPC server %d, where %d layers were to go", ErrEngine, d, i, remote.Layers[d])
			}
		}
	}
	return nil
}

// checkPlacement fails where layers were to go to GPUs and did not: llama.cpp goes
// on without a GPU that it cannot use. Where Split says how many layers go to each,
// there must be weights on each of those that get some. What the engine reports
// counts; where that does not tell, it is believed.
func (p *Process) checkPlacement(s Spec) error {
	if err := p.checkRemotePlacement(s); err != nil {
		return err
	}
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
