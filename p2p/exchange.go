package p2p

import (
	"context"

	"github.com/ipfs/boxo/bitswap"
	"github.com/ipfs/boxo/bitswap/network/bsnet"
	"github.com/ipfs/boxo/exchange"
	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
)

// outstandingBytes is how much one peer may have under way to another: with the
// library's 1 MiB a gigabit link is idle most of the time.
const outstandingBytes = 16 << 20

// blockExchange moves blocks between members, by bitswap.
type blockExchange struct{ bitswap *bitswap.Bitswap }

func newExchange(ctx context.Context, n *Node) *blockExchange {
	network := bsnet.NewFromIpfsHost(n.host, bsnet.Prefix(meshPrefix(n.Mesh)))
	return &blockExchange{bitswap.New(ctx, network, everyLinked{n}, n.Blocks,
		bitswap.MaxOutstandingBytesPerPeer(outstandingBytes),
		bitswap.WithPeerBlockRequestFilter(func(id peer.ID, c cid.Cid) bool {
			m, ok := n.Member(id)
			return ok && n.MayHave(id, m.Trust, c)
		}),
	)}
}

func (e *blockExchange) close() { _ = e.bitswap.Close() }

// Fetch starts a session of getting blocks from whichever members have them;
// each is checked against its CID. It ends with ctx.
func (n *Node) Fetch(ctx context.Context) exchange.Fetcher { return n.exchange.bitswap.NewSession(ctx) }

// everyLinked finds the providers of a block among the members that answer:
// bitswap asks each and goes on with those that have it.
type everyLinked struct{ n *Node }

// FindProvidersAsync lists up to count members.
func (e everyLinked) FindProvidersAsync(ctx context.Context, _ cid.Cid, count int) <-chan peer.AddrInfo {
	found := make(chan peer.AddrInfo)
	ids := e.n.links.alive()
	if count > 0 && len(ids) > count {
		ids = ids[:count]
	}
	e.n.work.run(func() {
		defer close(found)
		for _, id := range ids {
			select {
			case found <- peer.AddrInfo{ID: id}:
			case <-ctx.Done():
				return
			}
		}
	})
	return found
}
