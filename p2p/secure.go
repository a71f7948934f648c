package p2p

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
)

// ageless is the template of a certificate that is good at any time. The
// library's own begin an hour before "now" by the clock of their maker, and
// machines whose clocks are further apart than that could not connect.
func ageless() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		NotBefore:    time.Unix(0, 0).UTC(),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "No end", by RFC 5280, 4.1.2.5.
		Subject:      pkix.Name{SerialNumber: serial.String()},
	}, nil
}

// secureTCP is libp2p's TLS for TCP, with an ageless certificate: the library's
// own constructor takes no template.
type secureTCP struct {
	id       protocol.ID
	self     peer.ID
	identity *libp2ptls.Identity
	muxers   []string
}

func newSecureTCP(id protocol.ID, key crypto.PrivKey, muxers []upgrader.StreamMuxer) (*secureTCP, error) {
	self, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return nil, err
	}
	template, err := ageless()
	if err != nil {
		return nil, err
	}
	identity, err := libp2ptls.NewIdentity(key, libp2ptls.WithCertTemplate(template))
	if err != nil {
		return nil, err
	}
	t := &secureTCP{id: id, self: self, identity: identity}
	for _, m := range muxers {
		t.muxers = append(t.muxers, string(m.ID))
	}
	return t, nil
}

// ID names the protocol on the wire.
func (t *secureTCP) ID() protocol.ID { return t.id }

// SecureInbound answers a handshake; an empty id lets everybody try.
func (t *secureTCP) SecureInbound(ctx context.Context, insecure net.Conn, id peer.ID) (sec.SecureConn, error) {
	return t.handshake(ctx, insecure, id, tls.Server, t.muxers)
}

// SecureOutbound begins a handshake with one peer.
func (t *secureTCP) SecureOutbound(ctx context.Context, insecure net.Conn, id peer.ID) (sec.SecureConn, error) {
	return t.handshake(ctx, insecure, id, tls.Client, muxersFor(ctx, t.muxers))
}

func (t *secureTCP) handshake(ctx context.Context, insecure net.Conn, id peer.ID, side func(net.Conn, *tls.Config) *tls.Conn, muxers []string) (sec.SecureConn, error) {
	config, keys := t.identity.ConfigForPeer(id)
	agreed := config.NextProtos // What says that no multiplexer is agreed on here.
	config.NextProtos = append(append([]string{}, muxers...), agreed...)
	c := side(insecure, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, insecure.Close())
	}
	select {
	case key := <-keys: // There since the certificate was checked; nil from the closed channel where it was not.
		if key != nil {
			return t.secured(c, key, agreed)
		}
	default:
	}
	return nil, errors.Join(errors.New("the peer's key is not known after the handshake"), insecure.Close())
}

func (t *secureTCP) secured(c *tls.Conn, key crypto.PubKey, without []string) (sec.SecureConn, error) {
	remote, err := peer.IDFromPublicKey(key)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s := &securedConn{Conn: c, self: t.self, remote: remote, key: key}
	muxer := c.ConnectionState().NegotiatedProtocol
	for _, none := range without {
		if muxer == none {
			muxer = ""
		}
	}
	s.state = network.ConnectionState{StreamMultiplexer: protocol.ID(muxer), UsedEarlyMuxerNegotiation: muxer != ""}
	return s, nil
}

// securedConn is a connection after the handshake.
type securedConn struct {
	*tls.Conn
	self, remote peer.ID
	key          crypto.PubKey
	state        network.ConnectionState
}

func (c *securedConn) LocalPeer() peer.ID                 { return c.self }
func (c *securedConn) RemotePeer() peer.ID                { return c.remote }
func (c *securedConn) RemotePublicKey() crypto.PubKey     { return c.key }
func (c *securedConn) ConnState() network.ConnectionState { return c.state }
