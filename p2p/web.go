package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/gostream"
	"golang.org/x/sync/errgroup"
)

const (
	// maxStreamsPerPeer and maxControlStreams together stay below the 256 that
	// QUIC allows one connection; what is more waits its turn.
	maxStreamsPerPeer = 200
	maxControlStreams = 24
	idleStreams       = 32
	idleStreamLife    = time.Minute
)

// web is HTTP over streams: plain net/http at both ends, so that cancelling a
// request at one is seen at the other.
type web struct {
	n       *Node
	hop     net.Listener
	control net.Listener
	servers [2]*http.Server
	clients map[protocol.ID]*http.Transport
}

func newWeb(n *Node) *web {
	w := &web{n: n, clients: map[protocol.ID]*http.Transport{}}
	for id, most := range map[protocol.ID]int{ProtocolHTTP: maxStreamsPerPeer, ProtocolControl: maxControlStreams} {
		w.clients[id] = &http.Transport{
			DialContext:         w.dial(id),
			MaxIdleConnsPerHost: min(idleStreams, most),
			MaxConnsPerHost:     most,
			IdleConnTimeout:     idleStreamLife,
			DisableCompression:  true,
		}
	}
	w.serve(http.NotFoundHandler(), http.NotFoundHandler())
	return w
}

// dial opens a stream to the peer that stands where a host name would.
func (w *web) dial(id protocol.ID) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		to, err := peer.Decode(host)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := gostream.Dial(ctx, w.n.host, to, id)
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrPeerGone, err)
		}
		return clientConn{conn}, nil
	}
}

// clientConn ends both directions when the client is done with it. Closing a
// stream only says that nothing more will be sent: the other side would go on
// writing an answer that nobody takes, and never learn of it.
type clientConn struct{ net.Conn }

func (c clientConn) Close() error {
	if s, ok := c.Conn.(interface{ Reset() error }); ok {
		return s.Reset()
	}
	return c.Conn.Close()
}

func (w *web) open() (err error) {
	if w.hop, err = gostream.Listen(w.n.host, ProtocolHTTP); err != nil {
		return err
	}
	w.control, err = gostream.Listen(w.n.host, ProtocolControl)
	return err
}

func (w *web) serve(hop, control http.Handler) {
	for i, handler := range []http.Handler{hop, control} {
		w.servers[i] = &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: joinPatience,
			IdleTimeout:       2 * idleStreamLife,
			ErrorLog:          slog.NewLogLogger(w.n.log.Handler(), slog.LevelDebug),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				id, _ := peer.Decode(c.RemoteAddr().String())
				return context.WithValue(ctx, remoteKey{}, id)
			},
		}
	}
}

type remoteKey struct{}

// RemotePeer is the member that sent a request which Serve's handlers got.
func RemotePeer(ctx context.Context) (peer.ID, bool) {
	id, ok := ctx.Value(remoteKey{}).(peer.ID)
	return id, ok && id != ""
}

func (w *web) run(ctx context.Context) error {
	var group errgroup.Group
	for i, listener := range []net.Listener{w.hop, w.control} {
		group.Go(func() error {
			err := w.servers[i].Serve(listener)
			if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		for i, listener := range []net.Listener{w.hop, w.control} {
			_ = listener.Close()
			_ = w.servers[i].Close()
		}
		for _, t := range w.clients {
			t.CloseIdleConnections()
		}
		return nil
	})
	return group.Wait()
}

// HTTP reaches the hop handler of a member: the request's URL needs a path
// only. Errors in reaching it wrap ErrPeerGone.
func (n *Node) HTTP(to peer.ID) http.RoundTripper {
	return streamTripper{n.web.clients[ProtocolHTTP], to}
}

// Control reaches the control handler of a member in the same way.
func (n *Node) Control(to peer.ID) http.RoundTripper {
	return streamTripper{n.web.clients[ProtocolControl], to}
}

type streamTripper struct {
	transport *http.Transport
	to        peer.ID
}

// RoundTrip sends the request to the peer, whatever host its URL names.
func (t streamTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = "http", t.to.String(), t.to.String()
	return t.transport.RoundTrip(r)
}
