package ways

// What is taken for a device whose speed is not known yet, so that it is neither
// preferred nor passed over for that. They are half of what the memory of a common
// one moves at most, since an engine does not reach all of it: two channels of
// DDR4-3200 are 51.2 GB/s (JESD79-4), 192 bits of GDDR6 at 15 Gbit/s, as on a
// GeForce RTX 3060, are 360 GB/s. Prefill works on many tokens for each reading of the
// weights and is bound by arithmetic; by how much it is faster is assumed. They
// order ways among each other; none was measured here.
const (
	ReferenceRAM       = 25.6e9 // bytes/s
	ReferenceGPU       = 180e9  // bytes/s
	PrefillFactorOnCPU = 4
	PrefillFactorOnGPU = 20
	// A GPU without memory of its own reads the host's as fast as the CPU does, and no
	// faster; but prefill is bound by arithmetic, of which it has somewhat more.
	PrefillFactorUnified = 2
	mostBytesPerSecond   = 1e15
	mostTokensPerSecond  = 1e7
)

// alike is within which ratio two speeds are no difference.
const alike = 1.1

// Faster says whether one predicted speed is really above another: differences
// within 10 % are none.
func Faster(a, b float64) bool { return a > b*alike }

// Rate is how many bytes of weights a device of the machine works through per second
// when it writes.
func (m *Machine) Rate(d *Device) float64 {
	decode, _, _ := rates(m, d)
	return decode
}

// rates are the bytes of weights that a device of a machine works through per
// second.
func rates(m *Machine, d *Device) (decode, prefill float64, guessed bool) {
	switch {
	case d.GPU && d.Unified:
		decode, prefill, _ = rates(m, &m.Host)
		prefill *= PrefillFactorUnified
	case d.GPU:
		decode, prefill = ReferenceGPU, ReferenceGPU*PrefillFactorOnGPU
	default:
		decode, prefill = ReferenceRAM, ReferenceRAM*PrefillFactorOnCPU
	}
	guessed = !sane(d.Decode, mostBytesPerSecond)
	if !guessed {
		decode = d.Decode
	}
	if sane(d.Prefill, mostBytesPerSecond) {
		prefill = d.Prefill
	}
	return decode, prefill, guessed
}

// sane says whether a figure that another peer told can be used.
func sane(v, most float64) bool { return v > 0 && v <= most }

// pace adds up how long one token takes on the devices in turn.
type pace struct {
	decode, prefill float64 // seconds
	guessed         bool
}

func (p *pace) add(m *Machine, d *Device, bytes float64) {
	if bytes == 0 {
		return
	}
	decode, prefill, guessed := rates(m, d)
	p.decode += bytes / decode
	p.prefill += bytes / prefill
	p.guessed = p.guessed || guessed
}

// perSecond are the tokens/s of a time per token, 0 where nothing is known of it.
func perSecond(seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return min(1/seconds, mostTokensPerSecond)
}
