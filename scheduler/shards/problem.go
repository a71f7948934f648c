package shards

import (
	"fmt"
	"time"

	"relay/scheduler/ways"
)

// Problem is a model that is to run on several peers, and who there is.
type Problem struct {
	// Name is the model's.
	Name string
	// Bytes is the length of all of its files; how long loading takes comes of it.
	Bytes int64
	// Pieces are the model's; Form is not to be called twice at once with the same.
	Pieces *ways.Pieces
	// Members are named once each.
	Members []Member
	// Coordinator is a member's id: nobody else coordinates. Empty is whoever may.
	Coordinator string
	// Turns are the round trips to each worker for each token; 0 stands for the
	// constant Turns.
	Turns float64
	// Force: somebody asked for it, and it is planned however slow it is.
	Force bool
	// Worst is what may be asked of the machines: Fits, or Evicts where idle models may
	// be unloaded.
	Worst ways.Verdict
}

// Member is one peer.
type Member struct {
	ID, Name string
	// Machine is its memory as it is now. Where the kind Shards is blocked there it
	// coordinates nothing, and may still work for others.
	Machine ways.Machine
	// Holds: it has the file whole, which a coordinator needs.
	Holds bool
	// ShardOnly: it coordinates nothing, and gets neither the first layer nor the output.
	ShardOnly bool
	// Build is its engine: only the same ones work together.
	Build Build
	// RTT are its round trips to others, by peer id, as it measured them. Where there
	// is none, what the other one measured is taken, and else ReferenceRTT.
	RTT map[string]time.Duration
	// Barred is why it takes no part; nil where it may. NoWork is why it takes no layers
	// for others: it may still coordinate.
	Barred, NoWork *Bar
}

// Build is which engine a peer has.
type Build struct {
	// Commit is llama.cpp's, RPC the version of its RPC protocol.
	Commit, RPC string
}

// String is the build in words.
func (b Build) String() string { return fmt.Sprintf("commit %s, RPC %s", b.Commit, b.RPC) }

// Bar is why a member takes no part: a word of the closed list in scheduler, and a
// sentence that names the member.
type Bar struct{ Reason, Text string }

const (
	// Turns are the round trips for each worker and token: the graph's output is
	// fetched, all else is sent without waiting. Counted on the pinned build.
	Turns = 1
	// ReferenceRTT is taken between peers that have not measured it: a wired home network's.
	ReferenceRTT = time.Millisecond
	// LeastUseful is the predicted tokens/s below which nobody would wait for the answer.
	LeastUseful = 1.0
)
