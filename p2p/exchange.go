package p2p

import (
	"context"
	"math/rand/v2"

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
	return &blockExchange{bitswap.New(ctx, network, membersAlive{n}, n.Blocks,
		bitswap.MaxOutstandingBytesPerPeer(outstandingBytes),
		bitswap.WithPeerBlockRequestFilter(func(id peer.ID, c cid.Cid) bool {
			m, ok := n.Member(id)
			return ok && n.MayHave(id, m.Trust, c, 0, 0)
		}),
	)}
}

func (e *blockExchange) close() { _ = e.bitswap.Close() }

// Fetch starts a session of getting blocks from whichever members have them;
// each is checked against its CID. It ends with ctx.
func (n *Node) Fetch(ctx context.Context) exchange.Fetcher { return n.exchange.bitswap.NewSession(ctx) }

// moved is how many bytes of blocks went between this peer and a member.
func (e *blockExchange) moved(id peer.ID) uint64 {
	r := e.bitswap.LedgerForPeer(id)
	return r.Sent + r.Recv
}

// membersAlive finds the providers of a block among the members that are alive.
// Bitswap has asked those that are linked; it dials some of the others, at every
// search some, and asks each that it reaches.
type membersAlive struct{ n *Node }

// FindProvidersAsync lists up to count members, or all if count is 0.
func (e membersAlive) FindProvidersAsync(ctx context.Context, _ cid.Cid, count int) <-chan peer.AddrInfo {
	found := make(chan peer.AddrInfo)
	linked, others := e.n.links.alive(), e.n.links.unlinked()
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	ids := append(others, linked...)
	if count > 0 && len(ids) > count {
		ids = ids[:count]
	}
	e.n.work.run(func() {
		defer close(found)
		for _, id := range ids {
			info := peer.AddrInfo{ID: id}
			info.Addrs, _ = e.n.contact(id)
			select {
			case found <- info:
			case <-ctx.Done():
				return
			}
		}
	})
	return found
}
