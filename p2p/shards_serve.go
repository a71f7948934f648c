package p2p

import (
	"context"
	"errors"
	"io"
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
// closed at once. The one that decides closes the connection that it returned when
// the share ends, which ends the stream; nothing else does while the engine takes
// nothing and the link stands. It must be called before Run.
func (n *Node) ServeShards(accept AcceptShard) { n.shards.accept = accept }

// shards are the streams that carry the connections of engines to the peers that
// take a part of a model.
type shards struct {
	n         *Node
	accept    AcceptShard
	undecided *turns // Those that others opened, until they are decided about.
	standing  *turns // Those of them that were accepted.
	held      heldShards
}

func newShards(n *Node) *shards {
	none := func(context.Context, peer.ID, ShardCall) (net.Conn, error) { return nil, errNoShards }
	h := &shards{n: n, accept: none, undecided: newTurns(undecidedPerPeer, undecidedInAll), standing: newTurns(shardsPerPeer, shardsInAll)}
	h.held = heldShards{all: map[*heldShard]bool{}, may: h.may}
	return h
}

// may says whether a stream may stand: while there is a link to the other side,
// and the one that opened it is a coordinator by its trust, the other one a worker.
func (h *shards) may(other peer.ID, opened bool) bool {
	if opened {
		_, works := h.n.holder(other)
		return works && h.n.links.isLinked(other)
	}
	rule, _ := accessTo(h.n.Mesh, ProtocolShard)
	m, in := h.n.Member(other)
	return in && rule.admits(m.Trust) && h.n.links.isLinked(other)
}

var (
	errNoShards   = errors.New("this machine takes no part in others' models")
	errManyShards = errors.New("as many shard streams stand, or wait to be decided about, as may")
)

// handle answers a stream on a link.
func (h *shards) handle(s network.Stream) { h.serve(streamConn{s}, s.Conn().RemotePeer()) }

// take answers a stream that has a connection of its own. That of a stranger ends
// before anything is begun for it: of those there are as many as somebody likes.
func (h *shards) take(s *single) {
	if !h.n.isMember(s.RemotePeer()) {
		h.n.log.Debug("connection of a stranger refused", "peer", short(s.RemotePeer()), "protocol", ProtocolShard)
		_ = s.Reset()
		return
	}
	if !h.n.work.begin() {
		_ = s.Reset()
		return
	}
	go func() {
		defer h.n.work.end()
		h.serve(s, s.RemotePeer())
	}()
}

// serve answers one stream, and returns when it has ended.
func (h *shards) serve(c shardConn, from peer.ID) {
	s, may := h.held.add(c, from, false)
	if !may {
		h.n.log.Warn("stream refused", "peer", short(from), "protocol", ProtocolShard)
		_ = c.Reset()
		return
	}
	conn, err := h.admit(s)
	if err != nil {
		h.refuse(s, err)
		return
	}
	defer h.standing.give(from)
	s.lead(conn)
	if _, err := s.Write([]byte{shardOpen}); err != nil {
		_ = s.Reset()
		_ = conn.Close()
		return
	}
	_ = s.SetDeadline(time.Time{})
	err = tunnel.Join(s, conn, nil)
	h.n.log.Debug("shard stream ended", "peer", short(from), "error", err)
}

// admit decides about a stream and takes its place among those that stand, within
// the bounds of both.
func (h *shards) admit(s *heldShard) (net.Conn, error) {
	if !h.undecided.take(s.other) {
		return nil, errManyShards
	}
	defer h.undecided.give(s.other)
	conn, err := h.decide(s)
	if err == nil && !h.standing.take(s.other) {
		_ = conn.Close()
		err = errManyShards
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// decide reads what a stream is for, and connects it or says why not.
func (h *shards) decide(s *heldShard) (net.Conn, error) {
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
	conn, err := h.accept(ctx, s.other, call)
	_ = s.SetDeadline(time.Now().Add(shardCallPatience))
	return conn, err
}

// refuse ends a stream with a sentence. Where there is no room now it is to be tried
// again.
func (h *shards) refuse(s *heldShard, err error) {
	answer := shardRefused
	var r interface{ Reason() string }
	if errors.Is(err, errManyShards) || errors.As(err, &r) && r.Reason() == "superseded" {
		answer = shardStale
	}
	h.n.log.Info("shard stream refused", "peer", short(s.other), "error", err)
	_ = s.SetDeadline(time.Now().Add(refusalPatience))
	if writeShardAnswer(s, answer, err.Error()) != nil || s.CloseWrite() != nil {
		_ = s.Reset()
		return
	}
	// TCP resets a connection that is closed before all is read, and the answer is lost.
	_, _ = io.CopyN(io.Discard, s, 4+maxShardCall)
	_ = s.Close()
}
