package p2p

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"relay/p2p/liveness"
)

// Reach connects to a member to which there is no link, where its contact record
// says that it is; one that is connected is reached. The connection stays while
// it is used, and for a minute more. The error wraps ErrPeerGone. Requests by
// HTTP and Control reach their member by themselves.
func (n *Node) Reach(ctx context.Context, id peer.ID) error {
	if err := n.links.reach(ctx, id); err != nil {
		return fmt.Errorf("%w: %v", ErrPeerGone, err)
	}
	return nil
}

func (l *links) reach(ctx context.Context, id peer.ID) error {
	if l.isLinked(id) {
		return nil
	}
	l.mu.Lock()
	k := l.members[id]
	l.mu.Unlock()
	if k == nil {
		return ErrNotMember
	}
	shut, err := l.connect(ctx, id, k)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		l.mu.Lock()
		k.miss(shut)
		l.mu.Unlock()
	}
	return err
}

// connect dials a member where it says that it is, and now and then where others
// say: its addresses may have changed since it wrote them. shut says that this
// failed while others heard the member, before and since.
func (l *links) connect(ctx context.Context, id peer.ID, k *link) (shut bool, err error) {
	l.mu.Lock()
	began := l.now()
	heard := k.told.State(began) == liveness.Alive
	l.mu.Unlock()
	if err = l.dialOnce(ctx, id, k); err == nil {
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	age, ever := k.told.Age(l.now())
	return heard && ever && age < l.now()-began, err
}

func (l *links) dialOnce(ctx context.Context, id peer.ID, k *link) error {
	// The library's own pauses between dials grow to minutes; ours are enough.
	if sw, ok := l.n.host.Network().(*swarm.Swarm); ok {
		sw.Backoff().Clear(id)
	}
	info := peer.AddrInfo{ID: id}
	info.Addrs, _ = l.n.contact(id)
	err := l.n.host.Connect(ctx, info)
	if err == nil || ctx.Err() != nil {
		return err
	}
	l.mu.Lock()
	lookUp := time.Since(k.lookedUp) >= lookupEvery
	if lookUp {
		k.lookedUp = time.Now()
	}
	l.mu.Unlock()
	if lookUp {
		if found, lookup := l.n.dht.FindPeer(ctx, id); lookup == nil {
			return l.n.host.Connect(ctx, found)
		}
	}
	return err
}

// isLinked says whether a member is connected.
func (l *links) isLinked(id peer.ID) bool {
	return l.n.host.Network().Connectedness(id) == network.Connected
}

// letGo closes a connection that this peer made and that nothing needs any more.
// The side that did not make it leaves it standing: whoever dialled knows why.
// The lock must be held.
func (l *links) letGo(id peer.ID, k *link, at time.Duration) {
	conns := l.n.host.Network().ConnsToPeer(id)
	for _, c := range conns {
		if carries(c) {
			k.used = at
		}
	}
	if l.n.shards.held.with(id) {
		k.used = at
	}
	if moved := l.n.exchange.moved(id); moved != k.moved {
		k.moved, k.used = moved, at
	}
	if at-max(k.used, k.since) < keptUnused {
		return
	}
	for _, c := range conns {
		if c.Stat().Direction == network.DirOutbound {
			l.n.work.run(func() { _ = c.Close() })
		}
	}
}

// carries says whether anything but what every connection has is under way: a
// request and its answer, or a stream that is kept for the next one.
func carries(c network.Conn) bool {
	for _, s := range c.GetStreams() {
		switch name := string(s.Protocol()); {
		case s.Protocol() == ProtocolProbe, s.Protocol() == protocolIdentify, s.Protocol() == protocolIdentifyPush,
			strings.HasPrefix(name, "/meshsub/"), strings.HasPrefix(name, "/floodsub/"),
			strings.Contains(name, "/kad/"),
			strings.Contains(name, "/ipfs/bitswap"): // Kept for as long as the connection; its bytes count.
		default:
			return true
		}
	}
	return false
}

// missedFor is how long one that others heard and this peer could not reach is
// held for suspect: longer than until it was tried again, which takes up to
// firstRedial and twice dialTimeout.
const missedFor = 15 * time.Second

// state is how a member looks. What this peer hears itself goes before what
// others say; of whom it does not hear, their word counts.
func (k *link) state(now time.Duration) liveness.State {
	if k.own {
		return k.seen.State(now)
	}
	s := k.told.State(now)
	if s == liveness.Alive && time.Since(k.missed) < missedFor {
		return liveness.Suspect
	}
	return s
}

// silence is how long ago the member was last heard: by this peer if it is to
// hear it itself, else by anybody. ok is false where it never was.
func (k *link) silence(now time.Duration) (silence time.Duration, ok bool) {
	if k.own {
		return k.seen.Silence(now)
	}
	return k.told.Age(now)
}
