package p2p

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"relay/p2p/liveness"
)

// active is what the requests that are under way at a member say of it.
type active struct {
	requests atomic.Int64
	signs    atomic.Uint64 // Answers to probes, and pieces of answers to requests.

	// Of links.mu.
	seen liveness.Active
	last uint64 // The signs at the last look.
}

// use notes that a request is under way at a member, until over is called, once. a is nil
// where there is no such member.
func (l *links) use(id peer.ID) (a *active, over func()) {
	l.mu.Lock()
	k := l.members[id]
	l.mu.Unlock()
	if k == nil {
		return nil, func() {}
	}
	if k.active.requests.Add(1) == 1 { // It is watched more closely from now on.
		select {
		case k.probe <- struct{}{}:
		default:
		}
	}
	return &k.active, func() { k.active.requests.Add(-1) }
}

// pace is the time between two probes of a member.
func (l *links) pace(k *link) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.active.requests.Load() > 0 || k.active.seen.Quiet() {
		return liveness.ActiveEvery
	}
	k.active.seen.Rest()
	return liveness.ProbeEvery
}

// look finds out, each liveness.ActiveEvery, whether a member is quiet, and tells whoever
// routes by that when it is news.
func (l *links) look(id peer.ID, k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &k.active
	signs, before := a.signs.Load(), a.seen.Quiet()
	quiet := a.seen.Look(signs != a.last)
	a.last = signs
	if quiet != before {
		l.n.log.Debug("peer with requests", "peer", short(id), "quiet", quiet)
		l.tell()
	}
}

// heardBody notes what comes of an answer as a sign of who sends it.
type heardBody struct {
	io.ReadCloser
	from *active
}

func (b heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.from.signs.Add(1)
	}
	return n, err
}
