package p2p

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Blame is what a member has sent that no honest one sends.
type Blame struct {
	Peer    peer.ID
	Dropped int
	Until   time.Duration
}

// InStep says how many records a member lacked or had older.
func (n *Node) InStep(_ context.Context, id peer.ID) (behind int, err error) {
	if n.host.Network().Connectedness(id) != network.Connected {
		return 0, errors.New("not linked")
	}
	return 0, nil
}

// Blamed lists the members that were cut off.
func (n *Node) Blamed() []Blame { return nil }
