package routing

// kept bounds the prefixes of one of the memory's two generations.
const kept = 1 << 14

// memory is which replicas of a model have served which prefixes. It forgets first what
// was not served for longest.
type memory struct {
	young, old map[uint64]servers
}

// servers are replicas, each by the bit of its number. Those of a number above the bits
// are not remembered.
type servers uint64

func (s servers) with(number int) servers    { return s | 1<<number }
func (s servers) without(number int) servers { return s &^ (1 << number) }
func (s servers) has(number int) bool        { return s>>number&1 == 1 }

func (m *memory) of(hash uint64) servers {
	if s, ok := m.young[hash]; ok {
		return s
	}
	return m.old[hash]
}

// served notes that a replica serves a request. What lies between what others begin with
// and its end is not kept: the next one of its talk begins with all of it.
func (m *memory) served(w *Want, number int) {
	for i, h := range w.Prefix {
		if i > w.shared() && i < len(w.Prefix)-1 {
			continue
		}
		s := m.of(h).with(number)
		if m.young == nil || len(m.young) >= kept {
			m.young, m.old = map[uint64]servers{}, m.young
		}
		m.young[h] = s
	}
}

// missed notes that it did not serve that request after all.
func (m *memory) missed(w *Want, number int) {
	if len(w.Prefix) == 0 {
		return
	}
	last := w.Prefix[len(w.Prefix)-1]
	for _, generation := range []map[uint64]servers{m.young, m.old} {
		if s, ok := generation[last]; ok {
			generation[last] = s.without(number)
		}
	}
}
