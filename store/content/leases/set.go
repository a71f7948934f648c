package leases

import "math/bits"

// Set is a set of leaves by index, 64 to a word, the lowest bit first.
type Set []uint64

// NewSet is an empty set of up to n leaves.
func NewSet(n int) Set { return make(Set, (n+63)/64) }

// Has says whether leaf i is in the set.
func (s Set) Has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// Add puts leaf i in.
func (s Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Remove takes leaf i out.
func (s Set) Remove(i int) { s[i/64] &^= 1 << (i % 64) }

// Count is how many leaves are in the set.
func (s Set) Count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Fill puts all leaves below n in.
func (s Set) Fill(n int) {
	for i := range s {
		s[i] = ^uint64(0)
	}
	if over := n % 64; over != 0 {
		s[len(s)-1] = 1<<over - 1
	}
}
