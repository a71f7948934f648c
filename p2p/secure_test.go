package p2p

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
)

// shake lets two sides of a connection do their handshake, and returns what the
// dialling side presented.
func shake(t *testing.T, serve, dial *secureTCP, want peer.ID) (*x509.Certificate, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type end struct {
		cert *x509.Certificate
		err  error
	}
	served := make(chan end, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			served <- end{nil, err}
			return
		}
		c, err := serve.SecureInbound(ctx, raw, "")
		if err != nil {
			served <- end{nil, err}
			return
		}
		defer c.Close()
		if c.RemotePeer() != dial.self || c.ConnState().StreamMultiplexer != yamux.ID {
			t.Errorf("the peer is %s with the multiplexer %q", c.RemotePeer(), c.ConnState().StreamMultiplexer)
		}
		served <- end{c.(*securedConn).Conn.ConnectionState().PeerCertificates[0], nil}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c, err := dial.SecureOutbound(ctx, raw, want)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if c.RemotePeer() != serve.self {
		t.Errorf("the peer is %s", c.RemotePeer())
	}
	s := <-served
	return s.cert, s.err
}

func newTestTLS(t *testing.T) *secureTCP {
	t.Helper()
	key, _, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSecureTCP(libp2ptls.ID, key, []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: yamux.DefaultTransport}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCertificatesAreGoodAtAnyTime(t *testing.T) {
	a, b := newTestTLS(t), newTestTLS(t)
	cert, err := shake(t, a, b, a.self)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	for _, at := range []time.Time{time.Unix(1, 0), time.Now().AddDate(-20, 0, 0), time.Now().AddDate(0, 0, -2), time.Now().AddDate(0, 0, 2), time.Now().AddDate(900, 0, 0)} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

func TestAnotherPeerThanTheOneDialledIsRefused(t *testing.T) {
	a, b, other := newTestTLS(t), newTestTLS(t), newTestTLS(t)
	if _, err := shake(t, a, b, other.self); err == nil {
		t.Fatal("a peer passed for another one")
	}
}

// TestAnOrdinaryCertificateIsRefused: a key of its own is no proof of an identity.
func TestAnOrdinaryCertificateIsRefused(t *testing.T) {
	a := newTestTLS(t)
	template, err := ageless()
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := key.Raw()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, ed25519.PrivateKey(raw).Public(), ed25519.PrivateKey(raw))
	if err != nil {
		t.Fatal(err)
	}
	server, client := net.Pipe()
	defer server.Close()
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	go func() {
		_ = tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"libp2p"},
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: ed25519.PrivateKey(raw)}}}).HandshakeContext(ctx)
	}()
	if c, err := a.SecureInbound(ctx, server, ""); err == nil {
		t.Fatalf("let in as %s", c.RemotePeer())
	}
}
