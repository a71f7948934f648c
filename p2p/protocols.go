package p2p

import (
	"strings"

	"github.com/libp2p/go-libp2p/core/protocol"

	"relay/p2p/membership"
)

// The protocols of the mesh.
const (
	ProtocolJoin  protocol.ID = "/relay/join/1"
	ProtocolSync  protocol.ID = "/relay/sync/1"
	ProtocolProbe protocol.ID = "/relay/probe/1"
	// ProtocolHTTP carries requests of clients to the peer that serves them.
	ProtocolHTTP protocol.ID = "/relay/http/1"
	// ProtocolCrowd carries those that are more than streams are good for.
	ProtocolCrowd protocol.ID = "/relay/http/2"
	// ProtocolControl carries what peers ask of each other.
	ProtocolControl protocol.ID = "/relay/ctl/1"
	// ProtocolBlocks carries long ranges of files, and what a peer has of them.
	ProtocolBlocks protocol.ID = "/relay/blocks/1"
	// ProtocolShard carries the connections of an engine to the peers that take a
	// part of its model.
	ProtocolShard protocol.ID = "/relay/shard/1"

	protocolIdentify     protocol.ID = "/ipfs/id/1.0.0"
	protocolIdentifyPush protocol.ID = "/ipfs/id/push/1.0.0"
)

// Version is the number of relay's own protocol; peers of different versions
// say so when they meet, and do not talk.
const Version = 1

// access is who may open a protocol on this peer.
type access struct {
	// strangers: anybody who can reach the port.
	strangers bool
	// trusts: members with one of these trusts.
	trusts []membership.Trust
}

func (a access) admits(t membership.Trust) bool {
	for _, allowed := range a.trusts {
		if allowed == t {
			return true
		}
	}
	return false
}

var (
	everyMember = []membership.Trust{membership.TrustReplicas, membership.TrustShardOnly, membership.TrustClient}
	everyHolder = []membership.Trust{membership.TrustReplicas, membership.TrustShardOnly}
)

// accessTo is the one table of who may open what. A protocol that is not in it
// is refused to everybody; a test fails for a handler without a line here.
func accessTo(mesh membership.MeshID, id protocol.ID) (access, bool) {
	prefix := string(meshPrefix(mesh))
	switch name := string(id); {
	case id == ProtocolJoin:
		return access{strangers: true, trusts: everyMember}, true
	case id == protocolIdentify: // To strangers without addresses and agent.
		return access{strangers: true, trusts: everyMember}, true
	case id == protocolIdentifyPush, id == ProtocolSync, id == ProtocolProbe, id == ProtocolHTTP, id == ProtocolCrowd, id == ProtocolControl:
		return access{trusts: everyMember}, true
	case strings.HasPrefix(name, "/meshsub/"), strings.HasPrefix(name, "/floodsub/"):
		return access{trusts: everyMember}, true
	case strings.HasPrefix(name, prefix+"/kad/"):
		return access{trusts: everyMember}, true
	case id == ProtocolShard: // Of which placement is asked again for each stream.
		return access{trusts: []membership.Trust{membership.TrustReplicas}}, true
	case id == ProtocolBlocks, strings.HasPrefix(name, prefix+"/ipfs/bitswap"): // Which bytes is asked again for each request.
		return access{trusts: everyHolder}, true
	}
	return access{}, false
}

// meshPrefix starts the names of protocols that two meshes must not share.
func meshPrefix(mesh membership.MeshID) protocol.ID { return protocol.ID("/relay/" + string(mesh)) }
