package llama

// Used is the memory that the engine said it has reserved, in bytes by device;
// all that is in the host's memory counts under the name host. nil where it did
// not say.
func (r Report) Used(host string) map[string]uint64 {
	if len(r.Buffers) == 0 {
		return nil
	}
	used := map[string]uint64{}
	for _, b := range r.Buffers {
		device := b.Device
		if onHost(device) {
			device = host
		}
		used[device] += b.Model + b.Context + b.Compute
	}
	return used
}
