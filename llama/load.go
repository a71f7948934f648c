package llama

import "relay/llama/gguf"

// unmapped says whether the engine is to read the model's file into memory of
// its own rather than to map it. Mapped pages count as the process's memory, and
// are a second copy of all that it keeps in another order for the CPU, or on a
// GPU or another machine: with a model in Q4_0 on the CPU, 845 MiB instead of 483 for 399 MiB of
// weights. Where nothing is kept elsewhere, mapping is the faster load (0.3 s
// instead of 0.6 for 640 MiB that were in the page cache) and takes no more.
func unmapped(s Spec) bool {
	if len(s.Devices)+len(s.Remotes) > 0 {
		return true
	}
	h, err := gguf.Read(s.Model)
	return err == nil && h.Repacked(s.Args) // the engine will say what is wrong with it
}
