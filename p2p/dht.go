package p2p

import (
	"fmt"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
)

// newDHT joins the mesh's own DHT. It finds where a peer is when its contact
// record is out of date; who holds what is said by records. Its table is who is
// linked: it makes no connections of its own, to fill the table or to search, so
// that it costs nothing while nobody is looked for.
func newDHT(h host.Host, mesh membership.MeshID, member, linked func(peer.ID) bool) (*dht.IpfsDHT, error) {
	d, err := dht.New(h,
		dht.Mode(dht.ModeServer), // In auto mode a private mesh has no servers at all.
		dht.ProtocolPrefix(meshPrefix(mesh)),
		dht.DisableValues(),
		dht.DisableProviders(),
		dht.BootstrapPeers(),
		dht.DisableAutoRefresh(),
		dht.RoutingTableFilter(func(_ any, id peer.ID) bool { return member(id) }),
		dht.QueryFilter(func(_ any, info peer.AddrInfo) bool { return member(info.ID) && linked(info.ID) }),
	)
	if err != nil {
		return nil, fmt.Errorf("start the DHT: %w", err)
	}
	return d, nil
}
