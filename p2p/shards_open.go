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
// of the engine. It stands until either side closes it, either is no member any
// more with the trust that it takes, or Run ends. The connection has CloseWrite, and
// Reset, which ends both directions at once. Errors wrap ErrPeerGone when the worker
// cannot be reached, ErrShardStale when it does not know that placement (yet),
// ErrShardRefused, each with the worker's sentence, ErrProtocol, ErrBadAnswer, or are
// ctx's own; without a deadline of its own ctx gets 15 s.
func (n *Node) OpenShard(ctx context.Context, to peer.ID, call ShardCall) (net.Conn, error) {
	if err := call.check(); err != nil {
		return nil, err
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
func (h *shards) open(ctx context.Context, to peer.ID, call ShardCall) (net.Conn, error) {
	if err := h.n.links.reach(ctx, to); err != nil {
		return nil, err
	}
	link := fastest(h.n.host.Network().ConnsToPeer(to))
	if link == nil {
		return nil, ErrPeerGone
	}
	for _, door := range h.n.links.doorsOf(to, link) {
		s, err := h.dial(ctx, to, door)
		if err == nil {
			err = callShard(ctx, s, call)
		}
		if err == nil || isAnswer(err) {
			return s, err
		}
		h.n.log.Debug("no connection of its own for a shard stream", "peer", short(to), "addr", door, "error", err)
	}
	return h.openStream(ctx, link, call)
}

// openStream opens a stream on a link.
func (h *shards) openStream(ctx context.Context, link network.Conn, call ShardCall) (net.Conn, error) {
	s, err := openRaw(ctx, link, ProtocolShard)
	if err != nil {
		return nil, err
	}
	return streamConn{s}, callShard(ctx, streamConn{s}, call)
}

// dial opens a single to the worker at one address.
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
	s, err := dialSingle(ctx, by, door, to)
	if err == nil && !h.singles.add(s, true) {
		err = errors.Join(ErrPeerGone, s.Reset())
	}
	return s, err
}

// callShard says what a stream is for and takes the answer; without one the
// stream is gone.
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
		_ = s.Reset()
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
