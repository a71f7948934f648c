package p2p

import (
	"context"
	"errors"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
)

// Wiping lists the machines that were taken out of the mesh with the order to
// erase what they pulled, and have not said that they did.
func (n *Node) Wiping() []peer.ID { return nil }

// WipeOrdered says whether this machine was told to erase itself when it was
// taken out of the mesh.
func (n *Node) WipeOrdered() bool { return false }

// ReportWiped tells the mesh that this machine, which was taken out of it, has
// erased what it was told to. peers are members, with addresses.
func ReportWiped(ctx context.Context, identity crypto.PrivKey, mesh membership.MeshID, peers []peer.AddrInfo) error {
	return errors.New("not built yet")
}
