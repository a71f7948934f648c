package p2p

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/tunnel"
)

// AcceptShard decides about a stream that the member from opened, which has trust
// replicas, and connects to the engine's server for it. ctx ends with the node, or
// after 10 s. An error with the reason superseded tells the coordinator to try again
// soon, since the two do not know the same placement yet; any other one refuses. Its
// text is told to the coordinator, 512 bytes of it at most.
type AcceptShard func(ctx context.Context, from peer.ID, call ShardCall) (net.Conn, error)

// ServeShards sets who decides about shard streams; without it all are refused.
// What it accepts is joined with the stream until either ends: then both are
// closed at once. The one that decides may close the connection that it returned
// at any time, which ends the stream. It must be called before Run.
func (n *Node) ServeShards(accept AcceptShard) { n.shards.accept = accept }

// shards are the streams that carry the connections of engines to the peers that
// take a part of a model.
type shards struct {
	n        *Node
	accept   AcceptShard
	standing *turns // What others opened.
	singles  singles
}

func newShards(n *Node) *shards {
	none := func(context.Context, peer.ID, ShardCall) (net.Conn, error) { return nil, errNoShards }
	h := &shards{n: n, accept: none, standing: newTurns(shardsPerPeer, shardsInAll)}
	h.singles = singles{standing: map[*single]bool{}, may: h.may}
	return h
}

// may says whether a single may stand: while its link does, and the one that
// opened it is a coordinator, the other one a worker, by their trusts.
func (h *shards) may(s *single, opened bool) bool {
	other := s.whole.RemotePeer()
	m, in := h.n.Member(other)
	coordinates, _ := accessTo(h.n.Mesh, ProtocolShard)
	rule := coordinates
	if opened {
		rule, _ = accessTo(h.n.Mesh, ProtocolBlocks) // As holder does.
	}
	return in && rule.admits(m.Trust) && h.n.links.isLinked(other)
}

var (
	errNoShards   = errors.New("this machine takes no part in others' models")
	errManyShards = errors.New("as many shard streams stand as may")
)

// handle answers one stream of a member that may open such, and ends with it.
func (h *shards) handle(s network.Stream) { h.serve(streamConn{s}, s.Conn().RemotePeer()) }

// take answers a single.
func (h *shards) take(s *single) {
	if !h.n.work.begin() {
		_ = s.Reset()
		return
	}
	go func() {
		defer h.n.work.end()
		from := s.whole.RemotePeer()
		if !h.singles.add(s, false) {
			h.n.log.Warn("connection refused", "peer", short(from), "protocol", ProtocolShard)
			_ = s.Reset()
			return
		}
		h.serve(s, from)
	}()
}

func (h *shards) serve(s shardConn, from peer.ID) {
	if !h.standing.take(from) {
		h.refuse(s, from, errManyShards)
		return
	}
	defer h.standing.give(from)
	conn, err := h.decide(s, from)
	if err != nil {
		h.refuse(s, from, err)
		return
	}
	if _, err := s.Write([]byte{shardOpen}); err != nil {
		_ = s.Reset()
		_ = conn.Close()
		return
	}
	_ = s.SetDeadline(time.Time{})
	err = tunnel.Join(s, conn, nil)
	h.n.log.Debug("shard stream ended", "peer", short(from), "error", err)
}

// decide reads what a stream is for, and connects it or says why not.
func (h *shards) decide(s net.Conn, from peer.ID) (net.Conn, error) {
	_ = s.SetDeadline(time.Now().Add(shardCallPatience))
	call, err := readShardCall(s)
	if err != nil {
		return nil, err
	}
	if _, may := h.n.holder(h.n.self); !may {
		return nil, errNoShards
	}
	ctx, cancel := context.WithTimeout(h.n.ctx, shardPatience)
	defer cancel()
	conn, err := h.accept(ctx, from, call)
	_ = s.SetDeadline(time.Now().Add(shardCallPatience))
	return conn, err
}

// refuse ends a stream with a sentence.
func (h *shards) refuse(s shardConn, from peer.ID, err error) {
	answer := shardRefused
	var r interface{ Reason() string }
	if errors.As(err, &r) && r.Reason() == "superseded" {
		answer = shardStale
	}
	h.n.log.Info("shard stream refused", "peer", short(from), "error", err)
	_ = s.SetDeadline(time.Now().Add(shardCallPatience))
	if writeShardAnswer(s, answer, err.Error()) != nil {
		_ = s.Reset()
		return
	}
	_ = s.Close()
}
