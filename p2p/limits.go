package p2p

import (
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/x/rate"
)

const (
	// streamsPerPeer bounds the streams of one member, in each direction. The
	// library's default lets about 75 through, far fewer than a busy entrance has.
	streamsPerPeer = 4096
	// peerMemory is what the streams of one member may reserve: yamux charges
	// 256 KiB for each, in a scope whose default stops a 4 GB machine at 512.
	peerMemory = streamsPerPeer * (256 << 10)
	// linksPerPeer bounds the links with one member, in each direction: one, but for
	// moments. Its shard streams have connections of their own beside them.
	linksPerPeer = 8
	connsPerPeer = linksPerPeer + shardsPerPeer + undecidedPerPeer
	// connsPerAddress bounds the connections from one address: an office behind
	// one router is one address. The default drops the ninth without an error.
	connsPerAddress = 256
	// handshakes bounds the connections that belong to nobody yet, and
	// negotiations the streams whose protocol is not agreed on yet, members' and
	// strangers' alike: strangers are bounded lower, by the gate.
	handshakes   = 256
	negotiations = 4096
)

// newResourceManager sets every limit that the mesh leans on explicitly.
func newResourceManager() (network.ResourceManager, error) {
	defaults := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&defaults)
	wide := rcmgr.ResourceLimits{
		Streams: 4 * streamsPerPeer, StreamsInbound: 2 * streamsPerPeer, StreamsOutbound: 2 * streamsPerPeer,
		Conns: 4096, ConnsInbound: 2048, ConnsOutbound: 2048, FD: 4096, Memory: 4 * peerMemory,
	}
	member := rcmgr.ResourceLimits{
		Streams: 2 * streamsPerPeer, StreamsInbound: streamsPerPeer, StreamsOutbound: streamsPerPeer,
		Conns: 2 * connsPerPeer, ConnsInbound: connsPerPeer, ConnsOutbound: connsPerPeer, FD: 2 * connsPerPeer, Memory: peerMemory,
	}
	transient := rcmgr.ResourceLimits{
		Streams: 2 * negotiations, StreamsInbound: negotiations, StreamsOutbound: negotiations,
		Conns: 2 * handshakes, ConnsInbound: handshakes, ConnsOutbound: handshakes, FD: 2 * handshakes,
		Memory: 2 * negotiations * (256 << 10),
	}
	limits := rcmgr.PartialLimitConfig{
		System: wide, Transient: transient, PeerDefault: member,
		ProtocolDefault: wide, ProtocolPeerDefault: member, ServiceDefault: wide, ServicePeerDefault: member,
	}.Build(defaults.AutoScale())
	// A mesh that comes back after a power cut dials all at once. The limit is for
	// each address: one for all of them would let anybody keep everybody out.
	fromOne := rate.Limit{RPS: 64, Burst: connsPerAddress}
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits),
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: connsPerAddress}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: connsPerAddress}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{
			NetworkPrefixLimits: []rate.PrefixLimit{{Prefix: netip.MustParsePrefix("127.0.0.0/8")}, {Prefix: netip.MustParsePrefix("::1/128")}},
			SubnetRateLimiter: rate.SubnetLimiter{
				IPv4SubnetLimits: []rate.SubnetLimit{{PrefixLength: 32, Limit: fromOne}},
				IPv6SubnetLimits: []rate.SubnetLimit{{PrefixLength: 56, Limit: fromOne}},
				GracePeriod:      time.Minute,
			},
		}))
}
