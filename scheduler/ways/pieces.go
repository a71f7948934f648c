package ways

// Pieces is a Shape made ready for being laid out many times. Not for several
// goroutines at once.
type Pieces struct {
	shape Shape
	err   error // the shape's, which then fits nowhere
	n     int   // layers; unit n is the output layer
	cpu   uint64
	// Sums over the units before an index: all is weights and KV, experts the part
	// of it in experts; dense and working are the weights read per token, outside
	// experts and in them.
	all, experts, dense, working []uint64

	parts []Part // of the way that is being tried
	where []int  // which GPU each of its parts but the last is on
	order []int  // GPUs by room
	room  []uint64
	taken []bool
	// Of the machine that is looked at: what the host has for the verdict, and which
	// GPUs take of that.
	ram     uint64
	unified []bool
}

// Of makes a shape ready. One that does not pass Check fits nowhere.
func Of(s Shape) *Pieces {
	p := &Pieces{shape: s, err: s.Check()}
	if p.err != nil {
		return p
	}
	p.n, p.cpu = s.Count(), s.CPU()
	size := p.n + 2
	sums := make([]uint64, 4*size)
	p.all, p.experts, p.dense, p.working = sums[:size], sums[size:2*size], sums[2*size:3*size], sums[3*size:]
	i := 0
	add := func(l Layers) {
		p.all[i+1] = p.all[i] + l.Weights + l.KV
		p.experts[i+1] = p.experts[i] + l.Experts
		p.dense[i+1] = p.dense[i] + l.Weights - l.Experts
		p.working[i+1] = p.working[i] + s.working(l.Experts)
		i++
	}
	for _, l := range s.Layers {
		for range l.Count {
			add(l)
		}
	}
	add(Layers{Weights: s.Output})
	return p
}

// onGPU is the memory of the units from a to before b on one GPU, without its
// buffer; the layers before cpuExperts keep their experts elsewhere.
func (p *Pieces) onGPU(a, b, cpuExperts int) uint64 {
	bytes := p.all[b] - p.all[a]
	if end := min(b, cpuExperts); end > a {
		bytes -= p.experts[end] - p.experts[a]
	}
	return bytes
}

// inRAM is the host memory where the units from first on are on GPUs, all but
// the experts of layers before cpuExperts.
func (p *Pieces) inRAM(first, cpuExperts int) uint64 {
	bytes := p.shape.Input + p.shape.Host + p.all[first]
	if cpuExperts > first {
		bytes += p.experts[cpuExperts] - p.experts[first]
	}
	if first > 0 || cpuExperts > 0 {
		bytes += p.shape.Compute
	}
	return max(1, bytes)
}

// read is how many bytes of weights one token reads of the units from a to before
// b, with the experts of layers before cpuExperts elsewhere.
func (p *Pieces) read(a, b, cpuExperts int) float64 {
	bytes := p.dense[b] - p.dense[a]
	if from := max(a, cpuExperts); from < b {
		bytes += p.working[b] - p.working[from]
	}
	return float64(bytes)
}

// readInRAM is the same for host memory.
func (p *Pieces) readInRAM(first, cpuExperts int) float64 {
	bytes := p.dense[first] + p.working[max(first, cpuExperts)]
	return float64(bytes)
}

// depth is how many steps there are from all on GPUs to almost all in RAM.
func (p *Pieces) depth() int {
	if p.experts[p.n] > 0 {
		return max(0, 2*p.n-1)
	}
	return max(0, p.n-1)
}

// step is where a step leaves the pieces: experts go to RAM layer by layer, and
// when all are there whole layers do, the first ones first.
func (p *Pieces) step(t int) (first, cpuExperts int) {
	switch {
	case p.experts[p.n] == 0:
		return t, 0
	case t <= p.n:
		return 0, t
	}
	return t - p.n, p.n
}
