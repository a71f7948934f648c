package main

import "relay/scheduler"

// linkBytes is how much has crossed the links of a group's coordinator, both ways; -1
// where it does not say.
func linkBytes(r scheduler.ReplicaState) int64 {
	sum := int64(-1)
	for _, s := range r.Shares {
		if s.Link != nil {
			sum = max(0, sum) + int64(s.Link.Out+s.Link.In)
		}
	}
	return sum
}

// turnsOf are the round trips to all workers of a group.
func turnsOf(r scheduler.ReplicaState) (n uint64) {
	for _, s := range r.Shares {
		if s.Link != nil {
			n += s.Link.Turns
		}
	}
	return n
}
