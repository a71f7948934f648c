package p2p

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pubsubpb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

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
	own   *rate.Limiter // Of records written here, within what others allow an author.
	found *rate.Limiter // Of records that came by a comparison.
}

// validations bounds the records that are looked at and wait for that: what a
// few peers may send at once.
const validations = 4 * gossipBurst

// outbound bounds the records that wait on their way to one peer: the most that
// is passed on for two authors at once, or one's flood pushes out others' records.
const outbound = 2 * authorBurst

func newGossip(n *Node) *gossip {
	return &gossip{n: n, queue: make(chan record.Signed, spreadQueue),
		own: rate.NewLimiter(authorRate, authorBurst), found: rate.NewLimiter(foundRate, foundBurst)}
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
		pubsub.WithPeerOutboundQueueSize(outbound),
		pubsub.WithValidateQueueSize(validations),
		pubsub.WithAppSpecificRpcInspector(g.inspect),
		pubsub.WithPeerExchange(false),
	)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	if err := ps.RegisterTopicValidator(g.name(), g.validate, pubsub.WithValidatorConcurrency(validations)); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	if g.topic, err = ps.Join(g.name()); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	return nil
}

func (g *gossip) name() string { return fmt.Sprintf("relay/%s/records/1", g.n.Mesh) }

// inspect drops of what a peer sends at once what is over its allowance, before
// it takes room from others' records. It runs in the library's own loop.
func (g *gossip) inspect(from peer.ID, rpc *pubsub.RPC) error {
	if g.n.accounts.keptOut(from) {
		return errKeptOut
	}
	a, now := g.n.accounts.allowances(from), time.Now()
	for i, m := range rpc.Publish {
		if a.gossip.AllowN(now, 1+len(m.GetData())/gossipUnit) {
			continue
		}
		if over := len(rpc.Publish) - i; !a.excess.AllowN(now, over) {
			g.n.accounts.blame(from, ofJunk, errFlood)
		}
		rpc.Publish = rpc.Publish[:i]
		break
	}
	return nil
}

var (
	errKeptOut = errors.New("the peer is kept out for a while")
	errReplay  = errors.New("old records in such numbers are replayed")
	errFlood   = errors.New("more records than its author may send")
)

// validate takes a record in, and lets it travel on if it is new here. Only
// what no honest peer sends counts against the sender.
func (g *gossip) validate(_ context.Context, from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	if from == g.n.self {
		return pubsub.ValidationAccept
	}
	s, err := record.Open(m.Data)
	if err != nil {
		g.n.accounts.blame(from, ofBadRecord, err)
		return pubsub.ValidationReject
	}
	if !g.worthwhile(from, s) {
		return pubsub.ValidationIgnore
	}
	switch outcome, err := g.n.table.Offer(s); {
	case outcome == record.Fresh:
		return pubsub.ValidationAccept
	case outcome == record.Refused:
		g.n.refused(from, s, err)
	}
	return pubsub.ValidationIgnore
}

// worthwhile says whether a record is new, and within what its author and, for
// an author who is not known, its sender may send.
func (g *gossip) worthwhile(from peer.ID, s record.Signed) bool {
	a := g.n.accounts
	switch g.n.table.Known(s) {
	case record.Same:
		return false
	case record.Stale:
		if !a.allowances(from).old.Allow() {
			a.blame(from, ofReplay, errReplay)
		}
		return false
	}
	if !g.n.isMember(s.Author) {
		return a.allowances(from).strange.Allow()
	}
	author := a.allowances(s.Author)
	if from == s.Author && !author.flood.Allow() {
		a.blame(from, ofJunk, errFlood)
		return false
	}
	if slices.Contains(rosterKinds[:], s.Kind) && !author.roster.Allow() {
		return false
	}
	return author.author.Allow()
}

// spread sends a record out, unless too many wait already or were sent just now.
func (g *gossip) spread(s record.Signed) {
	pace := g.found
	if s.Author == g.n.self {
		pace = g.own
	}
	if !pace.Allow() {
		return
	}
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
				if !g.n.accounts.allowances(ev.Peer).answer.Allow() {
					continue
				}
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
