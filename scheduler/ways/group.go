package ways

// Group is how a model runs over several peers: a coordinator, whose way this is of,
// and the workers that take layers of it. The layers lie in this order: the first ones
// in the coordinator's host memory, then those of the shares, then those on the
// coordinator's GPUs; the output layer is the coordinator's, on its last GPU, or in
// host memory where it uses none.
type Group struct {
	// ID names this formation: what belongs to another one is not taken for it.
	ID string `cbor:"1,keyasint" json:"id"`
	// Shares are what the workers take, in the order of their layers.
	Shares []Share `cbor:"2,keyasint" json:"shares"`
}

// Share is what one worker takes of a model.
type Share struct {
	// Peer is the worker's id.
	Peer string `cbor:"1,keyasint" json:"peer"`
	// From is its first layer, counted from 0.
	From int `cbor:"2,keyasint,omitempty" json:"from"`
	// Parts are its GPUs in order and host memory last, as in a way.
	Parts []Part `cbor:"3,keyasint" json:"parts"`
}

// Layers is how many layers a share has.
func (s Share) Layers() (n int) {
	for _, p := range s.Parts {
		n += p.Layers
	}
	return n
}

// Share is the share of one worker.
func (g *Group) Share(peer string) (Share, bool) {
	if g == nil {
		return Share{}, false
	}
	for _, s := range g.Shares {
		if s.Peer == peer {
			return s, true
		}
	}
	return Share{}, false
}
