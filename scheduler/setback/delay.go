package setback

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

const (
	first   = time.Second
	longest = 5 * time.Minute
)

// Delay is how long a model is left alone on a peer after so many failures in a
// row: 1 s, doubling up to 5 min, and up to a quarter more or less. What is
// added differs between keys and failures, so that what failed at once is not
// tried again at once, and is the same for whoever asks.
func Delay(k Key, failures int) time.Duration {
	d := first
	for range min(max(failures, 1), 16) - 1 {
		d = min(2*d, longest)
	}
	h := fnv.New64a()
	h.Write([]byte(k.Peer + "/" + k.UID + "/" + k.Way))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(failures)))
	return d*3/4 + time.Duration(mix(h.Sum64())%uint64(d/2+1))
}

// mix spreads a hash: FNV of texts that differ at their end alone is near alike.
// The figures are those of MurmurHash3's finalizer.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
