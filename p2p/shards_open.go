package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
)

// OpenShard opens a stream to a worker under a placement: one for each connection
// of the engine, in 15 s at most. It has a TCP connection of its own where the worker
// can be dialled so, and goes by the link where it cannot. It stands until either side
// closes it, the link ends, one of the two has no longer the trust that it takes, or
// Run ends. It has CloseWrite, and Reset, which ends both directions at once, also
// while the worker takes nothing. Errors wrap ErrShardStale when the worker does not
// know that placement (yet) or has no room now, ErrShardRefused, both with its
// sentence, ErrPeerGone when it cannot be reached, ErrProtocol, ErrBadAnswer, or are
// ctx's own.
func (n *Node) OpenShard(ctx context.Context, to peer.ID, call ShardCall) (net.Conn, error) {
	if err := call.check(); err != nil {
		return nil, err
	}
	if _, may := n.holder(to); !may {
		return nil, fmt.Errorf("%w: %s is no member whose trust lets it", ErrShardRefused, short(to))
	}
	if !n.work.begin() {
		return nil, fmt.Errorf("%w: this peer stops", ErrPeerGone)
	}
	defer n.work.end()
	inTime, cancel := context.WithTimeout(ctx, shardCallPatience+shardPatience)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	c, err := n.shards.open(inTime, to, call)
	if err != nil {
		return nil, fmt.Errorf("shard stream to %s: %w", short(to), brokenShard(ctx, err))
	}
	return c, nil
}

// open reaches the worker on a single where that can be, and else on its link.
func (h *shards) open(ctx context.Context, to peer.ID, call ShardCall) (*heldShard, error) {
	if err := h.n.links.reach(ctx, to); err != nil {
		return nil, err
	}
	link := fastest(h.n.host.Network().ConnsToPeer(to))
	if link == nil {
		return nil, ErrPeerGone
	}
	for _, door := range h.n.links.doorsOf(to, link) {
		c, err := h.dial(ctx, to, door)
		if err == nil {
			var s *heldShard
			if s, err = h.call(ctx, c, to, call); err == nil {
				return s, nil
			}
		}
		if isAnswer(err) {
			return nil, err
		}
		h.n.log.Debug("no connection of its own for a shard stream", "peer", short(to), "addr", door, "error", err)
	}
	return h.openStream(ctx, link, call)
}

// openStream opens a stream on a link.
func (h *shards) openStream(ctx context.Context, link network.Conn, call ShardCall) (*heldShard, error) {
	s, err := openRaw(ctx, link, ProtocolShard)
	if err != nil {
		return nil, err
	}
	return h.call(ctx, streamConn{s}, link.RemotePeer(), call)
}

// dial opens a connection for a stream of its own to one address of a worker.
func (h *shards) dial(ctx context.Context, to peer.ID, door ma.Multiaddr) (*single, error) {
	sw, ok := h.n.host.Network().(*swarm.Swarm)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	by := sw.TransportForDialing(door)
	if by == nil {
		return nil, errors.ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return dialSingle(ctx, by, door, to)
}

// call says what a stream is for and takes the answer; without one the stream is
// gone.
func (h *shards) call(ctx context.Context, c shardConn, to peer.ID, call ShardCall) (*heldShard, error) {
	s, may := h.held.add(c, to, true)
	if !may {
		return nil, errors.Join(ErrPeerGone, c.Reset())
	}
	if err := callShard(ctx, s, call); err != nil {
		_ = s.Reset()
		return nil, err
	}
	return s, nil
}

// callShard says what a stream is for and takes the answer.
func callShard(ctx context.Context, s shardConn, call ShardCall) error {
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.SetDeadline(deadline)
	}
	stay := context.AfterFunc(ctx, func() { _ = s.Reset() })
	err := writeFrame(s, call)
	if err == nil {
		err = readShardAnswer(s)
	}
	if !stay() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return s.SetDeadline(time.Time{})
}

// fastest is the connection on which a small message there and back takes least:
// TCP before QUIC, and none through a relay where there is another one.
func fastest(conns []network.Conn) (best network.Conn) {
	rank := func(c network.Conn) (r int) {
		if isRelayed(c.RemoteMultiaddr()) {
			r += 2
		}
		if transportOf(c.RemoteMultiaddr()) != "tcp" {
			r++
		}
		return r
	}
	for _, c := range conns {
		if !c.IsClosed() && (best == nil || rank(c) < rank(best)) {
			best = c
		}
	}
	return best
}

// isAnswer says whether that is what the worker said, whichever way it is asked.
func isAnswer(err error) bool {
	return errors.Is(err, ErrShardStale) || errors.Is(err, ErrShardRefused) || errors.Is(err, ErrBadAnswer)
}

// brokenShard is why no shard stream could be opened.
func brokenShard(ctx context.Context, err error) error {
	if isAnswer(err) {
		return err
	}
	err = broken(ctx, err)
	if errors.Is(err, ErrRefused) {
		return fmt.Errorf("%w: this machine's trust does not reach that far", ErrShardRefused)
	}
	return err
}
