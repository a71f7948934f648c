package content

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"relay/store"
)

// BenchmarkPlan400G is the time from the start of a pull of 400 GB until it asks
// for the first bytes of the file: all inner nodes have come, from memory, are
// checked and kept in a real database. The file is as long, and empty; the models
// folder's disk says that it has room.
func BenchmarkPlan400G(b *testing.B) {
	const size = 400e9
	leaves := make([]digest, layout{chunkSize, linkCount}.leaves(size))
	for i := range leaves {
		leaves[i] = sumOf(binary.LittleEndian.AppendUint64(nil, uint64(i)))
	}
	nodes := map[digest][]byte{}
	root, err := layout{chunkSize, linkCount}.buildTree(size, leaves, func(d digest, block []byte) error {
		nodes[d] = block
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d, err := store.Open(b.TempDir(), nil)
		if err != nil {
			b.Fatal(err)
		}
		opt := testOptions(b, d.Space("content"))
		opt.layout = layout{}
		opt.allocate = func(f *os.File, size int64) error { return f.Truncate(size) }
		s := newStore(b, opt)
		ctx, cancel := context.WithCancel(b.Context())
		p := &planned{nodes: nodes, cancel: cancel}
		began := time.Now()
		_, err = s.Pull(ctx, PullOptions{Root: root.cid(), Bytes: size, Name: "m", Swarm: p, Progress: p.progress})
		if !errors.Is(err, context.Canceled) || p.at.IsZero() {
			b.Fatalf("the pull did not come to the file's bytes: %v", err)
		}
		b.ReportMetric(p.at.Sub(began).Seconds(), "s/plan")
		if err := errors.Join(s.RemovePartial(root.cid()), d.Close()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// planned has the inner nodes of a file, and ends the pull that asks for more.
type planned struct {
	nodes  map[digest][]byte
	cancel context.CancelFunc

	mu sync.Mutex
	at time.Time // when it did
}

// asked notes that the plan is made.
func (p *planned) asked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() {
		p.at = time.Now()
	}
	p.cancel()
}

func (p *planned) progress(now Progress) {
	if now.Phase == PhaseFetch {
		p.asked()
	}
}

func (p *planned) GetBlock(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	d, _ := digestOf(c)
	block, ok := p.nodes[d]
	if !ok {
		p.asked()
		return nil, ctx.Err()
	}
	return blocks.NewBlockWithCid(block, c)
}

func (p *planned) GetBlocks(ctx context.Context, want []cid.Cid) (<-chan blocks.Block, error) {
	out := make(chan blocks.Block, len(want))
	defer close(out)
	for _, c := range want {
		b, err := p.GetBlock(ctx, c)
		if err != nil {
			return nil, err
		}
		out <- b
	}
	return out, nil
}

func (p *planned) Holders() []Holder { return []Holder{p} }

func (p *planned) ID() string { return "holder" }

func (p *planned) Name() string { return "holder" }

func (p *planned) Have(context.Context, cid.Cid) ([]byte, bool, error) { return nil, true, nil }

func (p *planned) Range(ctx context.Context, _ cid.Cid, _, _ int64, _ bool) (io.ReadCloser, error) {
	p.asked()
	<-ctx.Done()
	return nil, ctx.Err()
}
