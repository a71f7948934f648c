package p2p

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	ma "github.com/multiformats/go-multiaddr"
)

// A single is a TCP connection of its own to the same port, secured as any link is,
// and without a multiplexer: it carries one stream, itself. A multiplexed stream
// adds a goroutine, a copy and a header to each message at both ends, and waits
// behind whatever else the link carries. Both ends agree on it in the handshake,
// where they name the multiplexer.

// singleID is what stands where the multiplexer is named.
const singleID = "/relay/single/1"

// singleMuxer is the multiplexer of singles.
type singleMuxer struct{}

// NewConn takes the connection as it is.
func (singleMuxer) NewConn(c net.Conn, _ bool, _ network.PeerScope) (network.MuxedConn, error) {
	return &bareConn{Conn: c}, nil
}

var errSingle = errors.New("this connection carries one stream, itself")

// bareConn is a connection where libp2p wants one that carries streams.
type bareConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *bareConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *bareConn) CloseWithError(network.ConnErrorCode) error { return c.Close() }
func (c *bareConn) IsClosed() bool                             { return c.closed.Load() }
func (c *bareConn) AcceptStream() (network.MuxedStream, error) { return nil, errSingle }
func (c *bareConn) OpenStream(context.Context) (network.MuxedStream, error) {
	return nil, errSingle
}

// As gives the connection away.
func (c *bareConn) As(target any) (ok bool) {
	if t, is := target.(**securedConn); is {
		*t, ok = c.Conn.(*securedConn)
	}
	return ok
}

// single is one as a connection.
type single struct {
	*securedConn
	whole transport.CapableConn
}

func newSingle(c transport.CapableConn) (*single, bool) {
	s := &single{whole: c}
	if c.ConnState().StreamMultiplexer != singleID || !c.As(&s.securedConn) {
		return nil, false
	}
	s.linger(-1) // The library's end by dropping what is under way.
	return s, true
}

// linger sets what closing does with what is under way: it goes on (-1) or is
// dropped (0).
func (s *single) linger(seconds int) {
	if raw, can := s.NetConn().(interface{ SetLinger(int) error }); can {
		_ = raw.SetLinger(seconds)
	}
}

// Close tells the other side and gives everything back.
func (s *single) Close() error { return s.whole.Close() }

// Reset ends both directions at once: what is under way is dropped, and the
// other side need not take anything for it to end.
func (s *single) Reset() error {
	s.linger(0)
	_ = s.NetConn().Close()
	return s.Close()
}

// tcpTransport is libp2p's, which gives the singles that come in to take.
type tcpTransport struct {
	*tcp.TcpTransport
	take func(*single)
}

// newTCP makes the constructor that libp2p calls.
func newTCP(take func(*single)) func(transport.Upgrader, network.ResourceManager, *tcpreuse.ConnMgr) (*tcpTransport, error) {
	return func(u transport.Upgrader, limits network.ResourceManager, shared *tcpreuse.ConnMgr) (*tcpTransport, error) {
		t, err := tcp.NewTCPTransport(u, limits, shared)
		return &tcpTransport{t, take}, err
	}
}

// Listen opens an address.
func (t *tcpTransport) Listen(addr ma.Multiaddr) (transport.Listener, error) {
	l, err := t.TcpTransport.Listen(addr)
	if err != nil {
		return nil, err
	}
	return &tcpListener{l, t.take}, nil
}

// tcpListener keeps singles from the swarm, which would open streams on them.
type tcpListener struct {
	transport.Listener
	take func(*single)
}

// Accept gives the next link.
func (l *tcpListener) Accept() (transport.CapableConn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s, ok := newSingle(c)
		if !ok {
			return c, nil
		}
		l.take(s)
	}
}

type singleKey struct{}

// dialSingle opens one to a peer at an address.
func dialSingle(ctx context.Context, by transport.Transport, addr ma.Multiaddr, to peer.ID) (*single, error) {
	c, err := by.Dial(context.WithValue(ctx, singleKey{}, true), addr, to)
	if err != nil {
		return nil, err
	}
	s, ok := newSingle(c)
	if !ok { // It knows none.
		_ = c.Close()
		return nil, ErrProtocol
	}
	return s, nil
}

// muxersFor is what who dials names in the handshake: no multiplexer where it
// opens a single, and else no single. Who answers names both.
func muxersFor(ctx context.Context, all []string) []string {
	one, _ := ctx.Value(singleKey{}).(bool)
	return slices.DeleteFunc(slices.Clone(all), func(m string) bool { return (m == singleID) != one })
}
