package content

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"

	"relay/store"
	"relay/store/content/leases"
)

const (
	// ahead is how many leaves beyond those about to be written are noted as
	// tried at a time, so that noting costs one commit per 256 MiB.
	ahead = 256
	// maxTried bounds what is noted as tried, and so what is hashed again after
	// a crash, in leaves.
	maxTried = 4096
)

// part is the file of a running pull: leaves are written to their places in it
// in any order.
//
// Locks, in the order in which they may nest: committing, then mu. use stands
// alone.
type part struct {
	space  Space
	key    []byte // of the bitmaps
	layout layout
	bytes  int64
	leaves []digest
	order  []uint32   // of leaves, by digest
	want   leases.Set // the leaves that this pull is for
	total  int64      // bytes of those

	sync func(*os.File) error
	quit <-chan struct{} // Closed when the pull is to end.

	// use is held for reading while the file is used, and for writing to close it.
	use    sync.RWMutex
	file   *os.File
	closed bool

	// committing is held while bitmaps are brought to disk.
	committing sync.Mutex

	mu      sync.Mutex
	written leases.Set    // in the file, perhaps not on disk
	synced  leases.Set    // on disk, as committed
	tried   leases.Set    // committed as perhaps written
	done    int64         // bytes written of what is wanted
	fresh   int64         // bytes written since the last commit
	kick    chan struct{} // a commit is due
	due     int64         // bytes after which one is
}

func newPart(s *Store, rec *partial, p *plan, f *os.File, m marks, want leases.Set, quit <-chan struct{}) *part {
	n := len(p.leaves)
	q := &part{
		space: s.space, key: keyMaps(rec.Root), layout: s.layout, bytes: p.bytes, want: want,
		leaves: p.leaves, order: sortedLeaves(p.leaves), file: f, sync: s.opt.sync, quit: quit,
		written: leases.NewSet(n), synced: m.done, tried: leases.NewSet(n),
		kick: make(chan struct{}, 1), due: s.opt.commitBytes,
	}
	copy(q.written, m.done)
	for i := range n {
		if !want.Has(i) {
			continue
		}
		size := q.layout.leafSize(q.bytes, i)
		q.total += size
		if m.done.Has(i) {
			q.done += size
		}
	}
	for _, i := range m.tried {
		q.tried.Add(int(i))
	}
	return q
}

// indices returns where a leaf stands.
func (p *part) indices(d digest) []uint32 {
	at := sort.Search(len(p.order), func(n int) bool {
		l := &p.leaves[p.order[n]]
		for i := range d {
			if l[i] != d[i] {
				return l[i] > d[i]
			}
		}
		return true
	})
	end := at
	for end < len(p.order) && p.leaves[p.order[end]] == d {
		end++
	}
	return p.order[at:end]
}

// open is the set of leaves that are wanted and not written.
func (p *part) open() leases.Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := leases.NewSet(len(p.leaves))
	for w := range open {
		open[w] = p.want[w] &^ p.written[w]
	}
	return open
}

// missing returns up to most leaves that are wanted and not written, each digest
// once, in the order of the file.
func (p *part) missing(most int) []digest {
	open := p.open()
	seen := map[digest]bool{}
	var list []digest
	for i := range p.leaves {
		if len(list) == most {
			break
		}
		if d := p.leaves[i]; open.Has(i) && !seen[d] {
			seen[d] = true
			list = append(list, d)
		}
	}
	return list
}

// have is how many bytes are written of those that are wanted.
func (p *part) have() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// place writes a leaf, whose hash is right, wherever it stands and is wanted, and
// returns the indices where it stands. Files of zeros have one leaf everywhere.
func (p *part) place(d digest, data []byte) ([]uint32, error) {
	p.use.RLock()
	defer p.use.RUnlock()
	if p.closed {
		return nil, ErrNoPlace
	}
	all := p.indices(d)
	for rest := all; len(rest) > 0; {
		some := p.wanted(rest[:min(len(rest), ahead)])
		rest = rest[min(len(rest), ahead):]
		select {
		case <-p.quit:
			return nil, context.Canceled
		default:
		}
		if len(some) == 0 {
			continue
		}
		if err := p.intend(some); err != nil {
			return nil, err
		}
		for _, i := range some {
			if err := p.write(int(i), data); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (p *part) wanted(indices []uint32) []uint32 {
	var list []uint32
	for _, i := range indices {
		if p.want.Has(int(i)) {
			list = append(list, i)
		}
	}
	return list
}

// has says whether a leaf is written.
func (p *part) has(i int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.Has(i)
}

// doubt takes back that a leaf is written: it was found to be wrong.
func (p *part) doubt(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.written.Has(i) {
		return
	}
	p.written.Remove(i)
	if p.want.Has(i) {
		p.done -= p.layout.leafSize(p.bytes, i)
	}
	p.fresh++ // So that it is committed.
}

func (p *part) write(i int, data []byte) error {
	if int64(len(data)) != p.layout.leafSize(p.bytes, i) {
		return fmt.Errorf("%w: leaf %d has %d bytes instead of %d", ErrContentInvalid, i, len(data), p.layout.leafSize(p.bytes, i))
	}
	if p.has(i) {
		return nil
	}
	if _, err := p.file.WriteAt(data, int64(i)*p.layout.chunk); err != nil {
		return p.writeError(err)
	}
	p.mark(i)
	return nil
}

func (p *part) writeError(err error) error {
	if store.IsDiskFull(err) {
		return fmt.Errorf("%w: the pull into %s has %s of %s; free some space, and it goes on",
			store.ErrDiskFull, p.file.Name(), store.FormatBytes(uint64(p.have())), store.FormatBytes(uint64(p.total)))
	}
	return fmt.Errorf("%w: %w", ErrUnusable, err)
}

// mark notes that leaf i is in the file.
func (p *part) mark(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written.Has(i) {
		return
	}
	p.written.Add(i)
	size := p.layout.leafSize(p.bytes, i)
	p.fresh += size
	if p.want.Has(i) {
		p.done += size
	}
	if p.fresh >= p.due {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

// intend commits, before leaves are written, that they may have been.
func (p *part) intend(indices []uint32) error {
	if p.mayWrite(indices) {
		return nil
	}
	p.committing.Lock()
	defer p.committing.Unlock()
	if p.mayWrite(indices) {
		return nil // by another's commit meanwhile
	}
	p.mu.Lock()
	full := p.tried.Count()+len(indices)+ahead > maxTried
	p.mu.Unlock()
	if full {
		if err := p.commitLocked(); err != nil {
			return err
		}
	}
	p.mu.Lock()
	next := leases.NewSet(len(p.leaves))
	copy(next, p.tried)
	for _, i := range indices {
		next.Add(int(i))
	}
	for i, n := int(indices[len(indices)-1])+1, 0; i < len(p.leaves) && n < ahead; i++ {
		if p.want.Has(i) && !p.written.Has(i) {
			next.Add(i)
			n++
		}
	}
	synced := p.synced
	p.mu.Unlock()
	if err := p.save(synced, next); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried = next
	return nil
}

func (p *part) mayWrite(indices []uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range indices {
		if !p.tried.Has(int(i)) && !p.written.Has(int(i)) {
			return false
		}
	}
	return true
}

// commit brings what is written to disk, and then the bitmap that says so.
func (p *part) commit() error {
	p.committing.Lock()
	defer p.committing.Unlock()
	return p.commitLocked()
}

func (p *part) commitLocked() error {
	p.mu.Lock()
	if p.fresh == 0 {
		p.mu.Unlock()
		return nil
	}
	snapshot := leases.NewSet(len(p.leaves))
	copy(snapshot, p.written)
	fresh := p.fresh
	tried := leases.NewSet(len(p.leaves))
	for i := range tried {
		tried[i] = p.tried[i] &^ snapshot[i]
	}
	p.mu.Unlock()
	if err := p.sync(p.file); err != nil {
		return p.writeError(err)
	}
	if err := p.save(snapshot, tried); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced, p.tried = snapshot, tried
	p.fresh -= fresh
	return nil
}

func (p *part) save(done, tried leases.Set) error {
	m := marks{done: done}
	for i := range p.leaves {
		if tried.Has(i) && !done.Has(i) {
			m.tried = append(m.tried, uint32(i))
		}
	}
	return p.space.Apply([]store.Write{{Key: p.key, Value: m.encode(len(p.leaves))}})
}

// marks is a copy of which leaves are written.
func (p *part) marks() leases.Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.written)
}

// read returns a leaf that is in the file already, hashed again.
func (p *part) read(d digest) ([]byte, bool) {
	p.use.RLock()
	defer p.use.RUnlock()
	if p.closed {
		return nil, false
	}
	for _, i := range p.indices(d) {
		p.mu.Lock()
		have := p.written.Has(int(i))
		p.mu.Unlock()
		if !have {
			continue
		}
		data := make([]byte, p.layout.leafSize(p.bytes, int(i)))
		if n, _ := p.file.ReadAt(data, int64(i)*p.layout.chunk); n == len(data) && sha256.Sum256(data) == d {
			return data, true
		}
	}
	return nil, false
}

// close brings the file to disk, its time too, since by that it will be known,
// and lets go of it; nothing is written or read after it.
func (p *part) close() error {
	p.use.Lock()
	defer p.use.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.file.Sync()
	if err != nil {
		err = p.writeError(err)
	}
	return first(err, p.file.Close())
}
