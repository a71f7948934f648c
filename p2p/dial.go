package p2p

import (
	"cmp"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// dialStep is how long a better kind of address is given before the next kind
// is dialled as well.
const dialStep = 250 * time.Millisecond

// rankDials orders the addresses of one peer: on a local network TCP first,
// since QUIC moves a third of the bytes per core there; across the internet
// QUIC first, which survives more routers; relays last.
func rankDials(addrs []ma.Multiaddr) []network.AddrDelay {
	ranked := make([]network.AddrDelay, 0, len(addrs))
	for _, a := range addrs {
		ranked = append(ranked, network.AddrDelay{Addr: a, Delay: time.Duration(dialClass(a)) * dialStep})
	}
	slices.SortStableFunc(ranked, func(a, b network.AddrDelay) int { return cmp.Compare(a.Delay, b.Delay) })
	if len(ranked) > 0 { // Nobody waits for an address that is not there.
		first := ranked[0].Delay
		for i := range ranked {
			ranked[i].Delay -= first
		}
	}
	return ranked
}

func dialClass(a ma.Multiaddr) int {
	if isRelayed(a) {
		return 4
	}
	local := manet.IsPrivateAddr(a) || manet.IsIPLoopback(a) || manet.IsIP6LinkLocal(a)
	_, err := a.ValueForProtocol(ma.P_TCP)
	tcp := err == nil
	switch {
	case local && tcp:
		return 0
	case local:
		return 1
	case !tcp:
		return 2
	}
	return 3
}

func isRelayed(a ma.Multiaddr) bool {
	_, err := a.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil
}

// transportOf names the transport of an address for people: tcp or quic.
func transportOf(a ma.Multiaddr) string {
	if _, err := a.ValueForProtocol(ma.P_QUIC_V1); err == nil {
		return "quic"
	}
	return "tcp"
}
