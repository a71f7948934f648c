package ways

// ServerHost is the host memory that a worker's rpc-server takes beside the layers, in
// bytes. The pinned build took 5 MiB with nothing loaded, on the CPU; the rest is for the
// graph, and for what it has in hand of what comes over the link.
const ServerHost = 32 << 20

// batch is how many tokens of a prompt cross the link at once: llama.cpp's -ub.
const batch = 512

// First is how many of the first layers a way of the kind Shards has in the coordinator's
// host memory. Where it uses no GPU of its own the output layer is counted there, too,
// but is none of the first.
func (w *Way) First() int {
	layers, onGPUs := 0, 0
	for _, part := range w.Parts {
		if part.Device == HostID {
			layers += part.Layers
		} else {
			onGPUs += part.Layers
		}
	}
	if onGPUs == 0 {
		layers--
	}
	return layers
}

// Count is how many layers there are; the output layer, which is not counted, is the unit
// of that number.
func (p *Pieces) Count() int { return p.n }

// Err is why the shape fits nowhere; nil where it is within bounds.
func (p *Pieces) Err() error { return p.err }

// Memory is what the units from a to before b take in one place, in bytes: weights and KV
// cache, without a buffer.
func (p *Pieces) Memory(a, b int) uint64 { return p.onGPU(a, b, 0) }

// Read is how many bytes of weights of the units from a to before b one token reads.
func (p *Pieces) Read(a, b int) float64 { return p.read(a, b, 0) }

// Compute is the buffer for what is in between, on each device that computes, in bytes.
func (p *Pieces) Compute() uint64 { return p.shape.Compute }

// Beside is the host memory that a worker takes beside its layers, in bytes: its
// rpc-server's own, and one whole tensor, which that has in host memory while it loads.
func (p *Pieces) Beside() uint64 {
	largest := p.shape.Largest
	if largest == 0 { // Not known: none is larger than its layer.
		for _, l := range p.shape.Layers {
			largest = max(largest, l.Weights)
		}
	}
	return ServerHost + largest
}

// Coordinating is the host memory that a coordinator takes, in bytes, with so many of the
// first layers there, and the output layer where output is true.
func (p *Pieces) Coordinating(first int, output bool) uint64 {
	bytes := p.inRAM(first, 0)
	if output {
		if !p.shape.Tied {
			bytes += p.shape.Output
		}
		if first == 0 {
			bytes += p.shape.Compute
		}
	}
	return bytes
}

// Share is the memory that a worker's share takes, in bytes by device: the layers from
// one on, as they lie on its parts, on GPUs or all in RAM. What the parts say of bytes
// counts for nothing. ok is false for what is no share of this model.
func (p *Pieces) Share(from int, parts []Part) (need map[string]uint64, ok bool) {
	if p.err != nil || from < 0 || len(parts) == 0 || parts[len(parts)-1].Device != HostID {
		return nil, false
	}
	computes := parts[:len(parts)-1]
	switch {
	case len(computes) == 0:
		computes = parts
	case parts[len(computes)].Layers != 0:
		return nil, false // On GPUs and in RAM.
	}
	need = map[string]uint64{HostID: p.Beside()}
	at := from
	for _, part := range computes {
		if part.Layers < 1 || part.Layers > p.n-at || len(parts) > 1 && need[part.Device] != 0 {
			return nil, false // None there, more than there are, or named twice.
		}
		need[part.Device] += p.Memory(at, at+part.Layers) + p.shape.Compute
		at += part.Layers
	}
	return need, true
}

// coordinated is Cost for a way of the kind Shards: the coordinator's own part of it.
func (p *Pieces) coordinated(w *Way) (need map[string]uint64, ok bool) {
	last := len(w.Parts) - 1
	if w.Group == nil || len(w.Group.Shares) == 0 || w.CPUExperts != 0 || last < 0 || w.Parts[last].Device != HostID {
		return nil, false
	}
	first := w.Parts[last].Layers
	if last == 0 {
		first-- // The output layer.
	}
	if first < 0 || first > p.n {
		return nil, false
	}
	need = map[string]uint64{HostID: p.Coordinating(first, last == 0)}
	peers := make(map[string]bool)
	at := first
	for _, s := range w.Group.Shares {
		if _, ok := p.Share(at, s.Parts); !ok || s.From != at || s.Peer == "" || peers[s.Peer] {
			return nil, false
		}
		peers[s.Peer] = true
		at += s.Layers()
	}
	for _, part := range w.Parts[:last] {
		if part.Layers < 1 || part.Layers > p.n+1-at || need[part.Device] != 0 {
			return nil, false
		}
		need[part.Device] = p.Memory(at, at+part.Layers) + p.shape.Compute
		at += part.Layers
	}
	if last == 0 {
		at++
	}
	if at != p.n+1 {
		return nil, false
	}
	return need, true
}

// Together is a way of the kind Shards with the speeds that are predicted of it now.
// worker is the machine of a worker, nil where it is not known, and how many seconds a
// token waits for the network on its account. The speeds are 0 where that is no way of
// this shape on those machines.
func (p *Pieces) Together(coordinator *Machine, w Way, worker func(peer string) (m *Machine, wait float64)) Way {
	w.Decode, w.Prefill, w.Guessed = 0, 0, false
	if w.Kind != Shards {
		return w
	}
	if _, ok := p.Cost(w); !ok {
		return w
	}
	var t pace
	first := w.First()
	t.add(coordinator, &coordinator.Host, p.Read(0, first))
	at, ok := first, true
	for _, s := range w.Group.Shares {
		m, wait := worker(s.Peer)
		if m == nil {
			return w
		}
		at, ok = p.through(&t, m, at, s.Parts)
		if !ok {
			return w
		}
		t.decode += wait
		t.prefill += wait / batch
	}
	last := len(w.Parts) - 1
	if last == 0 {
		t.add(coordinator, &coordinator.Host, p.Read(p.n, p.n+1))
	} else if _, ok = p.through(&t, coordinator, at, w.Parts[:last]); !ok {
		return w
	}
	w.Decode, w.Prefill, w.Guessed = perSecond(t.decode), perSecond(t.prefill), t.guessed
	return w
}

// through adds the time that the layers from one on take on parts of a machine.
func (p *Pieces) through(t *pace, m *Machine, at int, parts []Part) (end int, ok bool) {
	for _, part := range parts {
		d := &m.Host
		if part.Device != hostID(m) {
			i := m.gpu(part.Device)
			if i < 0 {
				return at, false
			}
			d = &m.GPUs[i]
		}
		t.add(m, d, p.Read(at, at+part.Layers))
		at += part.Layers
	}
	return at, true
}
