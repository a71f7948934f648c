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
	msmux "github.com/multiformats/go-multistream"
	"golang.org/x/sync/errgroup"
)

const (
	// ownStreams is how many requests between two peers have a stream to themselves,
	// which is the quickest. QUIC allows one connection 256.
	ownStreams = 128
	// maxControlStreams and maxBlockStreams leave room for the others below QUIC's 256;
	// what is more waits its turn.
	maxControlStreams = 24
	maxBlockStreams   = rangesPerPeer + questionsPerPeer
	idleStreams       = 32
	idleStreamLife    = time.Minute
)

// web is HTTP over streams: plain net/http at both ends, so that cancelling a
// request at one is seen at the other.
type web struct {
	n        *Node
	channels map[protocol.ID]*channel
	crowds   crowds
}

// channel is HTTP on one protocol.
type channel struct {
	listener net.Listener
	server   *http.Server    // What answers here.
	client   *http.Transport // What asks others.
}

func newWeb(n *Node) *web {
	w := &web{n: n, channels: map[protocol.ID]*channel{}}
	for id, client := range map[protocol.ID]*http.Transport{
		ProtocolHTTP:    newTransport(w.dial(ProtocolHTTP), ownStreams),
		ProtocolCrowd:   newCrowdTransport(w.dial(ProtocolCrowd)),
		ProtocolControl: newTransport(w.dial(ProtocolControl), maxControlStreams),
		ProtocolBlocks:  newBlockTransport(w.dial(ProtocolBlocks)),
	} {
		w.channels[id] = &channel{client: client, server: w.newServer()}
	}
	serveCrowds(w.channels[ProtocolCrowd].server)
	return w
}

// dialStream opens a stream to the peer that stands where a host name would.
type dialStream func(ctx context.Context, network, addr string) (net.Conn, error)

func newTransport(dial dialStream, most int) *http.Transport {
	return &http.Transport{
		DialContext:         dial,
		MaxIdleConnsPerHost: min(idleStreams, most),
		MaxConnsPerHost:     most,
		IdleConnTimeout:     idleStreamLife,
		DisableCompression:  true,
	}
}

func (w *web) newServer() *http.Server {
	return &http.Server{
		Handler:           http.NotFoundHandler(),
		ReadHeaderTimeout: joinPatience,
		IdleTimeout:       2 * idleStreamLife,
		ErrorLog:          slog.NewLogLogger(w.n.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			id, _ := peer.Decode(c.RemoteAddr().String())
			return context.WithValue(ctx, remoteKey{}, id)
		},
	}
}

func (w *web) dial(id protocol.ID) dialStream {
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
		switch {
		case errors.Is(err, msmux.ErrNotSupported[protocol.ID]{}):
			return nil, fmt.Errorf("%w (it does not know %s)", ErrProtocol, id)
		case err != nil:
			return nil, fmt.Errorf("%w: %v", ErrPeerGone, err)
		}
		return clientConn{conn}, nil
	}
}

// clientConn ends both directions when the client is done with it. Closing a
// stream only says that nothing more will be sent: the other side would go on
// writing an answer that nobody takes, and never learn of it.
type clientConn struct{ net.Conn }

func (c clientConn) Close() error { return reset(c.Conn) }

// reset ends both directions of a stream at once.
func reset(c net.Conn) error {
	if s, ok := c.(interface{ Reset() error }); ok {
		return s.Reset()
	}
	return c.Close()
}

func (w *web) open() (err error) {
	for id, c := range w.channels {
		if c.listener, err = gostream.Listen(w.n.host, id); err != nil {
			return err
		}
	}
	return nil
}

// answer sets what answers on a protocol. It must be called before run.
func (w *web) answer(id protocol.ID, handler http.Handler) { w.channels[id].server.Handler = handler }

type remoteKey struct{}

// RemotePeer is the member that sent a request which Serve's handlers got.
func RemotePeer(ctx context.Context) (peer.ID, bool) {
	id, ok := ctx.Value(remoteKey{}).(peer.ID)
	return id, ok && id != ""
}

func (w *web) run(ctx context.Context) error {
	var group errgroup.Group
	for _, c := range w.channels {
		group.Go(func() error {
			err := c.server.Serve(c.listener)
			if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		for _, c := range w.channels {
			_ = c.listener.Close()
			_ = c.server.Close()
			c.client.CloseIdleConnections()
		}
		return nil
	})
	return group.Wait()
}

// HTTP reaches the hop handler of a member: the request's URL needs a path
// only. Errors in reaching it wrap ErrPeerGone.
func (n *Node) HTTP(to peer.ID) http.RoundTripper { return requestTripper{n.web, to} }

// Control reaches the control handler of a member in the same way.
func (n *Node) Control(to peer.ID) http.RoundTripper { return n.web.to(to, ProtocolControl) }

func (w *web) to(id peer.ID, by protocol.ID) streamTripper {
	return streamTripper{w.channels[by].client, id}
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
