// Package routing chooses which replica of a model a request goes to, as one entrance
// sees them, and keeps what the entrance knows for that.
//
// It promises: replicas that could serve and do not are named with why; of those that
// could, the one is chosen with which the answer is expected soonest; requests that begin
// alike go to one replica from whatever entrance they come, as long as that one does not
// get more than its share of the work; what an entrance keeps is bounded.
//
// It is pure: the time, and chance where it takes some, are told to it.
package routing
