package p2p

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// comparisons are those that this peer begins, at most one with each member at a
// time.
type comparisons struct {
	n *Node

	mu   sync.Mutex
	with map[peer.ID]*compared
}

// compared is what this peer knows of its comparisons with one member.
type compared struct {
	running bool
	next    *comparison // Asked for and not begun.
	pace    *rate.Limiter
	inStep  time.Time   // When both had the same records last; zero for never.
	last    *comparison // The last one that went well, and when it ended.
	ended   time.Time
}

type comparison struct {
	done  chan struct{}
	stats record.Stats // These two once done is closed.
	err   error
}

func newComparisons(n *Node) *comparisons {
	return &comparisons{n: n, with: map[peer.ID]*compared{}}
}

func (c *comparisons) of(id peer.ID) *compared {
	k := c.with[id]
	if k == nil {
		k = &compared{pace: rate.NewLimiter(beginRate/2, beginBurst/2)}
		c.with[id] = k
	}
	return k
}

// ask returns a comparison that begins from now on, the same one to all who ask
// before it does: one that runs already may have missed what its caller means.
func (c *comparisons) ask(id peer.ID) *comparison {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(id)
	if k.next == nil {
		k.next = &comparison{done: make(chan struct{})}
	}
	next := k.next
	if !k.running {
		k.running = true
		if c.n.work.begin() {
			go func() {
				defer c.n.work.end()
				c.run(id, k)
			}()
		}
	}
	return next
}

// run carries out what was asked for, until nothing is. A comparison to which the
// member answers nothing is tried again, later each time, for as long as there is a
// connection: it may have had enough of this peer for the moment, as after many
// starts of this one.
func (c *comparisons) run(id peer.ID, k *compared) {
	pause := time.Duration(0)
	for {
		c.mu.Lock()
		now := k.next
		k.next = nil
		k.running = now != nil
		c.mu.Unlock()
		if now == nil {
			return
		}
		if now.err = k.pace.Wait(c.n.ctx); now.err != nil { // The node is closed.
			close(now.done)
			return
		}
		now.stats, now.err = c.n.compareOnce(id)
		close(now.done)
		if now.err == nil {
			c.mu.Lock()
			k.last, k.ended = now, time.Now()
			c.mu.Unlock()
		}
		if now.err == nil || now.stats.BytesIn > 0 || !c.n.links.isLinked(id) {
			pause = 0
			continue
		}
		pause = min(max(2*pause, time.Second), syncEvery)
		select {
		case <-time.After(pause):
		case <-c.n.ctx.Done():
		}
		c.ask(id)
	}
}

func (c *comparisons) noteInStep(id peer.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).inStep = time.Now()
}

// compareOnce brings this peer and a member to the same records.
func (n *Node) compareOnce(id peer.ID) (record.Stats, error) {
	ctx, cancel := context.WithTimeout(network.WithNoDial(n.ctx, "comparing records"), syncPatience)
	defer cancel()
	s, err := n.host.NewStream(ctx, id, ProtocolSync)
	if err != nil {
		n.log.Debug("records not compared", "peer", short(id), "error", err)
		return record.Stats{}, fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	return n.exchangeRecords(ctx, s, true)
}

// compare waits for a comparison with a member that is connected.
func (n *Node) compare(ctx context.Context, id peer.ID) (record.Stats, error) {
	c := n.compares.ask(id)
	select {
	case <-c.done:
		return c.stats, c.err
	case <-ctx.Done():
		return record.Stats{}, context.Cause(ctx)
	case <-n.ctx.Done():
		return record.Stats{}, context.Cause(n.ctx)
	}
}

// compareWith is compare where nobody asks how it went.
func (n *Node) compareWith(ctx context.Context, id peer.ID) { _, _ = n.compare(ctx, id) }

// InStep compares this peer's records with those of a member now, and says how
// many that member lacked or had older, which it then has; 0 says that it was in
// step. It dials only whom others say is alive. Errors: ErrNotMember, ErrPeerGone, those of record.Sync.
func (n *Node) InStep(ctx context.Context, id peer.ID) (behind int, err error) {
	switch {
	case id == n.self:
		return 0, nil
	case !n.isMember(id):
		return 0, fmt.Errorf("compare records with %s: %w", short(id), membership.ErrNotMember)
	case n.links.isUnlinked(id):
		if err := n.Reach(ctx, id); err != nil {
			return 0, fmt.Errorf("compare records with %s: %w", n.NameOf(id), err)
		}
	case n.host.Network().Connectedness(id) != network.Connected:
		return 0, fmt.Errorf("compare records with %s: not connected: %w", n.NameOf(id), ErrPeerGone)
	}
	if stats, ok := n.compares.recent(id); ok {
		return stats.Sent, nil
	}
	stats, err := n.compare(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("compare records with %s: %w", n.NameOf(id), err)
	}
	return stats.Sent, nil
}

// LastInStep says how long ago this peer and another one were last found to have
// the same records, and whether they ever were since the start.
func (n *Node) LastInStep(id peer.ID) (ago time.Duration, ok bool) {
	n.compares.mu.Lock()
	defer n.compares.mu.Unlock()
	if k := n.compares.with[id]; k != nil && !k.inStep.IsZero() {
		return time.Since(k.inStep), true
	}
	return 0, false
}

// recent is what the last comparison with a member found, where the next one would
// have to wait and that was a moment ago.
func (c *comparisons) recent(id peer.ID) (record.Stats, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(id)
	if k.pace.Tokens() >= 1 || k.last == nil || time.Since(k.ended) > 2*time.Second {
		return record.Stats{}, false
	}
	return k.last.stats, true
}
