package routing

import "hash/fnv"

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return mix(h.Sum64())
}

// mix spreads the bits of a hash. The figures are those of MurmurHash3's finalizer.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// rank is how much a key belongs to a peer, by their hashes: rendezvous hashing.
func rank(key, peer uint64) uint64 { return mix(key ^ peer) }

// portion is a number from 0 to 1 that follows from a hash.
func portion(h uint64) float64 { return float64(mix(h)>>11) / (1 << 53) }
