//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/boxo/blockstore"
	cid "github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"relay/cmd/bench/figure"
	"relay/cmd/stage"
	"relay/p2p"
	"relay/p2p/liveness"
	"relay/p2p/membership"
	"relay/p2p/record"
	"relay/p2p/record/recordtest"
)

const (
	nodes  = 50
	writes = 200
	// between keeps the writes apart, so that each is measured by itself.
	between = 50 * time.Millisecond
	// slowWrite is told of, in seconds: gossip has missed somebody.
	slowWrite = 1.0
)

// converging: from the acknowledgement of a write on one of fifty peers to the
// moment the last of the others has it, one write after another. The peers are
// real, with connections on loopback, and share one process.
func converging(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	meshKey, err := membership.NewMeshKey()
	if err != nil {
		return err
	}
	var all []*p2p.Node
	var invite membership.Invite
	for i := range nodes {
		n, err := newNode(ctx, fmt.Sprint("peer", i), meshKey, invite, i == 0)
		if err != nil {
			return err
		}
		running.Go(func() {
			if failed := n.Run(ctx); failed != nil {
				figure.Say("a peer ended: %v", failed)
			}
		})
		all = append(all, n)
		if i == 0 {
			invite, _, err = n.Invite(p2p.InviteOptions{Role: membership.RoleMember, Trust: membership.TrustReplicas, Uses: nodes, TTL: time.Hour})
			if err != nil {
				return err
			}
		}
		// One by one, as people do it: fifty at once on two cores is another test.
		if err := stage.Until(ctx, "all peers see one another", func() bool { return allSee(all) }); err != nil {
			return err
		}
	}
	figure.Say("%d peers are connected; %d writes", nodes, writes)
	var took []float64
	for i := range writes {
		t, err := spread(ctx, all, all[rand.IntN(nodes)], i)
		if err != nil {
			return err
		}
		took = append(took, t)
		if t > slowWrite {
			figure.Say("write %d took %.1f s", i, t)
		}
		if err := pass(ctx, between); err != nil {
			return err
		}
	}
	figure.Say("median %.3f s, longest %.3f s", figure.Median(took), figure.Rank(took, 1))
	figure.Value("converge_p99_s_50", p99(took), "s")
	return nil
}

// allSee says whether all of them see all of them alive.
func allSee(all []*p2p.Node) bool {
	for _, n := range all {
		seen := n.Peers()
		if len(seen) != len(all) || slices.ContainsFunc(seen, func(p p2p.Peer) bool { return p.State != liveness.Alive }) {
			return false
		}
	}
	return true
}

// newNode makes a peer that founds the mesh, or joins it.
func newNode(ctx context.Context, name string, meshKey membership.MeshKey, invite membership.Invite, founds bool) (*p2p.Node, error) {
	identity, _, err := p2p.NewIdentity()
	if err != nil {
		return nil, err
	}
	o := p2p.Options{
		Identity: identity, Mesh: meshKey.ID(), Storage: recordtest.NewMemory(), Name: name, Agent: agent(0),
		Listen:  []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")},
		Blocks:  blockstore.NewBlockstore(dssync.MutexWrap(datastore.NewMapDatastore())),
		MayHave: func(peer.ID, membership.Trust, cid.Cid, int64, int64) bool { return false },
	}
	if founds {
		n, err := p2p.New(o)
		if err != nil {
			return nil, err
		}
		return n, n.Found(meshKey, "bench")
	}
	admission, err := p2p.Join(ctx, identity, invite, name, o.Agent)
	if err != nil {
		return nil, err
	}
	n, err := p2p.New(o)
	if err != nil {
		return nil, err
	}
	return n, n.Adopt(admission)
}

func agent(change int) string { return fmt.Sprint("relay/bench ", change) }

// spread has one peer write its contact record anew, and waits for all others.
func spread(ctx context.Context, all []*p2p.Node, writer *p2p.Node, change int) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	id := writer.Self().String()
	was, ok := writer.Table().Get(p2p.KindContact, id)
	if !ok {
		return 0, errors.New("the writer has no contact record")
	}
	var c p2p.Contact
	if err := record.Unmarshal(was.Payload, &c); err != nil {
		return 0, err
	}
	c.Agent = agent(change + 1)
	var waiting sync.WaitGroup
	for _, n := range all {
		if n == writer {
			continue
		}
		waiting.Go(func() {
			changed, cancel := n.Table().Subscribe()
			defer cancel()
			for {
				if got, ok := n.Table().Get(p2p.KindContact, id); ok && got.Version.Compare(was.Version) > 0 {
					return
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	err := writer.PutOwned(p2p.KindContact, id, c)
	began := time.Now()
	waiting.Wait()
	return seconds(began), errors.Join(err, ctx.Err())
}
