package p2p

import (
	"context"
	"net"

	"github.com/libp2p/go-libp2p/core/peer"
)

// ShardCall says which placement a coordinator asks a worker under: the first
// message on a shard stream.
type ShardCall struct {
	// UID is the model's, 64 bytes at most.
	UID string `cbor:"1,keyasint"`
	// Group names the formation of peers that runs it, 64 bytes at most.
	Group string `cbor:"2,keyasint"`
	// Epoch and Rank are the fence that the placement was made under.
	Epoch uint64 `cbor:"3,keyasint"`
	Rank  uint64 `cbor:"4,keyasint,omitempty"`
}

// AcceptShard decides about a stream that the member from opened, which has trust
// replicas, and connects to the engine's server for it. ctx ends with the node,
// with the stream's patience, 10 s, and when from is no such member any more. An
// error with the reason superseded tells the coordinator to try again soon, since
// the two do not know the same placement yet; any other one refuses. Its text is
// told to the coordinator, 512 bytes at most.
type AcceptShard func(ctx context.Context, from peer.ID, call ShardCall) (net.Conn, error)

// ServeShards sets who decides about shard streams; without it all are refused.
// What it accepts is joined with the stream until either ends: then both are
// closed at once. The one that decides may close the connection that it returned
// at any time, which ends the stream. It must be called before Run.
func (n *Node) ServeShards(accept AcceptShard) { n.shards.accept = accept }

// OpenShard opens a stream to a worker under a placement: one for each connection
// of the engine. It stands until either side closes it, the member is one no more,
// or Run ends. The connection has CloseWrite. Errors wrap ErrPeerGone when the
// worker cannot be reached, ErrShardStale when it does not know that placement
// (yet), ErrShardRefused, each with the worker's sentence, or are ctx's own.
func (n *Node) OpenShard(ctx context.Context, to peer.ID, call ShardCall) (net.Conn, error) {
	return nil, ErrShardRefused
}

type shards struct{ accept AcceptShard }
