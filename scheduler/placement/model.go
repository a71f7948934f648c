package placement

// The reasons for which a peer or a model is passed over; they are reasons of
// the closed list in scheduler, which imports this package.
const (
	noHolder   = "no_holder"
	noCapacity = "no_capacity"
	noEngine   = "no_engine"
	peerGone   = "peer_gone"
	draining   = "draining"
	cordoned   = "cordoned"
	notAllowed = "not_allowed"
)

// Model is what is to be placed.
type Model struct {
	UID, Name, CID string
	// Need is the memory of one replica, in bytes.
	Need uint64
	// Min is how many replicas are wanted; 0 means 1.
	Min int
}

// Snapshot is the mesh as one leader sees it. Peers are named once each.
type Snapshot struct{ Peers []Peer }

// Peer is one member, seen for one model.
type Peer struct {
	ID, Name string
	Alive    bool
	// Draining: it is going, and runs nothing any more.
	Draining bool
	// Drained: an admin wants it empty. While there is Grace it serves what it
	// serves until other peers are ready in its stead.
	Drained, Grace bool
	// Cordoned: it takes no model but those that run there or are placed there.
	Cordoned bool
	// Trust is replicas, shard-only or client.
	Trust string
	// Engine says that there is a usable build; NoEngine why there is none.
	Engine   bool
	NoEngine string
	// Lent is what the peer offers in all and Free what is left of it, in bytes.
	Lent, Free uint64
	// Holds: the peer has the model's file whole. Gone is why it no longer has
	// what it once had, in a sentence that names the file.
	Holds bool
	Gone  string
	// Runs: the model is loaded or loading there, its memory taken already, or
	// it was ordered to and has not answered yet.
	// Ready: it serves.
	Runs, Ready bool
	// Placed: the order in force names it. Of several that run the model, such
	// as one that came back and still seems to, it stays where it is placed.
	Placed bool
	// Failed is the reason of a failure or refusal that is not to be tried
	// again yet, FailedText its sentence.
	Failed, FailedText string
}

// Plan is where the model is to run.
type Plan struct {
	// Peers run one whole replica each; at most Min, fewer where no more can. Those
	// that are drained and still serve come last, beside the ones that are to be
	// ready in their stead.
	Peers []string
	// Text says why, in one sentence.
	Text string
	// Reason is why nothing runs, or is about to run no more; else empty.
	Reason string
}

// Rejection is why one peer was not chosen, in one sentence.
type Rejection struct{ Peer, Reason, Text string }
