package ways

// Cost is the memory that a way takes of a model, in bytes by device, worked out from
// the layers that are on each: what the way itself says of bytes counts for nothing.
// ok is false for what is no way of this model: a kind that nobody runs, or layers
// that do not add up. Of a way of the kind Shards it is the coordinator's own part.
func (p *Pieces) Cost(w Way) (need map[string]uint64, ok bool) {
	if p.err != nil || w.CPUExperts < 0 || w.CPUExperts > p.n {
		return nil, false
	}
	if w.Kind == CPU { // However its layers are counted: older leaders do not say.
		return map[string]uint64{HostID: p.cpu}, true
	}
	if w.Kind == Shards {
		return p.coordinated(&w)
	}
	if w.Kind != OneGPU && w.Kind != GPUs && w.Kind != Hybrid {
		return nil, false
	}
	onGPUs := 0
	for _, part := range w.Parts {
		if part.Layers < 0 || part.Layers > p.n+1 {
			return nil, false
		}
		if part.Device != HostID {
			onGPUs += part.Layers
		}
	}
	first := p.n + 1 - onGPUs // Those before it are in host memory.
	if onGPUs < 1 || first < 0 || w.Kind != Hybrid && (first > 0 || w.CPUExperts > 0) {
		return nil, false
	}
	need = map[string]uint64{HostID: p.inRAM(first, w.CPUExperts)}
	at := first
	for _, part := range w.Parts {
		switch {
		case part.Device == HostID && part.Layers != first && part.Layers != 0:
			return nil, false
		case part.Device == HostID || part.Layers == 0:
			continue
		case need[part.Device] != 0:
			return nil, false // Named twice.
		}
		need[part.Device] = p.onGPU(at, at+part.Layers, w.CPUExperts) + p.shape.Compute
		at += part.Layers
	}
	return need, true
}
