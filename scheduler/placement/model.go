package placement

import (
	"time"

	"relay/scheduler/shards"
	"relay/scheduler/ways"
)

// The reasons for which a peer or a model is passed over; they are reasons of
// the closed list in scheduler, which imports this package.
const (
	noHolder     = "no_holder"
	noCapacity   = "no_capacity"
	noEngine     = "no_engine"
	engineFailed = "engine_failed"
	peerGone     = "peer_gone"
	draining     = "draining"
	cordoned     = "cordoned"
	notAllowed   = "not_allowed"
	diskFull     = "disk_full"
)

// Model is what is to be placed.
type Model struct {
	UID, Name, CID string
	// Bytes is the length of all of its files.
	Bytes int64
	// Shape is the memory of one replica.
	Shape ways.Shape
	// Want is how many replicas are wanted now; 0 is none: it is on demand, and
	// nobody has asked.
	Want int
	// Only is a peer's id: the model runs nowhere else. Empty is anywhere.
	Only string
	// Evict: idle models may be unloaded in its favour.
	Evict bool
	// Fetch: peers that do not hold the file may be told to fetch it.
	Fetch bool
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
	// Cordoned: it takes no model but those that run there or are Placed there.
	Cordoned bool
	// Trust is replicas, shard-only or client.
	Trust string
	// Engine says that there is a usable build; NoEngine why there is none.
	Engine   bool
	NoEngine string
	// Machine is its memory, by device, how this model ran there before, and the kinds
	// of way that it failed in there. Where those are all that it could go, the peer is
	// taken for one that failed.
	Machine ways.Machine
	// Holds: the peer has the model's file whole. Gone is why it no longer has
	// what it once had, in a sentence that names the file.
	Holds bool
	Gone  string
	// Runs: the model is loaded or loading there, its memory taken already, or
	// it was ordered to and has not answered yet; Way is how, where that is known.
	// Ready: it serves.
	Runs, Ready bool
	Way         *ways.Way
	// Placed: the order in force names it. Of several that run the model, such
	// as one that came back and still seems to, it stays where it is placed.
	Placed bool
	// Was: it ran there last, by an order that need not be in force any more. It rather
	// goes there again than elsewhere, but not to a peer that is cordoned.
	Was bool
	// Failed is the reason of a failure or refusal that is not to be tried again yet
	// and concerns the peer as a whole, FailedText its sentence.
	Failed, FailedText string
	// Parked: it failed there so often that only a person, or another definition
	// of the model, has it tried again; Failed and FailedText say how.
	Parked bool
	// Paused is why the owner has it lend nothing for now, "" where it lends.
	Paused string
	// DiskFree is the room for files, in bytes, where DiskKnown. FetchRate is how
	// fast its last pull went, in bytes/s, 0 where that is not known.
	DiskFree  uint64
	DiskKnown bool
	FetchRate float64
	// Build is its engine, for groups: peers of another one are in none with it. Without
	// an RPC version it is in none.
	Build shards.Build
	// RTT are its round trips to other peers, by id, as it measured them.
	RTT map[string]time.Duration
	// Own is the memory that it has reserved for this model already, in bytes by device:
	// for another group of the model that is free.
	Own map[string]uint64
}

// Order is one whole replica: which peer runs it, and which way. Fetch: it does
// not hold the file and is to fetch it first.
type Order struct {
	Peer  string
	Way   ways.Way
	Fetch bool
}

// Plan is where the model is to run.
type Plan struct {
	// Orders are at most as many as replicas are wanted, fewer where no more can.
	// Peers that are drained and still serve come last, beside the ones that are to
	// be ready in their stead.
	Orders []Order
	// Text says why, in one sentence.
	Text string
	// Reason is why nothing runs that should, or is about to run no more; else empty.
	Reason string
	// Final: it runs nowhere and only a person changes that, so that requests need
	// not wait.
	Final bool
	// Later: it runs nowhere now, and would on some peer once what runs there ended, or
	// a device is no longer busy, so that requests may well wait.
	Later bool
}

// Rejection is why one peer was not chosen, in one sentence.
type Rejection struct{ Peer, Reason, Text string }
