package ways

// Kind is one of the rungs of the ladder.
type Kind string

// The rungs, from the top.
const (
	// OneGPU: everything on one GPU.
	OneGPU Kind = "gpu"
	// GPUs: on several GPUs of the peer.
	GPUs Kind = "gpus"
	// Hybrid: on GPU and RAM of the peer, experts in RAM first, then layers.
	Hybrid Kind = "gpu+ram"
	// Shards: on several peers.
	Shards Kind = "shards"
	// CPU: everything in host memory.
	CPU Kind = "cpu"
)

// Part is what of a model is on one device.
type Part struct {
	Device string `cbor:"1,keyasint" json:"device"`
	// Layers are those on that device, the output layer counted, as llama.cpp
	// counts for -ngl.
	Layers int `cbor:"2,keyasint,omitempty" json:"layers"`
	// Bytes is the memory that it takes there.
	Bytes uint64 `cbor:"3,keyasint" json:"bytes"`
}

// Way is how one peer runs one model, alone or as the coordinator of a group.
type Way struct {
	Kind Kind `cbor:"1,keyasint" json:"kind"`
	// Parts are the GPUs in order and host memory last, whose Bytes is never 0.
	Parts []Part `cbor:"2,keyasint" json:"parts"`
	// CPUExperts: the first so many layers keep their experts in RAM (llama.cpp's
	// --n-cpu-moe).
	CPUExperts int `cbor:"3,keyasint,omitempty" json:"cpu_experts,omitempty"`
	// Decode and Prefill are the predicted tokens/s of one request.
	Decode  float64 `cbor:"4,keyasint,omitempty" json:"decode"`
	Prefill float64 `cbor:"5,keyasint,omitempty" json:"prefill"`
	// Guessed: the speed of some device is not known, and the reference for its
	// kind was used.
	Guessed bool `cbor:"6,keyasint,omitempty" json:"guessed,omitempty"`
	// Group is of a way of the kind Shards: what other peers take. Parts are the
	// coordinator's own.
	Group *Group `cbor:"7,keyasint,omitempty" json:"group,omitempty"`
}

// Need is the memory that a way takes, in bytes by device id.
func (w Way) Need() map[string]uint64 {
	need := make(map[string]uint64, len(w.Parts))
	for _, p := range w.Parts {
		need[p.Device] += p.Bytes
	}
	return need
}

// Verdict is whether a way can be gone; what is better is smaller.
type Verdict int

// The verdicts.
const (
	// Fits: now.
	Fits Verdict = iota
	// Evicts: if idle models are unloaded.
	Evicts
	// Later: if other models, which are in use, ended, or once a device is no
	// longer busy, or what failed is to be tried again.
	Later
	// Never: whatever else runs there, or not until a person says so.
	Never
)

// String is the verdict in a word.
func (v Verdict) String() string {
	switch v {
	case Fits:
		return "fits"
	case Evicts:
		return "evicts"
	case Later:
		return "later"
	}
	return "never"
}

// Rung is one way with what comes of it.
type Rung struct {
	Way
	Verdict Verdict `json:"verdict"`
	// Reason is a word of scheduler's closed list where the way does not fit now
	// (Later, Never), else empty. Text is one part of a sentence.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text"`
}
