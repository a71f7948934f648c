package gpu

// GPU is one GPU of this machine.
type GPU struct {
	// ID is the engine's name of it, such as "CUDA0". One that the engine does
	// not list has a name after its tool's, such as "nvidia1", and is Unusable.
	ID string
	// UUID is the maker's own id of it; "" where no tool tells.
	UUID string
	// Name is the maker's name of it.
	Name string
	// Total and Free are in bytes. They mean nothing unless Known.
	Total, Free uint64
	Known       bool
	// Unified: it has no memory of its own. Total and Free are of the host's
	// memory, which is lent once only.
	Unified bool
	// Foreign is what programs that are not relay's engines hold of its memory,
	// in bytes. It means nothing unless ForeignKnown.
	Foreign      uint64
	ForeignKnown bool
	// Unusable is why nothing can be placed on it, as part of a sentence; ""
	// where it can.
	Unusable string
}

// Own is what relay's own engines take of the GPUs, so that it is not held for
// foreign. The zero value says that none runs.
type Own struct {
	// PIDs are the engines' processes. What the tools show of them counts.
	PIDs []int
	// Bytes is what they are known to hold, by the engine's name of the GPU. It
	// counts where the tools show no such process: inside a container they see
	// none, and on Windows not what a process holds.
	Bytes map[string]uint64
	// Engines is how many of them use a GPU, by the engine's name of it. Each is
	// then allowed what a driver keeps for a process besides. One is taken to use a
	// GPU of which Bytes has some, so that nil means one each at most.
	Engines map[string]int
}

// Listed is a GPU in the engine's own list.
type Listed struct {
	ID, Name    string
	Total, Free uint64 // In bytes; they mean nothing unless Known.
	Known       bool
}
