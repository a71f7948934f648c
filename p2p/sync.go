package p2p

import (
	"context"
	"errors"
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

func (n *Node) handleSync(s network.Stream) {
	n.work.run(func() {
		ctx, cancel := context.WithTimeout(n.ctx, syncPatience)
		defer cancel()
		id := s.Conn().RemotePeer()
		end, err := n.accounts.beginComparison(ctx, id)
		if err != nil {
			_ = s.ResetWithError(network.StreamResourceLimitExceeded)
			n.log.Debug("comparison of records refused", "peer", short(id), "error", err)
			return
		}
		stats, _ := n.exchangeRecords(ctx, s, false)
		end(stats.BytesIn + stats.BytesOut)
	})
}

// exchangeRecords is one comparison, on the stream that it takes.
func (n *Node) exchangeRecords(ctx context.Context, s network.Stream, initiator bool) (record.Stats, error) {
	id := s.Conn().RemotePeer()
	stats, err := record.Sync(ctx, s, n.table, initiator, record.SyncOptions{
		Fresh:   n.gossip.spread,
		Refused: func(r record.Signed, err error) { n.refused(id, r, err) },
	})
	for range stats.Low {
		n.accounts.blame(id, ofJunk, errLow)
	}
	if err != nil {
		_ = s.Reset()
		if errors.Is(err, record.ErrProtocol) || errors.Is(err, record.ErrSyncLimit) || errors.Is(err, record.ErrInvalid) {
			n.accounts.blame(id, ofBadExchange, err)
		}
		n.log.Debug("comparison of records broken off", "peer", short(id), "error", err)
		return stats, err
	}
	_ = s.Close()
	n.links.compared(id)
	n.cameToTheMesh()
	if stats.Equal || stats.Refused+stats.Held+stats.Low == 0 {
		n.compares.noteInStep(id)
	}
	if !stats.Equal {
		n.log.Debug("records compared", "peer", short(id), "received", stats.Received, "sent", stats.Sent)
	}
	return stats, nil
}

// Heard says whether this peer has compared its records with another member since it
// started, so that it knows what was written while it was away. A peer without others has
// nothing to hear.
func (n *Node) Heard() bool {
	return n.life.since.Load() != 0 || len(n.Roster().Members()) <= 1
}

var errLow = errors.New("a record below what was listed for its key")

// refused counts a record that the table refused against its sender, if it is
// its author and nobody's release writes such records.
func (n *Node) refused(from peer.ID, s record.Signed, err error) {
	n.log.Debug("record refused", "from", short(from), "key", s.Key(), "error", err)
	if from == s.Author && (errors.Is(err, record.ErrShare) || errors.Is(err, record.ErrNotAllowed)) {
		n.accounts.blame(from, ofJunk, err)
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
