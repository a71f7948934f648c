package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
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

func (h *shards) open(ctx context.Context, to peer.ID, call ShardCall) (net.Conn, error) {
	if err := h.n.links.reach(ctx, to); err != nil {
		return nil, err
	}
	link := fastest(h.n.host.Network().ConnsToPeer(to))
	if link == nil {
		return nil, ErrPeerGone
	}
	s, err := openRaw(ctx, link, ProtocolShard)
	if err != nil {
		return nil, err
	}
	stay := context.AfterFunc(ctx, func() { _ = s.Reset() })
	if err = writeFrame(s, call); err == nil {
		err = readShardAnswer(s)
	}
	if !stay() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = s.Reset()
		return nil, err
	}
	_ = s.SetDeadline(time.Time{})
	return streamConn{s}, nil
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

// brokenShard is why no shard stream could be opened.
func brokenShard(ctx context.Context, err error) error {
	for _, said := range []error{ErrShardStale, ErrShardRefused, ErrProtocol, ErrBadAnswer} {
		if errors.Is(err, said) {
			return err
		}
	}
	var gated *network.StreamError
	if errors.As(err, &gated) && gated.ErrorCode == network.StreamGated {
		return fmt.Errorf("%w: this machine's trust does not reach that far", ErrShardRefused)
	}
	return broken(ctx, err)
}

// streamAddr is a peer as an address.
type streamAddr peer.ID

func (streamAddr) Network() string  { return "libp2p" }
func (a streamAddr) String() string { return peer.ID(a).String() }
