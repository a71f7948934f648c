package p2p

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	msmux "github.com/multiformats/go-multistream"

	"relay/p2p/membership"
)

const (
	// maxStrangers bounds the connections of peers that are not members yet, and
	// strangersPerAddress those from one address: an office is one address.
	maxStrangers        = 64
	strangersPerAddress = 24
	// strangerPatience is how long such a connection may stay.
	strangerPatience = 10 * time.Second
	// admissionPatience is how long a stream waits for its peer to prove itself:
	// the libraries open theirs as soon as a connection stands, while the proof
	// still travels beside them.
	admissionPatience = 3 * time.Second
	// heldPerPeer and heldInAll bound the streams of strangers, waiting or
	// answered: few enough that members never miss the room they take, and enough
	// for all connections that strangers have, so that those from one address
	// leave room to join for somebody at another one.
	heldPerPeer = 16
	heldInAll   = maxStrangers * heldPerPeer
	// joinsPerPeer bounds the join streams of one stranger.
	joinsPerPeer = 2
)

// gate stands in front of every handler of the host, those of the libraries
// included. Members pass by the table of protocols; strangers reach a small
// multiplexer of their own.
type gate struct {
	mesh   membership.MeshID
	log    *slog.Logger
	member func(peer.ID) (membership.Member, bool)

	// cut is for tests: no connection to these peers stands.
	cut func(peer.ID) bool
	// keptOut says who is refused for a while; nil: nobody.
	keptOut func(peer.ID) bool

	inner     network.StreamHandler
	strangers *msmux.MultistreamMuxer[protocol.ID]

	ctx  context.Context // Ends with the node.
	work *work

	held    *turns // Streams of strangers.
	joining *turns // Those of them that join.

	mu      sync.Mutex
	changed chan struct{}              // Closed and replaced at every change of the roster.
	since   map[network.Conn]time.Time // Connections of strangers, by arrival.
}

func newGate(ctx context.Context, w *work, mesh membership.MeshID, member func(peer.ID) (membership.Member, bool), log *slog.Logger) *gate {
	return &gate{
		mesh: mesh, member: member, log: log, changed: make(chan struct{}), ctx: ctx, work: w,
		strangers: msmux.NewMultistreamMuxer[protocol.ID](),
		held:      newTurns(heldPerPeer, heldInAll), joining: newTurns(joinsPerPeer, heldInAll), since: map[network.Conn]time.Time{},
	}
}

// install puts the gate between the network and the host's handlers. It must be
// called before the host listens.
func (g *gate) install(h host.Host) error {
	sw, ok := h.Network().(*swarm.Swarm)
	if !ok {
		return fmt.Errorf("the host's network is a %T, which the gate cannot stand in front of", h.Network())
	}
	g.inner = sw.StreamHandler()
	sw.SetStreamHandler(g.handle)
	return nil
}

// handle is called by the network with every stream that a peer opens.
func (g *gate) handle(s network.Stream) {
	if !g.work.begin() {
		_ = s.Reset()
		return
	}
	defer g.work.end()
	id := s.Conn().RemotePeer()
	if _, ok := g.member(id); ok {
		g.inner(s)
		return
	}
	if !g.held.take(id) {
		_ = s.ResetWithError(network.StreamResourceLimitExceeded)
		return
	}
	admitted := g.handleStranger(s, id)
	g.held.give(id)
	if admitted != nil {
		g.inner(admitted)
	}
}

// handleStranger answers a stream of somebody who is not a member, or gives it
// back, whole, if its peer became one meanwhile.
func (g *gate) handleStranger(s network.Stream, id peer.ID) (admitted network.Stream) {
	first, replay, err := peekProtocol(s)
	if err != nil {
		_ = s.Reset()
		return nil
	}
	if first == ProtocolJoin {
		if !g.joining.take(id) {
			_ = s.ResetWithError(network.StreamResourceLimitExceeded)
			return nil
		}
		defer g.joining.give(id)
	} else if g.await(g.ctx, id, admissionPatience) {
		return replay
	}
	_ = replay.SetDeadline(time.Now().Add(strangerPatience))
	chosen, handler, err := g.strangers.Negotiate(replay)
	if err != nil {
		_ = s.ResetWithError(network.StreamProtocolNegotiationFailed)
		return nil
	}
	if err := s.SetProtocol(chosen); err != nil {
		_ = s.ResetWithError(network.StreamResourceLimitExceeded)
		return nil
	}
	if err := handler(chosen, replay); err != nil {
		_ = s.Reset()
	}
	return nil
}

// forStrangers adds a protocol that anybody may open.
func (g *gate) forStrangers(id protocol.ID, handler network.StreamHandler) {
	g.strangers.AddHandler(id, func(_ protocol.ID, rw ioStream) error {
		handler(rw.(network.Stream))
		return nil
	})
}

// await waits until the peer is a member, or the time is over.
func (g *gate) await(ctx context.Context, id peer.ID, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		g.mu.Lock()
		changed := g.changed
		g.mu.Unlock()
		if _, ok := g.member(id); ok {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// rosterChanged wakes whoever waits for an admission.
func (g *gate) rosterChanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.changed)
	g.changed = make(chan struct{})
}

// arrived notes a connection of a peer that is not a member, and says whether
// there is room for it.
func (g *gate) arrived(c network.Conn) bool {
	if _, ok := g.member(c.RemotePeer()); ok || c.Stat().Direction == network.DirOutbound {
		return true
	}
	from := hostOf(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	same := 0
	for other := range g.since {
		if hostOf(other) == from {
			same++
		}
	}
	if len(g.since) >= maxStrangers || same >= strangersPerAddress {
		return false
	}
	g.since[c] = time.Now()
	return true
}

func hostOf(c network.Conn) string {
	ip, err := manet.ToIP(c.RemoteMultiaddr())
	if err != nil {
		return ""
	}
	return ip.String()
}

func (g *gate) left(c network.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.since, c)
}

// sweep closes the connections of strangers that had their time.
func (g *gate) sweep(now time.Time) {
	g.mu.Lock()
	var over []network.Conn
	for c, since := range g.since {
		if _, ok := g.member(c.RemotePeer()); ok {
			delete(g.since, c)
		} else if now.Sub(since) >= strangerPatience {
			over = append(over, c)
		}
	}
	g.mu.Unlock()
	for _, c := range over {
		g.log.Debug("stranger cut off", "peer", short(c.RemotePeer()))
		_ = c.Close()
	}
}

// The connection gater of the host: only members are dialled, and few
// strangers are let in at a time.

// InterceptPeerDial lets only members be dialled.
func (g *gate) InterceptPeerDial(id peer.ID) bool {
	_, ok := g.member(id)
	return ok && !g.isCut(id)
}

func (g *gate) isCut(id peer.ID) bool {
	return g.cut != nil && g.cut(id) || g.keptOut != nil && g.keptOut(id)
}

// InterceptAddrDial lets every address of a member be dialled.
func (g *gate) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept lets every connection begin; who it is shows later.
func (g *gate) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured lets members in, and strangers while there is room for them.
func (g *gate) InterceptSecured(dir network.Direction, id peer.ID, _ network.ConnMultiaddrs) bool {
	if g.isCut(id) {
		return false
	}
	if _, ok := g.member(id); ok || dir == network.DirOutbound {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.since) < maxStrangers
}

// InterceptUpgraded lets every connection that came this far stand.
func (g *gate) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// gatedHost is the host as the libraries get it: their handlers are entered in
// the table's name, and their streams to a peer wait until it is a member.
type gatedHost struct {
	host.Host
	gate  *gate
	reach func(context.Context, peer.ID) error // Dials a member where it says that it is.
}

func (h gatedHost) SetStreamHandler(id protocol.ID, handler network.StreamHandler) {
	h.Host.SetStreamHandler(id, h.gate.guard(id, handler))
}

func (h gatedHost) SetStreamHandlerMatch(id protocol.ID, match func(protocol.ID) bool, handler network.StreamHandler) {
	h.Host.SetStreamHandlerMatch(id, match, h.gate.guard(id, handler))
}

// NewStream opens a stream to a member; to anybody else it waits a moment for
// the proof that may be on its way.
func (h gatedHost) NewStream(ctx context.Context, id peer.ID, protocols ...protocol.ID) (network.Stream, error) {
	if !h.gate.await(ctx, id, admissionPatience) {
		return nil, fmt.Errorf("open a stream to %s: %w", short(id), membership.ErrNotMember)
	}
	if noDial, _ := network.GetNoDial(ctx); !noDial {
		if err := h.reach(ctx, id); err != nil {
			return nil, fmt.Errorf("open a stream to %s: %w", short(id), err)
		}
	}
	return h.Host.NewStream(ctx, id, protocols...)
}

// guard asks the table at every stream, since trust may change while a
// connection stands.
func (g *gate) guard(id protocol.ID, handler network.StreamHandler) network.StreamHandler {
	rule, listed := accessTo(g.mesh, id)
	if !listed {
		g.log.Error("a protocol without a rule is refused to everybody", "protocol", id)
	}
	return func(s network.Stream) {
		m, ok := g.member(s.Conn().RemotePeer())
		if !listed || !rule.strangers && (!ok || !rule.admits(m.Trust)) {
			g.log.Warn("stream refused", "peer", short(s.Conn().RemotePeer()), "protocol", id)
			_ = s.ResetWithError(network.StreamGated)
			return
		}
		handler(s)
	}
}

// short is a peer id for logs.
func short(id peer.ID) string {
	text := id.String()
	return text[max(0, len(text)-8):]
}
