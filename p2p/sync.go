package p2p

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

const (
	// syncEvery is how often a peer compares its records with one other's.
	syncEvery = 10 * time.Second
	// syncPatience bounds one comparison.
	syncPatience = 30 * time.Second
)

// compareWith brings this peer and a member to the same records.
func (n *Node) compareWith(ctx context.Context, id peer.ID) {
	ctx, cancel := context.WithTimeout(network.WithNoDial(ctx, "comparing records"), syncPatience)
	defer cancel()
	s, err := n.host.NewStream(ctx, id, ProtocolSync)
	if err != nil {
		n.log.Debug("records not compared", "peer", short(id), "error", err)
		return
	}
	n.exchangeRecords(ctx, s, true)
}

func (n *Node) handleSync(s network.Stream) {
	n.work.run(func() {
		ctx, cancel := context.WithTimeout(n.ctx, syncPatience)
		defer cancel()
		n.exchangeRecords(ctx, s, false)
	})
}

func (n *Node) exchangeRecords(ctx context.Context, s network.Stream, initiator bool) {
	stats, err := record.Sync(ctx, s, n.table, initiator, record.SyncOptions{Fresh: n.gossip.spread})
	if err != nil {
		_ = s.Reset()
		n.log.Debug("comparison of records broken off", "peer", short(s.Conn().RemotePeer()), "error", err)
		return
	}
	_ = s.Close()
	n.links.compared(s.Conn().RemotePeer())
	if !stats.Equal {
		n.log.Debug("records compared", "peer", short(s.Conn().RemotePeer()), "received", stats.Received, "sent", stats.Sent)
	}
}

// compareNowAndThen finds what gossip lost.
func (n *Node) compareNowAndThen(ctx context.Context) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if alive := n.links.alive(); len(alive) > 0 {
				n.compareWith(ctx, alive[rand.IntN(len(alive))])
			}
		}
	}
}
