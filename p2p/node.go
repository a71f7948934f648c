package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/ipfs/boxo/blockstore"
	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sync/errgroup"

	"relay/p2p/membership"
	"relay/p2p/record"
)

// Options are what a Node is made of. All but Log are needed.
type Options struct {
	// Identity is this peer's ed25519 key.
	Identity crypto.PrivKey
	// Mesh is the mesh that the peer is a member of, or founds, or just joined.
	Mesh membership.MeshID
	// Storage keeps the mesh's records.
	Storage record.Storage
	// Kinds are the record kinds of other packages.
	Kinds []record.Kind
	// Listen are the addresses to open; none makes a peer that only dials.
	Listen []ma.Multiaddr
	// Name is what this machine is called.
	Name string
	// Agent is the program and version, shown to members.
	Agent string
	// Blocks are what this peer can serve.
	Blocks blockstore.Blockstore
	// Files serves long ranges of files to other members. nil serves none.
	Files Files
	// MayHave says whether a member may be sent the bytes [from, to) of a file by
	// its root, or, with from and to 0, the block with that CID.
	MayHave func(id peer.ID, trust membership.Trust, c cid.Cid, from, to int64) bool
	// Log takes the mesh's log; nil discards it.
	Log *slog.Logger

	// host is for tests: more options of the libp2p host, of which one may put it
	// on a simulated network.
	host []libp2p.Option
}

// Validate names the option at fault.
func (o Options) Validate() error {
	switch {
	case o.Identity == nil:
		return errors.New("p2p: Identity is missing")
	case o.Storage == nil:
		return errors.New("p2p: Storage is missing")
	case o.Blocks == nil:
		return errors.New("p2p: Blocks is missing")
	case o.MayHave == nil:
		return errors.New("p2p: MayHave is missing")
	}
	if _, err := membership.ParseMeshID(string(o.Mesh)); err != nil {
		return fmt.Errorf("p2p: Mesh: %w", err)
	}
	if err := membership.CheckName(o.Name); err != nil {
		return fmt.Errorf("p2p: Name: %w", err)
	}
	return nil
}

// Node is this machine's part of the mesh.
type Node struct {
	Options
	self  peer.ID
	log   *slog.Logger
	host  gatedHost
	gate  *gate
	table *record.Table
	dht   *dht.IpfsDHT

	roster   rosterCache
	settings settingsCache
	judge    *membership.Judge
	life     *life                  // Of housekeep, once the node runs; so is the next one.
	revoked  time.Time              // When this peer found itself revoked; zero while it is not.
	rules    map[string]record.Rule // By kind.

	accounts *accounts
	compares *comparisons
	gossip   *gossip
	links    *links
	exchange *blockExchange
	web      *web
	shards   *shards

	admitting sync.Mutex // Held while the uses of an invite are counted.

	work  work // Everything that handlers started.
	ctx   context.Context
	stop  context.CancelFunc
	ready chan struct{}
}

// New opens the host and its addresses and reads the mesh's records. The node
// talks to nobody before Run.
func New(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	self, err := peer.IDFromPrivateKey(o.Identity)
	if err != nil {
		return nil, err
	}
	n := &Node{Options: o, self: self, log: o.Log, ready: make(chan struct{}), judge: membership.NewJudge(o.Mesh), life: newLife(), rules: map[string]record.Rule{}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.gate = newGate(n.ctx, &n.work, o.Mesh, n.Member, o.Log)
	n.accounts = newAccounts(o.Log, n.cutOff)
	n.gate.keptOut = n.accounts.keptOut
	n.compares = newComparisons(n)
	n.gossip = newGossip(n)
	n.links = newLinks(n)
	n.web = newWeb(n)
	n.shards = newShards(n)
	if o.Files != nil {
		n.web.answer(ProtocolBlocks, newBlockServer(n).routes())
	}

	kinds := append(membership.Kinds(o.Mesh, func(r record.Record) record.Verdict { return n.Roster().Admit(r) }),
		record.Kind{Name: KindContact, Rule: record.Owned, Owner: record.OwnerIsID, Check: checkContact}, settingKind())
	kinds = append(kinds, o.Kinds...)
	for _, k := range kinds {
		n.rules[k.Name] = k.Rule
	}
	n.table, err = record.NewTable(record.Options{
		Key: o.Identity, Storage: o.Storage, Kinds: kinds, Rights: rights{n}, Logger: o.Log,
		Publish: n.gossip.spread,
	})
	if err != nil {
		return nil, fmt.Errorf("read the mesh's records: %w", err)
	}

	h, err := newHost(o.Identity, o.Agent, n.gate, n.shards.take, o.host...)
	if err != nil {
		return nil, fmt.Errorf("make the libp2p host: %w", err)
	}
	n.host = gatedHost{h, n.gate, n.links.reach}
	if err := n.assemble(h); err != nil {
		n.stop()
		return nil, errors.Join(err, h.Close())
	}
	return n, nil
}

// assemble puts the protocols on the host, the gate first and the addresses last.
func (n *Node) assemble(h host.Host) error {
	if err := n.gate.install(h); err != nil {
		return err
	}
	n.gate.forStrangers(ProtocolJoin, n.handleJoin)
	n.gate.forStrangers(protocolIdentify, answerIdentify())
	n.host.SetStreamHandler(ProtocolJoin, n.handleJoin)
	n.host.SetStreamHandler(ProtocolSync, n.handleSync)
	n.host.SetStreamHandler(ProtocolProbe, n.links.handleProbe)
	n.host.SetStreamHandler(ProtocolShard, n.shards.handle)
	h.Network().Notify(&network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { n.connected(c) },
		DisconnectedF: func(_ network.Network, c network.Conn) { n.disconnected(c) },
	})
	var err error
	if n.dht, err = newDHT(n.host, n.Mesh, n.isMember, n.links.isLinked); err != nil {
		return err
	}
	n.exchange = newExchange(n.ctx, n)
	if err := n.gossip.open(n.ctx); err != nil {
		return err
	}
	if err := n.web.open(); err != nil {
		return err
	}
	return listen(h, n.Listen)
}

// Serve sets what answers requests of members over streams: hop for those of
// their clients, control for what peers ask of each other. It must be called
// before Run.
func (n *Node) Serve(hop, control http.Handler) {
	n.web.answer(ProtocolHTTP, hop)
	n.web.answer(ProtocolCrowd, hop)
	n.web.answer(ProtocolControl, control)
}

// Run works until ctx ends, and returns when nothing of the node runs any more.
func (n *Node) Run(ctx context.Context) error {
	defer n.close()
	if err := n.publishContact(); err != nil && !n.Roster().Revoked(n.self) {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.links.run(ctx) })
	group.Go(func() error { return n.gossip.run(ctx) })
	group.Go(func() error { return n.web.run(ctx) })
	group.Go(func() error { return n.compareNowAndThen(ctx) })
	group.Go(func() error { return n.watchAddresses(ctx) })
	group.Go(func() error { return n.housekeep(ctx) })
	close(n.ready)
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close gives back what New took, for a node that was never Run.
func (n *Node) Close() { n.close() }

func (n *Node) close() {
	n.stop()
	n.shards.held.close()
	n.exchange.close()
	if err := n.dht.Close(); err != nil {
		n.log.Debug("dht closed", "error", err)
	}
	if err := n.host.Close(); err != nil {
		n.log.Debug("host closed", "error", err)
	}
	n.work.wait()
}

// Ready is closed once the node answers.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Self is this peer's id.
func (n *Node) Self() peer.ID { return n.self }

// Table is the mesh's state.
func (n *Node) Table() *record.Table { return n.table }

// Member looks a peer up among the members.
func (n *Node) Member(id peer.ID) (membership.Member, bool) { return n.Roster().Member(id) }

func (n *Node) isMember(id peer.ID) bool {
	_, ok := n.Member(id)
	return ok
}

// Addrs are the addresses at which other machines may dial this peer.
func (n *Node) Addrs() []ma.Multiaddr { return n.host.Addrs() }

// ListenAddrs are the addresses that are open, ports filled in.
func (n *Node) ListenAddrs() []ma.Multiaddr { return n.host.Network().ListenAddresses() }

// housekeep acts on new records and on time that passed.
func (n *Node) housekeep(ctx context.Context) error {
	changed, cancel := n.table.Subscribe()
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last *membership.Roster
	for {
		if err := n.lookForTwin(); err != nil {
			return err
		}
		if roster := n.Roster(); roster != last {
			n.cutLowered(last, roster)
			n.shards.held.sweep()
			last = roster
			n.gate.rosterChanged()
			n.links.wake()
			n.recheck()
			n.withdrawExtra(time.Now())
			if err := n.dropVoid(); err != nil {
				return err
			}
			n.takeOverStranded(roster)
		}
		if err := n.heedRevocation(last); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case now := <-tick.C:
			n.gate.sweep(now)
			n.watchForTwin()
			n.accounts.sweep()
			n.recheck()
		}
	}
}

// recheck takes the records whose authors have become known since they came.
func (n *Node) recheck() {
	for _, s := range n.table.Recheck(time.Now()) {
		n.gossip.spread(s)
	}
}

// connected is called with every new connection. The side that dialled proves
// itself first, and compares records once it is let in.
func (n *Node) connected(c network.Conn) {
	if !n.gate.arrived(c) {
		n.work.run(func() { _ = c.Close() })
		return
	}
	if c.Stat().Direction != network.DirOutbound {
		n.links.wake()
		return
	}
	n.work.run(func() {
		id := c.RemotePeer()
		if err := n.hello(n.ctx, c); err != nil {
			n.links.refused(id, err)
			_ = c.Close()
			return
		}
		if n.knownAsStranger(c) { // It was let in too late: the libraries have given up on this connection.
			_ = c.Close()
			return
		}
		n.links.wake()
		n.compareWith(n.ctx, id)
	})
}

// knownAsStranger says whether the other side answered identify as to somebody
// who is not a member, which the libraries go by for as long as the connection
// stands.
func (n *Node) knownAsStranger(c network.Conn) bool {
	if ids, ok := n.host.Host.(interface{ IDService() identify.IDService }); ok {
		select {
		case <-ids.IDService().IdentifyWait(c):
		case <-n.ctx.Done():
			return false
		}
	}
	spoken, err := n.host.Peerstore().SupportsProtocols(c.RemotePeer(), ProtocolSync)
	return err == nil && len(spoken) == 0
}

func (n *Node) disconnected(c network.Conn) {
	n.gate.left(c)
	n.links.lost(c.RemotePeer())
	n.shards.held.sweep()
}
