package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	cid "github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"relay/llama/tensorcache"
	"relay/p2p"
	"relay/p2p/membership"
	"relay/p2p/tunnel"
	"relay/scheduler/leadership"
	"relay/scheduler/ways"
)

// share is what this peer takes of a model that another one coordinates, from the
// order to the end of its rpc-server.
type share struct {
	uid, name string
	// take is as it was ordered, its Parts with what is reserved once it is.
	shareOrder

	// telling is held while the record is written. It is taken before worker.mu.
	telling sync.Mutex

	// Of worker.mu.
	model  Model
	evict  bool
	fence  leadership.Fence
	server ShareProcess      // Takes connections; nil while it does not.
	conns  map[net.Conn]bool // Those of the coordinator's engine.
	idle   chan struct{}     // Closed when the last of them ends; nil while nobody waits for that.
	ready  time.Time
	asked  atomic.Int64  // When the engine last sent something, and when something last
	moved  atomic.Int64  // came of that, in Unix nanoseconds; 0 where it never did.
	worked time.Duration // Of a processor, by the rpc-server, when that was last looked at.
	idled  time.Time     // Since when it has not been more; zero while it is.
	failed bool
	told   Share // What the mesh was last told; zero while that is nothing.

	pid     atomic.Int64
	private atomic.Uint64
	cancel  context.CancelFunc
	cut     chan struct{} // Closed when its connections may not even finish.
	notices chan *Error   // It is to end until it is ordered anew.
	freed   chan struct{} // Closed when its memory is given back.
}

// reservation is the name under which its memory is reserved.
func (s *share) reservation() string { return s.uid + "/share" }

// shareOrder is what a peer is ordered to take of a model.
type shareOrder struct {
	coordinator string
	group       string
	take        ways.Share
}

// shareOf is what a peer is ordered to take of a model, by the placement that is in
// force.
func (v *view) shareOf(peer, uid string) (o shareOrder, ok bool) {
	p, known := v.placements[uid]
	if !known || !v.inForce(p) {
		return o, false
	}
	for i, way := range p.Ways {
		if take, ok := way.Group.Share(peer); ok {
			return shareOrder{p.Peers[i], way.Group.ID, take}, true
		}
	}
	return o, false
}

// coordinatorGone is after what silence of its coordinator a worker gives its layers
// back, whatever is ordered: nobody may be left who could order anything else.
const coordinatorGone = 2 * time.Minute

// longGone says of a peer that nobody waits for it any more.
func (v *view) longGone(id string) bool {
	p := v.peer[id]
	return p == nil || !p.Self && p.gone() && (p.Silence < 0 || p.Silence >= coordinatorGone)
}

// takesShares says whether a peer may be given layers of models.
func (p *peerView) takesShares() bool {
	return p != nil && (p.Trust == membership.TrustReplicas || p.Trust == membership.TrustShardOnly)
}

// compareShares starts the shares that are ordered of this peer, and ends those that no
// longer are. It returns those that go on under another fence.
func (w *worker) compareShares(ctx context.Context, v *view) (renewed []*share) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweepTensors()
	if !v.peer[w.s.self].takesShares() {
		for _, s := range w.shares {
			s.stopNow()
		}
		return nil
	}
	for uid, p := range v.placements {
		if !v.inForce(p) {
			continue
		}
		s, m := w.shares[uid], v.model[uid]
		order, wanted := v.shareOf(w.s.self, uid)
		// Who has the first layer sees prompts.
		allowed := order.take.From > 0 || v.serves(w.s.self)
		wanted = wanted && m != nil && allowed && !v.longGone(order.coordinator)
		if s == nil && !wanted {
			continue
		}
		if obeyed := s != nil && s.fence == p.fence(); !obeyed && !w.obey(uid, p.fence()) {
			continue
		}
		switch {
		case s == nil && w.runs[uid] != nil: // Its memory is needed first; the look after its end finds it gone.
		case s == nil:
			w.startShare(ctx, m, p, order)
		case !wanted || s.group != order.group || s.coordinator != order.coordinator || !s.model.servedAs(m.Model):
			if c := v.peer[s.coordinator]; c == nil || !c.alive() || !allowed {
				s.stopNow() // Nobody is there whose requests could finish, or may.
			} else {
				s.cancel() // The next look finds it gone, and starts the other one.
			}
		default:
			s.model = m.Model
			if s.fence != p.fence() {
				s.fence = p.fence()
				renewed = append(renewed, s)
			}
		}
	}
	for uid, s := range w.shares {
		if v.model[uid] == nil {
			s.cancel()
		}
	}
	return renewed
}

func (w *worker) startShare(ctx context.Context, m *modelView, p placementView, order shareOrder) {
	ctx, cancel := context.WithCancel(ctx)
	order.take.Parts = slices.Clone(order.take.Parts)
	s := &share{
		uid: m.uid, name: m.shown, shareOrder: order, model: m.Model, evict: p.Evict, fence: p.fence(),
		conns: map[net.Conn]bool{}, cancel: cancel, cut: make(chan struct{}), notices: make(chan *Error, 1), freed: make(chan struct{}),
	}
	w.shares[m.uid] = s
	w.wait.Go(func() {
		defer cancel()
		w.liveShare(ctx, s)
		w.mu.Lock()
		delete(w.shares, s.uid)
		w.shared = time.Now()
		w.mu.Unlock()
		w.s.wake()
	})
}

// stopNow ends a share and its connections at once; worker.mu is held.
func (s *share) stopNow() {
	select {
	case <-s.cut:
	default:
		close(s.cut)
	}
	s.cancel()
}

// liveShare is the whole life of a share: it returns when nothing of it is left.
func (w *worker) liveShare(ctx context.Context, s *share) {
	err := w.serveShare(ctx, s)
	if err != nil && ctx.Err() == nil {
		state := StateFailed
		if refusal(ReasonOf(err)) {
			state = StateRefused
		}
		w.s.log.Warn("share "+state, "model", s.name, "error", err)
		w.mu.Lock()
		s.failed = true
		w.mu.Unlock()
		w.s.advert.tell() // The next group is formed of what is free.
		w.tellShare(s, Share{State: state, Reason: string(ReasonOf(err)), Message: err.Error()})
		<-ctx.Done() // Until the leader orders something else.
	}
	w.withdrawShare(s)
}

// serveShare takes layers until ctx ends (nil), or the rpc-server does.
func (w *worker) serveShare(ctx context.Context, s *share) error {
	if w.s.Engine == nil {
		return Errorf(NoEngine, "%s", w.s.NoEngine)
	}
	if err := w.reserveShare(s); err != nil {
		return err
	}
	defer w.freeShare(s)
	w.s.advert.again()
	w.tellShare(s, Share{State: StateLoading, Stage: StageFetching})
	tensors, release, err := w.tensorsFor(ctx, s)
	if err != nil {
		return err
	}
	defer release()
	launch := ShareLaunch{UID: s.uid, Parts: s.take.Parts, Threads: 1, Tensors: tensors, Env: w.modelOfShare(s).Env, Started: func(pid int) { s.pid.Store(int64(pid)) }}
	if s.onCPU() {
		launch.Threads = w.share(nil, s)
	}
	if err := w.s.CheckEnv(launch.Env); err != nil {
		return err
	}
	w.tellShare(s, Share{State: StateLoading, Stage: StageStarting})
	server, err := w.s.Engine.StartShare(ctx, launch)
	if err != nil {
		return err
	}
	w.mu.Lock()
	s.server, s.ready = server, time.Now()
	w.mu.Unlock()
	w.tellShare(s, Share{State: StateReady})
	w.s.log.Info("layers taken", "model", s.name, "from", s.take.From, "layers", s.take.Layers(), "coordinator", s.coordinator)
	err = w.watchShare(ctx, s, server)
	w.closeShare(s, err == nil)
	stop, cancel := context.WithTimeout(context.Background(), cutTime)
	defer cancel()
	_ = server.Stop(stop) // What there was to say is said by its end.
	return err
}

// watchShare looks after an rpc-server until its share is over.
func (w *worker) watchShare(ctx context.Context, s *share, server ShareProcess) error {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		select {
		case <-server.Done():
			return &Error{Why: EngineFailed, Message: fmt.Sprintf("the rpc-server ended: %v", server.Err()), Err: server.Err()}
		case <-ctx.Done():
			return nil
		case why := <-s.notices:
			return why
		case <-tick.C:
			w.weighShare(s, server)
			if s.hangs(server) {
				return Errorf(EngineFailed, "the rpc-server has computed nothing for %s although it is to", hangsAfter)
			}
		}
	}
}

// hangsAfter is how long an rpc-server may take none of a processor while something is
// asked of it: on a CPU it computes, and where a GPU does that it waits for it in short
// sleeps, or in a loop.
const hangsAfter = 30 * time.Second

// hangs says whether something was asked of the rpc-server, nothing came of it, and it
// does nothing for that. Nobody else would notice: its peer answers, and the engine has
// no patience limits.
func (s *share) hangs(server ShareProcess) bool {
	worked, err := server.Worked()
	if err != nil {
		return false // This system does not tell.
	}
	now := time.Now()
	if worked != s.worked || s.asked.Load() <= s.moved.Load() {
		s.worked, s.idled = worked, time.Time{}
		return false
	}
	if s.idled.IsZero() {
		s.idled = now
	}
	return now.Sub(s.idled) >= hangsAfter
}

// weighShare counts what an rpc-server takes where that is more than is reserved for it.
func (w *worker) weighShare(s *share, server ShareProcess) {
	u, err := server.Usage()
	if err != nil {
		return // It has ended, or this system does not tell.
	}
	s.private.Store(u.Private)
	has := w.s.ledger.Of(s.reservation())
	if has != nil && u.RSS > has[ways.HostID] {
		has[ways.HostID] = u.RSS
		w.s.ledger.Adjust(s.reservation(), has)
		w.s.advert.again()
	}
}

// quietTime is after what silence an engine that has asked for nothing is taken for
// idle, unless it says that it is about to end: another machine of its group may be
// computing.
const quietTime = 5 * time.Second

// closeShare lets nothing in any more and ends what runs: with patience once the
// coordinator's engine is done with it, has nothing to compute, or is gone.
func (w *worker) closeShare(s *share, patience bool) {
	w.mu.Lock()
	s.server = nil
	idle := make(chan struct{})
	if s.idle = idle; len(s.conns) == 0 {
		close(idle)
		s.idle = nil
	}
	w.mu.Unlock()
	if patience {
		w.tellShare(s, Share{State: StateDraining})
		w.await(s, idle)
	}
	w.mu.Lock()
	conns := s.conns
	s.conns = map[net.Conn]bool{}
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// await waits until the coordinator's engine has hung up, at most for drainTime: once
// its requests are finished. One of which its peer does not say that it ends is left
// when it is idle.
func (w *worker) await(s *share, idle <-chan struct{}) {
	drained := time.NewTimer(drainTime)
	defer drained.Stop()
	for {
		v, changed := w.s.latest()
		ends, there := w.coordinates(v, s)
		if !there || !ends && s.quiet() {
			return
		}
		quiet := time.NewTimer(quietTime)
		select {
		case <-changed:
		case <-quiet.C:
		case <-idle:
			return
		case <-s.cut:
			return
		case <-drained.C:
			return
		}
		quiet.Stop()
	}
}

// coordinates says whether the coordinator of a share still has an engine for it, and
// whether that is to end.
func (w *worker) coordinates(v *view, s *share) (ends, there bool) {
	m, p := v.model[s.uid], v.peer[s.coordinator]
	if m == nil || p == nil || !p.alive() {
		return false, false
	}
	for _, r := range m.replicas {
		if r.peer == s.coordinator && r.Group == s.group && (r.State == StateReady || r.State == StateDraining) {
			now, ok := v.shareOf(w.s.self, s.uid)
			return r.State == StateDraining || !ok || now.group != s.group, true
		}
	}
	return false, false
}

// quiet says that nothing is asked of the rpc-server, and was not for a while.
func (s *share) quiet() bool {
	asked, moved := s.asked.Load(), s.moved.Load()
	return asked <= moved && time.Since(time.Unix(0, max(asked, moved))) >= quietTime
}

// reserveShare takes the memory of a share, by this peer's own reckoning and no less
// than the order says.
func (w *worker) reserveShare(s *share) error {
	w.reserving.Lock()
	defer w.reserving.Unlock()
	cost, ok := ways.Of(w.modelOfShare(s).shape()).Share(s.take.From, s.take.Parts)
	if !ok {
		return Errorf(NotAllowed, "it was ordered to take layers that are none of this model's")
	}
	for device := range cost {
		if device != ways.HostID && !w.s.advert.lends(device) {
			return Errorf(NoCapacity, "it was ordered to take layers on %q, which this peer does not lend", device)
		}
	}
	for _, part := range s.take.Parts {
		if _, known := cost[part.Device]; known {
			cost[part.Device] = max(cost[part.Device], part.Bytes)
		}
	}
	w.mu.Lock()
	s.take.Parts = partsOf(cost, ways.Way{Parts: s.take.Parts})
	w.mu.Unlock()
	need := w.s.advert.booked(cost)
	return w.take(need, s.evict, nil, s.name, func() error { return w.s.ledger.Reserve(s.reservation(), need) })
}

func (w *worker) freeShare(s *share) {
	w.s.ledger.Release(s.reservation())
	close(s.freed)
	w.s.advert.again()
}

// onCPU says whether a share computes on the cores that are lent.
func (s *share) onCPU() bool {
	return slices.ContainsFunc(s.take.Parts, func(p ways.Part) bool { return p.Device == ways.HostID && p.Layers > 0 })
}

func (w *worker) modelOfShare(s *share) Model {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.model
}

// tensorsFor brings the tensors of a share here, and keeps them until release is called.
// Where this peer has the model's files it takes them from there. folder is "" where the
// rpc-server is to go without: then they cross the link.
func (w *worker) tensorsFor(ctx context.Context, s *share) (folder string, release func(), err error) {
	if w.s.Tensors == nil {
		return "", func() {}, nil
	}
	m := w.s.newView().model[s.uid]
	if m == nil {
		return "", nil, Errorf(NotFound, "the model is gone")
	}
	ctx, over := w.s.pulls.begin(ctx, m)
	defer over()
	keys, err := w.keysFor(ctx, s, m)
	if err != nil {
		return "", nil, err
	}
	release, missing := w.s.Tensors.Lease(keys)
	told := time.Time{}
	err = w.s.bringTensors(ctx, m, missing, func(done, total int64) {
		if now := time.Now(); now.Sub(told) >= stageEvery {
			told = now
			w.tellShare(s, Share{State: StateLoading, Stage: StageFetching, Done: done, Total: total})
		}
	})
	switch {
	case errors.Is(err, tensorcache.ErrCollision):
		w.s.log.Warn("weights cross the link", "model", s.name, "error", err)
		release()
		return "", func() {}, nil
	case err != nil:
		release()
		return "", nil, err
	}
	return w.s.Tensors.Dir(), release, nil
}

const (
	// askKeysEvery is how often a coordinator is asked again that does not know the
	// placement yet, or does not answer, and maxKeyAsks how often.
	askKeysEvery = 200 * time.Millisecond
	maxKeyAsks   = 50
)

func (w *worker) keysFor(ctx context.Context, s *share, m *modelView) ([]tensorcache.Key, error) {
	if missing, err := w.s.missing(m); err == nil && len(missing) == 0 {
		list, err := w.s.layouts.of(m.Model)
		if err != nil {
			return nil, err
		}
		var keys []tensorcache.Key
		for _, t := range large(list, s.take.From, s.take.From+s.take.Layers()) {
			keys = append(keys, tensorcache.Key{File: t.file.String(), Offset: t.Offset, Bytes: t.Bytes})
		}
		return keys, nil
	}
	coordinator, err := peer.Decode(s.coordinator)
	if err != nil {
		return nil, Errorf(PeerGone, "its coordinator is no peer")
	}
	for tries := 1; ; tries++ {
		keys, err := w.s.askTensors(ctx, coordinator, m.Model, s.uid)
		if err == nil || tries == maxKeyAsks {
			return keys, err
		}
		again := time.NewTimer(askKeysEvery)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

// tellShare writes this peer's record of a share.
func (w *worker) tellShare(s *share, state Share) {
	state.Message = bounded(state.Message, maxSentence)
	w.publishShare(s, func() { s.told = state })
}

func (w *worker) publishShare(s *share, change func()) {
	s.telling.Lock()
	defer s.telling.Unlock()
	w.mu.Lock()
	change()
	state := s.told
	state.Group, state.Epoch, state.Rank, state.From, state.Parts = s.group, s.fence.Epoch, s.fence.Rank, s.take.From, s.take.Parts
	w.mu.Unlock()
	if state.State == "" {
		return
	}
	if err := w.s.Mesh.PutOwned(KindShare, pairID(w.s.self, s.uid), state); err != nil {
		w.s.log.Error("share not published", "model", s.name, "error", err)
	}
}

func (w *worker) withdrawShare(s *share) {
	s.telling.Lock()
	defer s.telling.Unlock()
	w.mu.Lock()
	s.told = Share{}
	w.mu.Unlock()
	if _, err := w.s.Mesh.Table().DeleteOwned(KindShare, pairID(w.s.self, s.uid)); err != nil {
		w.s.log.Debug("share not withdrawn", "model", s.name, "error", err)
	}
}

// AcceptShard connects the coordinator of a group to this peer's rpc-server: nobody but
// the one that the placement names, under the fence that is obeyed, and for the
// formation that the rpc-server was started for.
func (s *Scheduler) AcceptShard(ctx context.Context, from peer.ID, call p2p.ShardCall) (net.Conn, error) {
	w := s.work
	w.mu.Lock()
	sh := w.shares[call.UID]
	var server ShareProcess
	err := error(nil)
	switch {
	case sh == nil:
		err = Errorf(Superseded, "this peer takes no layers of that model (now)")
	case sh.coordinator != from.String():
		err = Errorf(NotAllowed, "another peer coordinates that model")
	case sh.group != call.Group || sh.fence != leadership.Fence{Epoch: call.Epoch, Rank: call.Rank}:
		err = Errorf(Superseded, "this peer goes by another placement of that model")
	case sh.server == nil:
		err = Errorf(Superseded, "its rpc-server is not ready")
	default:
		server = sh.server
	}
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c, err := server.Dial(ctx)
	if err != nil {
		return nil, Errorf(EngineFailed, "the rpc-server cannot be reached: %w", err)
	}
	conn := &shareConn{Conn: c, w: w, share: sh}
	w.mu.Lock()
	defer w.mu.Unlock()
	if sh.server != server { // It ended meanwhile.
		_ = c.Close()
		return nil, Errorf(Superseded, "the layers were given back")
	}
	sh.conns[conn] = true
	return conn, nil
}

// shareConn is a connection to an rpc-server, which its share knows of.
type shareConn struct {
	net.Conn
	w     *worker
	share *share
	once  sync.Once
}

// Read notes that something came of it.
func (c *shareConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.share.moved.Store(time.Now().UnixNano())
	return n, err
}

// Write notes that it is asked for something.
func (c *shareConn) Write(p []byte) (int, error) {
	c.share.asked.Store(time.Now().UnixNano())
	return c.Conn.Write(p)
}

// Reset breaks it at once.
func (c *shareConn) Reset() error {
	return errors.Join(tunnel.Reset(c.Conn), c.Close())
}

// CloseWrite passes on that the coordinator has said all.
func (c *shareConn) CloseWrite() error { return closeWrite(c.Conn, c.Close) }

func (c *shareConn) Close() error {
	c.once.Do(func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if delete(c.share.conns, c); len(c.share.conns) == 0 && c.share.idle != nil {
			close(c.share.idle)
			c.share.idle = nil
		}
	})
	return c.Conn.Close()
}

// tensorsKept is how long tensors are kept that no group uses any more: what runs again
// soon need not fetch them again.
const tensorsKept = 10 * time.Minute

// sweepTensors deletes the tensors that no share has used for a while, and what was
// pulled for some and did not become any; worker.mu is held.
func (w *worker) sweepTensors() {
	if w.s.Tensors == nil || w.shared.IsZero() || time.Since(w.shared) < tensorsKept {
		return
	}
	w.shared = time.Time{}
	w.wait.Go(func() {
		freed, err := w.s.Tensors.Sweep(0)
		if err != nil {
			w.s.log.Warn("tensors that nobody uses are not deleted", "error", err)
		} else if freed > 0 {
			w.s.log.Info("tensors that nobody uses deleted", "bytes", freed)
		}
		w.s.dropRanges(cid.Undef)
	})
}
