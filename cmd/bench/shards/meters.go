package main

import "relay/scheduler"

// linkBytes is how much has crossed the links of a group's coordinator, both ways; ok
// is false where it does not say.
func linkBytes(r scheduler.ReplicaState) (sum uint64, ok bool) {
	for _, s := range r.Shares {
		if s.Link == nil {
			return 0, false
		}
		sum += s.Link.Out + s.Link.In
	}
	return sum, len(r.Shares) > 0
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
