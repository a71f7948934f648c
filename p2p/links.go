package p2p

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
	"relay/p2p/membership"
)

const (
	// askEvery is how often others are asked about one member that is silent.
	askEvery = time.Second
	// lookupEvery is how often the DHT is asked where one member is that cannot be
	// reached where it says.
	lookupEvery = time.Minute
	// keptUnused is how long a connection without need is kept after its last use.
	keptUnused = time.Minute
	// fewLinks is how many links have to stand, of those that should: a peer that
	// has fewer tries to reach everybody.
	fewLinks = 8
)

// links keeps a connection to every member, or in a large mesh to the
// neighbours, and watches who answers on it. Others are dialled when something
// needs them, and are known meanwhile by what those say who hear them.
type links struct {
	n     *Node
	awake *awake
	woken chan struct{}

	mu       sync.Mutex
	layout   *layout
	members  map[peer.ID]*link
	stateful map[peer.ID]liveness.State // As last told to listeners.
	changed  chan struct{}
}

// link is what this peer knows of its way to one member.
type link struct {
	seen     liveness.Observed // What this peer heard itself.
	told     liveness.Hearsay  // What anybody heard.
	own      bool              // It has answered on a link that is kept or stands: what was seen counts.
	running  bool              // Probes are sent.
	since    time.Duration     // When that began.
	used     time.Duration     // When the connection was last needed.
	moved    uint64            // Bytes of blocks, when that was last looked at.
	probe    chan struct{}     // A reason to probe now.
	answers  bool              // It has answered on the connection that stands.
	asked    time.Duration     // When others were last asked about it.
	redial   redial
	lookedUp time.Time     // When the DHT was last asked for it.
	failed   bool          // A dial was given up, or the member refused this peer.
	missed   time.Time     // When that was last so while others heard the member.
	refusal  string        // What was logged last of that.
	compared bool          // Records were compared once.
	doors    []string      // TCP addresses at which it was found to listen.
	sounded  time.Duration // When such were last looked for.
	knocked  time.Duration // When they were last tried, to see whether it is dead.
	active   active
	aged     time.Duration // When it was last asked for the ages of others.
}

func newLinks(n *Node) *links {
	return &links{n: n, awake: newAwake(), woken: make(chan struct{}, 1), members: map[peer.ID]*link{},
		stateful: map[peer.ID]liveness.State{}, changed: make(chan struct{}, 1)}
}

func (l *links) now() time.Duration { return l.awake.now() }

// wake has the members and their connections looked at now.
func (l *links) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// lost notes that a connection ended: a reason to probe now.
func (l *links) lost(id peer.ID) {
	l.mu.Lock()
	if k := l.members[id]; k != nil {
		if k.answers { // One that never did is dialled at the pace of those who are away.
			k.answers, k.redial.next, k.redial.pause = false, time.Time{}, 0
		}
		select {
		case k.probe <- struct{}{}:
		default:
		}
	}
	l.mu.Unlock()
	l.wake()
}

// run dials whoever is not connected and probes whoever is.
func (l *links) run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		if l.awake.tick() {
			l.attend(ctx, &probes)
			l.tellChanges()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.woken:
		case <-tick.C:
		}
	}
}

func (l *links) attend(ctx context.Context, probes *sync.WaitGroup) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	at, lay := l.now(), l.layoutNow()
	everybody := lay.whole || l.isLonely(lay, at)
	for _, m := range lay.roster.Members() {
		if m.ID == l.n.self {
			continue
		}
		k := l.members[m.ID]
		if k == nil {
			k = &link{probe: make(chan struct{}, 1)}
			l.members[m.ID] = k
		}
		wanted, connected := everybody || lay.graph.Linked(l.n.self, m.ID), l.isLinked(m.ID)
		if !wanted && !connected {
			k.own = false
		}
		if k.own && k.seen.Doubtful(at) && at-k.asked >= askEvery && k.seen.State(at) != liveness.Gone {
			k.asked = at
			probes.Go(func() { l.askWitnesses(ctx, m.ID, k) })
			if silence, _ := k.seen.Silence(at); len(k.doors) > 0 && k.knocked < at-silence { // Once in each silence.
				k.knocked = at
				doors := k.doors
				probes.Go(func() { l.knock(ctx, k, doors) })
			}
		}
		if connected && k.answers && len(k.doors) == 0 && at >= k.sounded+soundEvery {
			k.sounded = at
			probes.Go(func() { l.sound(ctx, m.ID, k) })
		}
		switch {
		case connected && !k.running:
			k.running, k.since = true, at
			k.doors, k.sounded = nil, -soundEvery
			l.n.host.ConnManager().Protect(m.ID, "relay")
			probes.Go(func() { l.watch(ctx, m.ID, k) })
		case connected && !wanted:
			l.letGo(m.ID, k, at)
		case !connected && wanted && k.dueDial(now, at):
			l.dial(ctx, m.ID, k, probes)
		}
	}
	for id := range l.members {
		if !l.n.isMember(id) {
			delete(l.members, id)
			delete(l.stateful, id)
			l.tell()
			l.n.host.ConnManager().Unprotect(id, "relay")
			l.n.work.run(func() {
				_ = l.n.host.Network().ClosePeer(id)
				l.n.dht.RoutingTable().RemovePeer(id)
			})
		}
	}
}

// isLonely says whether too many of a peer's neighbours are gone for it to lean on
// the others. Those that are only late may be so because the machines have much to
// do, and would have more if everybody dialled everybody. The lock must be held.
func (l *links) isLonely(lay *layout, at time.Duration) bool {
	if at < surveyPatience {
		return false
	}
	there := 0
	for _, id := range lay.graph.Of(l.n.self) {
		if k := l.members[id]; k != nil && k.own && k.seen.State(at) != liveness.Gone {
			there++
		}
	}
	return there < fewLinks
}

// refused notes that a member did not let this peer in.
func (l *links) refused(id peer.ID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.members[id]
	if k == nil {
		return
	}
	k.later(k.told.State(l.now()) == liveness.Alive)
	if text := err.Error(); text != k.refusal && l.n.ctx.Err() == nil {
		k.refusal = text
		l.n.log.Warn("a member does not let this peer in", "peer", short(id), "error", err)
	}
}

// watch probes one member on one kept stream for as long as it is connected.
func (l *links) watch(ctx context.Context, id peer.ID, k *link) {
	var p *prober
	defer func() {
		p.stop()
		l.n.host.ConnManager().Unprotect(id, "relay")
		l.mu.Lock()
		k.running = false
		k.active.seen.Lost()
		l.mu.Unlock()
	}()
	pace := liveness.ProbeEvery
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for l.isLinked(id) && l.n.isMember(id) {
		if p.broken() {
			p.stop()
			p = l.newProber(ctx, id, func(rtt time.Duration) { l.answered(id, k, rtt) })
		}
		p.send(l.question(k))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if pace == liveness.ActiveEvery {
				l.look(id, k)
			}
		case <-k.probe:
		}
		if now := l.pace(k); now != pace {
			pace = now
			tick.Reset(pace)
		}
		if l.gone(k) { // Nothing that still hangs on this connection will end by itself.
			_ = l.n.host.Network().ClosePeer(id)
		}
	}
}

func (l *links) answered(id peer.ID, k *link, rtt time.Duration) {
	k.active.signs.Add(1)
	l.mu.Lock()
	before := k.seen.State(l.now())
	_, ever := k.seen.Silence(l.now())
	k.seen.Answer(l.now(), rtt)
	k.told.Hear(l.now(), 0)
	k.own, k.failed, k.missed = true, false, time.Time{}
	k.answers, k.redial.pause, k.redial.next, k.refusal = true, 0, time.Time{}, ""
	if ever && before == liveness.Gone {
		l.hurry(time.Now())
	}
	l.mu.Unlock()
	if before != liveness.Alive {
		// It may have been a stranger when the routing table first heard of it.
		_, _ = l.n.dht.RoutingTable().TryAddPeer(id, true, false)
		l.wake()
	}
}

// question is what a probe asks: of everybody's age only where it is needed, and no more
// often than one that nothing is under way at is probed.
func (l *links) question(k *link) byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.layoutNow().whole || k.aged > 0 && now-k.aged < liveness.ProbeEvery-liveness.ActiveEvery/2 {
		return probeEcho
	}
	k.aged = now
	return probeAges
}

// gone says whether a member is gone that had the time to answer on this
// connection.
func (l *links) gone(k *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ever := k.seen.Silence(l.now())
	return ever && l.now()-k.since >= liveness.GoneAfter && k.seen.State(l.now()) == liveness.Gone
}

// tellChanges signals whoever plans by the states when one is another.
func (l *links) tellChanges() {
	l.mu.Lock()
	changed := false
	now := l.now()
	for id, k := range l.members {
		if state := k.state(now); state != l.stateful[id] {
			if l.stateful[id] != "" {
				l.n.log.Info("peer is "+string(state), "peer", short(id))
			}
			l.stateful[id] = state
			changed = true
		}
	}
	l.mu.Unlock()
	if changed {
		l.tell()
	}
}

func (l *links) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// alive lists the members that answer this peer, on links that stand.
func (l *links) alive() []peer.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var ids []peer.ID
	for id, k := range l.members {
		if k.own && k.running && k.seen.State(now) == liveness.Alive {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// unlinked lists the members that are alive by what others say.
func (l *links) unlinked() []peer.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []peer.ID
	for id, k := range l.members {
		if k.far(l.now()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// isUnlinked says whether a member is alive by what others say, and not linked.
func (l *links) isUnlinked(id peer.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.members[id]
	return k != nil && k.far(l.now()) && !l.isLinked(id)
}

// far says whether a member is alive that this peer does not watch itself.
func (k *link) far(now time.Duration) bool { return !k.running && k.state(now) == liveness.Alive }

// compared notes that this peer and a member have the same records.
func (l *links) compared(id peer.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.members[id]; k != nil {
		k.compared = true
	}
}

// surveyPatience bounds the time in which a peer, once started, looks around
// before it believes that members are gone.
const surveyPatience = 10 * time.Second

// Surveyed says that every member was reached and compared with, or could not
// be reached, since the start, or in a large mesh every neighbour; or that it is
// too late to wait for that.
func (n *Node) Surveyed() bool {
	l := n.links
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now() >= surveyPatience {
		return true
	}
	for _, id := range l.layoutNow().graph.Of(n.self) {
		if k := l.members[id]; k == nil || !k.compared && !k.failed {
			return false
		}
	}
	return true
}

// Peer is one member as this peer sees it.
type Peer struct {
	membership.Member
	// Self says that it is this peer; it is alive, without link and silence.
	Self  bool
	State liveness.State
	// Transport is tcp or quic; empty while there is no connection.
	Transport string
	// Relayed says that the connection goes through another peer.
	Relayed bool
	// RTT is smoothed; 0 while unknown.
	RTT time.Duration
	// Silence is how long ago it last answered, this peer or, where there is no
	// link to it, anybody; negative if it never did.
	Silence time.Duration
	// Labels are what admins have written beside it; not to be changed.
	Labels map[string]string
	// Quiet: requests of this peer are under way there, or were, and nothing at all has been
	// heard of it for half a second or more, although it is not suspect yet. Requests had
	// better be elsewhere until it is heard; nothing else follows from it.
	Quiet bool
	// Cordoned: no model is to be placed on it that does not run there. Draining:
	// what runs there is to move away.
	Cordoned, Draining bool
}

// Peers lists the members, this one included, by name.
func (n *Node) Peers() []Peer {
	n.links.mu.Lock()
	defer n.links.mu.Unlock()
	now := n.links.now()
	var peers []Peer
	for _, m := range n.Roster().Members() {
		m.Name = n.NameOf(m.ID)
		set := n.settingsOf(m.ID)
		p := Peer{Member: m, State: liveness.Gone, Silence: -1, Labels: set.labels, Cordoned: set.cordoned, Draining: set.draining}
		if m.ID == n.self {
			p.Self, p.State, p.Silence = true, liveness.Alive, 0
		} else if k := n.links.members[m.ID]; k != nil {
			if silence, ever := k.silence(now); ever {
				p.State, p.RTT, p.Silence, p.Quiet = k.state(now), k.seen.RTT(), silence, k.active.seen.Quiet()
			}
		}
		if conns := n.host.Network().ConnsToPeer(m.ID); len(conns) > 0 {
			addr := conns[0].RemoteMultiaddr()
			p.Transport, p.Relayed = transportOf(addr), isRelayed(addr)
		}
		peers = append(peers, p)
	}
	slices.SortStableFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return peers
}

// StatesChanged gets a value, never more than one ahead, when a member's state
// has changed.
func (n *Node) StatesChanged() <-chan struct{} { return n.links.changed }
