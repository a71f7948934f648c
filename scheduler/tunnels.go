package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p"
	"relay/p2p/tunnel"
	"relay/scheduler/ways"
)

// tunnels are the ways of a coordinator's engine to its workers: each connection that
// the engine opens becomes one stream. The engine has no patience limits of its own,
// and aborts where a connection breaks; so it is this peer that breaks them when a
// worker is not to be heard any more.
type tunnels struct {
	w      *worker
	r      *run
	group  *ways.Group
	meters []tunnel.Meter // By share.
	ctx    context.Context
	end    context.CancelFunc

	mu     sync.Mutex
	conns  map[net.Conn]bool // Of the engine, and the streams that they are joined with.
	fault  error             // Why the engine has lost, or is to lose, a worker,
	lost   string            // and which.
	broken chan struct{}     // Closed when there is a fault.
	over   bool              // The engine ends by itself.
}

const (
	// openTime bounds the opening of one stream, and openEvery is how soon one is tried
	// again whose worker does not know the placement yet.
	openTime  = 15 * time.Second
	openEvery = 50 * time.Millisecond
)

// wasLost stands between a worker's name and why it was lost.
const wasLost = ", which has layers of it, was lost: "

func newTunnels(w *worker, r *run, group *ways.Group) *tunnels {
	ctx, end := context.WithCancel(context.Background())
	return &tunnels{w: w, r: r, group: group, meters: make([]tunnel.Meter, len(group.Shares)), ctx: ctx, end: end, conns: map[net.Conn]bool{}, broken: make(chan struct{})}
}

// connect joins a connection of the engine with a stream to a worker, until either
// ends, or ctx: then the engine is gone.
func (t *tunnels) connect(ctx context.Context, share int, c net.Conn) {
	if !t.enter(c) {
		_ = tunnel.Reset(c)
		return
	}
	defer t.leave(c)
	stream, err := t.open(ctx, share)
	if err != nil {
		t.blame(share, err)
		_ = tunnel.Reset(c)
		return
	}
	if !t.enter(stream) {
		_ = tunnel.Reset(stream)
		_ = tunnel.Reset(c)
		return
	}
	defer t.leave(stream)
	// Where one end takes nothing, nobody notices that the other one is gone.
	defer context.AfterFunc(ctx, func() {
		_ = tunnel.Reset(c)
		_ = tunnel.Reset(stream)
	})()
	var ended atomic.Bool // By either side.
	near := &end{c, func() { ended.Store(true) }}
	far := &end{stream, func() {
		if !ended.Swap(true) { // Before the engine is told, which aborts.
			t.blame(share, errors.New("the connection to its rpc-server broke"))
		}
	}}
	_ = tunnel.Join(near, far, &t.meters[share]) // Both are closed; who ended it is what matters.
}

// open opens a stream to a worker under the fence that is obeyed now.
func (t *tunnels) open(ctx context.Context, share int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	to, err := peer.Decode(t.group.Shares[share].Peer)
	if err != nil {
		return nil, err
	}
	for {
		t.w.mu.Lock()
		fence := t.r.fence
		t.w.mu.Unlock()
		stream, err := t.w.s.Mesh.OpenShard(ctx, to, p2p.ShardCall{UID: t.r.uid, Group: t.group.ID, Epoch: fence.Epoch, Rank: fence.Rank})
		if err == nil || !errors.Is(err, p2p.ErrShardStale) {
			return stream, err
		}
		again := time.NewTimer(openEvery)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

func (t *tunnels) enter(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault != nil || t.over {
		return false
	}
	t.conns[c] = true
	return true
}

func (t *tunnels) leave(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// blame notes that a worker was lost.
func (t *tunnels) blame(share int, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault != nil || t.over {
		return
	}
	id := t.group.Shares[share].Peer
	t.lost = id
	t.fault = &Error{Why: PeerGone, Retry: RetryLater, Message: t.w.s.nameOf(id) + wasLost + why.Error(), Err: why}
	close(t.broken)
}

// cut breaks the connections of the engine, which then ends: a worker is not to be
// heard any more.
func (t *tunnels) cut(share int, why error) {
	t.blame(share, why)
	t.mu.Lock()
	conns := t.conns
	t.conns = map[net.Conn]bool{}
	t.mu.Unlock()
	t.end()
	for c := range conns {
		_ = tunnel.Reset(c)
	}
}

// close is for an engine that ends, or has ended: nothing is anybody's fault any more.
// It returns whose it was that it has.
func (t *tunnels) close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.end()
	return t.fault
}

// lostWorker is the id of the worker whose fault it was; "" where it was nobody's.
func (t *tunnels) lostWorker() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// breaks is closed when a worker was lost; nil where there is none to lose.
func (t *tunnels) breaks() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.broken
}

// faultOf is whose fault it was that an engine did not start, nil where it did; nothing
// of it is left then.
func (t *tunnels) faultOf(err error) error {
	if err == nil {
		return nil
	}
	return t.close()
}

// turns are the round trips to all workers so far.
func (t *tunnels) turns() (n uint64) {
	for i := range t.meters {
		_, _, turns := t.meters[i].Read()
		n += turns
	}
	return n
}

// use is what has gone through, by worker.
func (t *tunnels) use() (list []LinkUse) {
	if t == nil {
		return nil
	}
	for i, s := range t.group.Shares {
		out, in, turns := t.meters[i].Read()
		list = append(list, LinkUse{s.Peer, out, in, turns})
	}
	return list
}

// end is one end of a tunnel, which notes that it ended.
type end struct {
	net.Conn
	ended func()
}

func (e *end) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if err != nil {
		e.ended()
	}
	return n, err
}

// Reset breaks it at once.
func (e *end) Reset() error { return tunnel.Reset(e.Conn) }

func (e *end) CloseWrite() error { return closeWrite(e.Conn, e.Close) }

// closeWrite says on a connection that nothing more comes, and where it knows no such
// thing ends it.
func closeWrite(c net.Conn, end func() error) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return end()
}

// judgeGroups breaks the engines of this peer whose workers are not to be heard.
func (w *worker) judgeGroups(v *view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := range w.engines {
		if e.tunnels == nil {
			continue
		}
		for i, s := range e.tunnels.group.Shares {
			if p := v.peer[s.Peer]; p == nil || !p.alive() {
				e.tunnels.cut(i, errors.New("it does not answer any more"))
			}
		}
	}
}

// gather waits until all workers of a group have taken their layers.
func (w *worker) gather(ctx context.Context, r *run, e *engine) error {
	budget := w.modelOf(r).budget()
	patience := time.NewTimer(budget)
	defer patience.Stop()
	told := ""
	for {
		v, changed := w.s.latest()
		missing, late := v.ungathered(r.uid, e.way.Group)
		if missing == "" {
			return nil
		}
		if missing != told {
			told = missing
			patience.Reset(budget) // Whatever moves may take as long as it takes.
			w.tell(r, Replica{State: StateLoading, Stage: StageGathering, Parts: e.way.Parts, Message: missing})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			w.mu.Lock()
			r.lost = late
			w.mu.Unlock()
			return Errorf(PeerGone, "its workers were not ready in time: %s", missing)
		}
	}
}

// ungathered says which workers of a group are not ready yet, "" where all are; one of
// them is first.
func (v *view) ungathered(uid string, g *ways.Group) (text, first string) {
	for _, share := range g.Shares {
		name, state := share.Peer, "has not heard of it yet"
		if p := v.peer[share.Peer]; p != nil {
			name = p.Name
		}
		if s := v.shareState(share.Peer, uid); s != nil && s.Group == g.ID {
			if s.State == StateReady {
				continue
			}
			if state = s.State; s.Stage != "" {
				state = s.Stage
			}
			if s.Total > 0 {
				state += fmt.Sprintf(" %d%%", 100*s.Done/s.Total)
			}
		}
		if text == "" {
			first = share.Peer
		} else {
			text += ", "
		}
		text += name + " " + state
	}
	if text != "" {
		text = "it waits for its workers: " + text
	}
	return text, first
}
