package content

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/ipfs/go-cid"
)

// swarmOf is a swarm of some holders, and of a peer that sends single blocks.
type swarmOf struct {
	BlockGetter
	holders []Holder
}

func (s swarmOf) Holders() []Holder { return s.holders }

// ranger is another machine that sends ranges of what a store has, and goes wrong
// in the ways it is told to.
type ranger struct {
	name string
	from *Store
	// spoil changes what is sent of the bytes from an offset on; nil: nothing.
	spoil func(at int64, data []byte)
	// lies: it says that it has all, whatever is asked for.
	lies bool
	// silent: it takes every request for a range and sends nothing.
	silent bool
	// dies after that many bytes; 0: never.
	dies int64
	// piece is the most that one read gives; 0: all.
	piece int
	// gate, if set, is passed before each read.
	gate func(ctx context.Context)

	sent   atomic.Int64
	ranges atomic.Int64
	checks atomic.Int64
	mu     sync.Mutex
	open   int
	most   int // the most ranges open at a time
}

func (r *ranger) ID() string   { return "id of " + r.name }
func (r *ranger) Name() string { return r.name }

var errDead = errors.New("the peer is gone")

func (r *ranger) dead() bool { return r.dies > 0 && r.sent.Load() >= r.dies }

func (r *ranger) Have(_ context.Context, root cid.Cid) ([]byte, bool, error) {
	if r.dead() {
		return nil, false, errDead
	}
	if r.lies {
		return nil, true, nil
	}
	return r.from.Have(root)
}

func (r *ranger) Range(ctx context.Context, root cid.Cid, from, to int64, check bool) (io.ReadCloser, error) {
	r.ranges.Add(1)
	if check {
		r.checks.Add(1)
	}
	if r.dead() {
		return nil, errDead
	}
	body, _, err := r.from.OpenRange(ctx, root, from, to, check)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.open++
	r.most = max(r.most, r.open)
	r.mu.Unlock()
	return &sending{r: r, ctx: ctx, body: body, at: from}, nil
}

type sending struct {
	r    *ranger
	ctx  context.Context
	body io.ReadCloser
	at   int64
}

func (s *sending) Read(p []byte) (int, error) {
	if s.r.gate != nil {
		s.r.gate(s.ctx)
	}
	if s.r.silent {
		<-s.ctx.Done()
	}
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.r.dead() {
		return 0, errDead
	}
	if s.r.piece > 0 {
		p = p[:min(len(p), s.r.piece)]
	}
	n, err := s.body.Read(p)
	if s.r.spoil != nil {
		s.r.spoil(s.at, p[:n])
	}
	s.at += int64(n)
	s.r.sent.Add(int64(n))
	return n, err
}

func (s *sending) Close() error {
	s.r.mu.Lock()
	s.r.open--
	s.r.mu.Unlock()
	return s.body.Close()
}
