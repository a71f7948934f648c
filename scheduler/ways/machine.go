package ways

// HostID is the device id of host memory.
const HostID = "RAM"

// Device is memory that a process can compute in.
type Device struct {
	ID, Name string
	GPU      bool
	// Unified: a GPU without memory of its own. What it lends, and has free, is a
	// share of the host's, which is there once: a way takes of both together no more
	// than the host has.
	Unified bool
	// Known says that Lent, Free and Evictable are known; memory that is not known
	// is not used.
	Known bool
	// Lent is what is lent in all, Free what is left of it, and Evictable what
	// unloading idle models would add to that, in bytes.
	Lent, Free, Evictable uint64
	// Busy is why nothing new goes there for now, as a part of a sentence; "" where
	// it may.
	Busy string
	// Decode and Prefill are learnt: the bytes of weights that it works through per
	// second, 0 where that is not known yet.
	Decode, Prefill float64
}

// Machine is what one peer has for models.
type Machine struct {
	Name string
	// Host is the memory of the CPU, its ID HostID.
	Host Device
	GPUs []Device
	// Seen is how the model ran there before; at most one per way counts, the first.
	Seen []Seen
	// Blocked are the kinds of way that the model failed in there and that are not to
	// be tried now.
	Blocked []Block
}

// Block is why a kind of way is not to be tried on a machine for now; Parked, not
// until a person says so.
type Block struct {
	Kind   Kind
	Parked bool
	// Reason is a word of scheduler's closed list, Text one part of a sentence.
	Reason, Text string
}

// Block is what keeps a kind from being tried, the hardest of several; nil where
// nothing does.
func (m *Machine) Block(k Kind) (block *Block) {
	for i := range m.Blocked {
		if b := &m.Blocked[i]; b.Kind == k && (block == nil || b.Parked && !block.Parked) {
			block = b
		}
	}
	return block
}

// Seen is what the engine took when the model last ran there that way: it
// corrects the prediction.
type Seen struct {
	Kind  Kind   `cbor:"1,keyasint" json:"kind"`
	Parts []Part `cbor:"2,keyasint" json:"parts"`
	// Decode and Prefill are the tokens/s of one request as they were measured, 0
	// where they were not.
	Decode  float64 `cbor:"3,keyasint,omitempty" json:"decode,omitempty"`
	Prefill float64 `cbor:"4,keyasint,omitempty" json:"prefill,omitempty"`
	// LoadMS is how long it took from the start to the first token.
	LoadMS int64 `cbor:"5,keyasint,omitempty" json:"load_ms,omitempty"`
	// CPUExperts is as in Way: without it two splits of a model of experts that
	// differ in memory look the same.
	CPUExperts int `cbor:"6,keyasint,omitempty" json:"cpu_experts,omitempty"`
	// Group is what other peers took, where the kind is Shards, and Turns how many round
	// trips to each of them one token took, 0 where that was not counted.
	Group *Group  `cbor:"7,keyasint,omitempty" json:"group,omitempty"`
	Turns float64 `cbor:"8,keyasint,omitempty" json:"turns,omitempty"`
}
