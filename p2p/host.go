package p2p

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	libp2pconnmgr "github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	ma "github.com/multiformats/go-multiaddr"
)

// dialTimeout bounds one dial of one address.
const dialTimeout = 5 * time.Second

// newHost makes a libp2p host that listens nowhere yet: the gate has to stand
// before the first connection comes in. It contacts nobody by itself: no NAT
// probing, no port mapping, no relay, no public bootstrap. Singles that come in go
// to take; nil takes none.
func newHost(identity crypto.PrivKey, agent string, gater connmgr.ConnectionGater, take func(*single), more ...libp2p.Option) (host.Host, error) {
	limits, err := newResourceManager()
	if err != nil {
		return nil, fmt.Errorf("set resource limits: %w", err)
	}
	conns, err := libp2pconnmgr.NewConnManager(512, 1024, libp2pconnmgr.WithGracePeriod(time.Minute))
	if err != nil {
		return nil, fmt.Errorf("make the connection manager: %w", err)
	}
	certificate, err := ageless()
	if err != nil {
		return nil, err
	}
	if take == nil {
		take = func(s *single) { _ = s.Reset() }
	}
	options := []libp2p.Option{
		libp2p.Identity(identity),
		libp2p.NoListenAddrs,
		libp2p.Transport(newTCP(take)),
		libp2p.Transport(quic.NewTransport, quic.WithTLSIdentityOption(libp2ptls.WithCertTemplate(certificate))),
		libp2p.Security(libp2ptls.ID, newSecureTCP),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.Muxer(singleID, singleMuxer{}),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionManager(conns),
		libp2p.UserAgent(agent),
		libp2p.ProtocolVersion("relay/1"),
		libp2p.DisableRelay(),
		libp2p.Ping(false),
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.WithDialTimeout(dialTimeout),
		libp2p.SwarmOpts(swarm.WithDialRanker(rankDials)),
		libp2p.AddrsFactory(func(addrs []ma.Multiaddr) []ma.Multiaddr { return reachable(addrs, bridgedAddrs()) }),
	}
	if gater != nil {
		options = append(options, libp2p.ConnectionGater(gater))
	}
	return libp2p.New(append(options, more...)...)
}

// listen opens the addresses, and names the first one that cannot be had. That
// "every IPv6 address" is none, on a machine without IPv6, is no failure while
// another address stands.
func listen(h host.Host, addrs []ma.Multiaddr) error {
	opened := 0
	for _, a := range addrs {
		err := h.Network().Listen(a)
		switch {
		case err == nil:
			opened++
		case opened > 0 && strings.HasPrefix(a.String(), "/ip6/::/") && lacksFamily(err):
		case isPortTaken(err):
			return fmt.Errorf("listen on %s: %w", a, ErrPortInUse)
		default:
			return fmt.Errorf("listen on %s: %w", a, err)
		}
	}
	return nil
}

func lacksFamily(err error) bool {
	text := err.Error()
	return strings.Contains(text, "address family not supported") || strings.Contains(text, "cannot assign requested address")
}

// isPortTaken also reads the text: the swarm does not wrap the system's error.
func isPortTaken(err error) bool {
	text := err.Error()
	return errors.Is(err, syscall.EADDRINUSE) || strings.Contains(text, "address already in use") ||
		strings.Contains(text, "Only one usage of each socket address") // As Windows says it.
}

// LoadIdentity reads a peer's key from the bytes that NewIdentity made.
func LoadIdentity(data []byte) (crypto.PrivKey, error) {
	key, err := crypto.UnmarshalPrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("the identity key cannot be read: %w", err)
	}
	if key.Type() != crypto.Ed25519 {
		return nil, errors.New("the identity key is not an ed25519 key")
	}
	return key, nil
}

// NewIdentity makes the key of a new peer, and the bytes to keep it in.
func NewIdentity() (crypto.PrivKey, []byte, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	data, err := crypto.MarshalPrivateKey(key)
	return key, data, err
}
