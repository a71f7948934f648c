package p2p

import (
	"errors"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
)

// SetPolicy changes what a member may decide and what it may see and run; an
// empty role or trust leaves that as it is.
func (n *Node) SetPolicy(target peer.ID, role membership.Role, trust membership.Trust) error {
	return errors.New("not built yet")
}
