package p2p

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pubsubpb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/record"
)

// spreadQueue bounds the records that wait to be gossiped. What does not fit is
// found by the comparison of digests instead.
const spreadQueue = 1024

// gossip is the fast path of records: each new one goes out on one topic. What
// makes the state right is the comparison in sync.go.
type gossip struct {
	n     *Node
	topic *pubsub.Topic
	queue chan record.Signed

	mu  sync.Mutex
	bad map[peer.ID]int // Records that no honest peer sends.
}

// maxBad is how many bad records a peer may send before its connection is cut.
const maxBad = 8

func newGossip(n *Node) *gossip {
	return &gossip{n: n, queue: make(chan record.Signed, spreadQueue), bad: map[peer.ID]int{}}
}

func (g *gossip) open(ctx context.Context) error {
	ps, err := pubsub.NewGossipSub(ctx, g.n.host,
		// Records are signed themselves, and a record has one hash wherever it comes from.
		pubsub.WithMessageSignaturePolicy(pubsub.StrictNoSign),
		pubsub.WithNoAuthor(),
		pubsub.WithMessageIdFn(func(m *pubsubpb.Message) string {
			sum := sha256.Sum256(m.GetData())
			return string(sum[:])
		}),
		pubsub.WithPeerFilter(func(id peer.ID, _ string) bool { return g.n.isMember(id) }),
		pubsub.WithSubscriptionFilter(pubsub.NewAllowlistSubscriptionFilter(g.name())),
		pubsub.WithMaxMessageSize(4*record.MaxSize),
		pubsub.WithFloodPublish(true),
		pubsub.WithPeerOutboundQueueSize(256),
		pubsub.WithValidateQueueSize(256),
		pubsub.WithPeerExchange(false),
	)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	if err := ps.RegisterTopicValidator(g.name(), g.validate); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	if g.topic, err = ps.Join(g.name()); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	return nil
}

func (g *gossip) name() string { return fmt.Sprintf("relay/%s/records/1", g.n.Mesh) }

// validate takes a record in, and lets it travel on if it is new here. Only
// what no honest peer sends counts against the sender.
func (g *gossip) validate(_ context.Context, from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	if from == g.n.self {
		return pubsub.ValidationAccept
	}
	s, err := record.Open(m.Data)
	if err != nil {
		g.blame(from, err)
		return pubsub.ValidationReject
	}
	switch outcome, err := g.n.table.Offer(s); {
	case outcome == record.Fresh:
		return pubsub.ValidationAccept
	case outcome == record.Refused:
		g.n.log.Debug("record refused", "from", short(from), "key", s.Key(), "error", err)
	}
	return pubsub.ValidationIgnore
}

// blame counts a bad record against its sender.
func (g *gossip) blame(from peer.ID, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bad[from]++
	if g.bad[from] < maxBad {
		return
	}
	delete(g.bad, from)
	g.n.log.Warn("a peer sends bad records and is cut off", "peer", short(from), "error", err)
	g.n.work.run(func() { _ = g.n.host.Network().ClosePeer(from) })
}

// spread sends a record out, unless too many wait already.
func (g *gossip) spread(s record.Signed) {
	select {
	case g.queue <- s:
	default:
	}
}

func (g *gossip) run(ctx context.Context) error {
	sub, err := g.topic.Subscribe(pubsub.WithBufferSize(16))
	if err != nil {
		return fmt.Errorf("subscribe to the mesh's records: %w", err)
	}
	defer sub.Cancel()
	joins, err := g.topic.EventHandler()
	if err != nil {
		return fmt.Errorf("watch who listens to the mesh's records: %w", err)
	}
	defer joins.Cancel()
	g.n.work.run(func() {
		for {
			ev, err := joins.NextPeerEvent(ctx)
			if err != nil {
				return
			}
			if ev.Type == pubsub.PeerJoin { // What was written before it listened has passed it by.
				g.n.work.run(func() { g.n.compareWith(ctx, ev.Peer) })
			}
		}
	})
	g.n.work.run(func() {
		for { // The validator has taken the record; this only drains.
			if _, err := sub.Next(ctx); err != nil {
				return
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-g.queue:
			if err := g.topic.Publish(ctx, s.Raw); err != nil && ctx.Err() == nil {
				g.n.log.Debug("record not gossiped", "key", s.Key(), "error", err)
			}
		}
	}
}
