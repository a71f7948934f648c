package main

import "relay/scheduler"

// linkBytes is how much has crossed the links of a group's coordinator, both ways.
func linkBytes(r scheduler.ReplicaState) (n int64) { return -1 }

func turnsOf(r scheduler.ReplicaState) uint64 { return 0 }
