package content

import (
	"encoding/binary"
	"errors"
	"slices"

	"relay/store/content/leases"
)

// marks is what is committed of a pull: the leaves that are on disk for sure, and
// those that may have been written since and must be hashed again after a crash.
// No other leaf was ever written.
type marks struct {
	done  leases.Set
	tried []uint32
}

// doubted is the same with nothing sure: all is to be hashed again.
func (m marks) doubted(leaves int) marks {
	all := marks{done: leases.NewSet(leaves)}
	tried := leases.NewSet(leaves)
	copy(tried, m.done)
	for _, i := range m.tried {
		tried.Add(int(i))
	}
	for i := range leaves {
		if tried.Has(i) {
			all.tried = append(all.tried, uint32(i))
		}
	}
	return all
}

const mapsVersion = 1

func (m marks) encode(leaves int) []byte {
	out := make([]byte, 0, 1+len(m.done)*8+len(m.tried)*3)
	out = append(out, mapsVersion)
	out = binary.AppendUvarint(out, uint64(leaves))
	for _, w := range m.done {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	tried := slices.Clone(m.tried)
	slices.Sort(tried)
	last := uint32(0)
	for _, i := range tried {
		out = binary.AppendUvarint(out, uint64(i-last))
		last = i
	}
	return out
}

var errMaps = errors.New("the bitmap of a pull cannot be read")

// parseMaps reads what encode wrote for that many leaves.
func parseMaps(value []byte, leaves int) (marks, error) {
	m := marks{done: leases.NewSet(leaves)}
	if len(value) == 0 || value[0] != mapsVersion {
		return m, errMaps
	}
	value = value[1:]
	n, used := binary.Uvarint(value)
	if used <= 0 || n != uint64(leaves) || len(value) < used+len(m.done)*8 {
		return m, errMaps
	}
	value = value[used:]
	for i := range m.done {
		m.done[i] = binary.LittleEndian.Uint64(value[i*8:])
	}
	if over := leaves % 64; over != 0 && m.done[len(m.done)-1]>>over != 0 {
		return m, errMaps
	}
	value = value[len(m.done)*8:]
	at := uint64(0)
	for len(value) > 0 {
		delta, used := binary.Uvarint(value)
		at += delta
		if used <= 0 || delta >= uint64(leaves) || at >= uint64(leaves) {
			return m, errMaps
		}
		m.tried, value = append(m.tried, uint32(at)), value[used:]
	}
	return m, nil
}
