package content

import (
	"context"
	"sync"
	"testing"

	"github.com/ipfs/boxo/exchange"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// boxo's exchanges are what pulls are made for.
var _ BlockGetter = exchange.Fetcher(nil)

// singles is a swarm without holders: all comes block by block.
type singles struct{ BlockGetter }

func (singles) Holders() []Holder { return nil }

func pullFrom(ctx context.Context, s *Store, root cid.Cid, bytes int64, name string, get BlockGetter, progress func(Progress)) (Content, error) {
	return s.Pull(ctx, PullOptions{Root: root, Bytes: bytes, Name: name, Swarm: singles{get}, Progress: progress})
}

// peer hands out the blocks of a store, as bitswap does for another machine, and
// goes wrong in the ways it is told to.
type peer struct {
	from *Store
	// reply turns the n-th block asked for, counted from 1, into what is sent; no
	// blocks: it is left out. nil: all is sent as it is.
	reply func(n int, b blocks.Block) []blocks.Block
	// extra are blocks that it has beside those of the store.
	extra map[digest][]byte
	// nodesOnly: it sends no leaves.
	nodesOnly bool
	// silent lets it say nothing at all, without closing the channel.
	silent bool
	// fail is returned instead of a channel.
	fail error
	// after, if set, is called after each block that was taken.
	after func(n int)

	mu     sync.Mutex
	asked  map[cid.Cid]int
	n      int // blocks asked for
	open   int // asked for in requests that are not over
	most   int // the most of them at a time
	leaves int // leaves sent
}

func (p *peer) GetBlock(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	coming, err := p.GetBlocks(ctx, []cid.Cid{c})
	if err != nil {
		return nil, err
	}
	return <-coming, nil
}

func (p *peer) GetBlocks(ctx context.Context, want []cid.Cid) (<-chan blocks.Block, error) {
	if p.fail != nil {
		return nil, p.fail
	}
	out := make(chan blocks.Block)
	if p.silent {
		return out, nil
	}
	p.mu.Lock()
	if p.asked == nil {
		p.asked = map[cid.Cid]int{}
	}
	p.open += len(want)
	p.most = max(p.most, p.open)
	p.mu.Unlock()
	go func() {
		defer close(out)
		open := len(want)
		settle := func(n int) {
			p.mu.Lock()
			p.open -= n
			p.mu.Unlock()
			open -= n
		}
		defer func() { settle(open) }()
		for _, c := range want {
			p.mu.Lock()
			p.asked[c]++
			p.n++
			n := p.n
			p.mu.Unlock()
			b, err := p.from.Blocks().Get(ctx, c)
			if d, ok := digestOf(c); ok && p.extra[d] != nil {
				b, err = blocks.NewBlockWithCid(p.extra[d], c)
			}
			if err != nil || p.nodesOnly && c.Type() == cid.Raw {
				continue
			}
			send := []blocks.Block{b}
			if p.reply != nil {
				send = p.reply(n, b)
			}
			// Before it is sent: its receiver asks for more as soon as it has it.
			settle(1)
			for _, b := range send {
				// Counted before it is sent: who has it may look at the count.
				if c.Type() == cid.Raw {
					p.mu.Lock()
					p.leaves++
					p.mu.Unlock()
				}
				select {
				case out <- b:
				case <-ctx.Done():
					return
				}
				if p.after != nil {
					p.after(n)
				}
			}
		}
	}()
	return out, nil
}

func (p *peer) sent() (leaves, asked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaves, p.n
}

// holder is a peer that holds one content.
func holder(t testing.TB, data []byte) (*peer, Content) {
	t.Helper()
	s, _ := testStore(t)
	c := mustAdd(t, s, newFile(t, data))
	return &peer{from: s}, c
}
