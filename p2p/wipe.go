package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/membership"
)

// Wiping lists the machines that were taken out of the mesh with the order to
// erase what they pulled, and have not said that they did.
func (n *Node) Wiping() []peer.ID { return n.Roster().Wiping() }

// WipeOrdered says whether this machine was told to erase itself when it was
// taken out of the mesh.
func (n *Node) WipeOrdered() bool { return n.Roster().WipeOrdered(n.self) }

// ReportWiped tells the mesh that this machine, which was taken out of it, has
// erased what it was told to. peers are members, with addresses; one that takes
// the news is enough.
func ReportWiped(ctx context.Context, identity crypto.PrivKey, mesh membership.MeshID, peers []peer.AddrInfo) error {
	h, err := newHost(identity, "", nil, nil)
	if err != nil {
		return err
	}
	defer h.Close()
	failure := error(ErrUnreachable)
	for _, info := range peers {
		if info.ID == h.ID() {
			continue
		}
		err := reportWipedTo(ctx, h, mesh, info)
		if err == nil {
			return nil
		}
		failure = errors.Join(failure, err)
	}
	return failure
}

func reportWipedTo(ctx context.Context, h host.Host, mesh membership.MeshID, info peer.AddrInfo) error {
	ctx, cancel := context.WithTimeout(ctx, triedPatience)
	defer cancel()
	h.Peerstore().AddAddrs(info.ID, info.Addrs, time.Minute)
	c, err := h.Network().DialPeer(ctx, info.ID)
	if err != nil {
		return fmt.Errorf("reach %s: %w", short(info.ID), err)
	}
	s, err := openRaw(ctx, c, ProtocolJoin)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := writeFrame(s, greeting{Version: Version, Mesh: mesh, Erased: true}); err != nil {
		return err
	}
	_, _, err = readAnswer(s)
	return err
}

// noteErased writes down that a machine which was told to erase itself did.
func (n *Node) noteErased(id peer.ID) error {
	roster := n.Roster()
	if !roster.WipeOrdered(id) {
		return ErrNotMember
	}
	if !slices.Contains(roster.Wiping(), id) { // Another member took the news.
		return nil
	}
	n.log.Info("a machine that was taken out has erased itself", "peer", short(id))
	_, err := n.table.PutOwned(membership.KindErased, membership.JudgementID(n.self, id), nil)
	return err
}
