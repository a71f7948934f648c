package content

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/ipfs/go-cid"

	"relay/store/content/leases"
)

// Have says which leaves of a file are here: all when whole, else those whose
// bit is set, the lowest bit of the first byte being the first leaf. Unfinished
// pulls count with what is written and verified. Of a set it only says whether it
// is whole. It fails with ErrNotFound, and with ErrFileChanged when no copy is as
// it was hashed.
func (s *Store) Have(root cid.Cid) (have []byte, whole bool, err error) {
	changed := s.Check(root)
	if changed == nil {
		return nil, true, nil
	}
	u, err := s.unfinished(root)
	if err != nil {
		return nil, false, err
	}
	if u == nil {
		return nil, false, changed
	}
	have = make([]byte, (s.layout.leaves(u.bytes)+7)/8)
	for i := range have {
		have[i] = byte(u.marks[i/8] >> (i % 8 * 8))
	}
	return have, false, nil
}

// unfinished is what is here of a pull that has not ended.
type unfinished struct {
	path  string
	bytes int64 // of the whole file
	marks leases.Set
}

// unfinished returns nil when there is no such pull, or nothing is known of it.
func (s *Store) unfinished(root cid.Cid) (*unfinished, error) {
	rec, err := s.partialOf(root)
	if err != nil || rec == nil || rec.Bytes < 0 {
		return nil, err
	}
	u := &unfinished{path: rec.Part, bytes: rec.Bytes}
	if q := s.partOf(root); q != nil {
		u.marks = q.marks()
		return u, nil
	}
	m, err := s.loadMaps(rec)
	u.marks = m.done
	return u, err
}

// partOf is the part that a running pull writes to, or nil.
func (s *Store) partOf(root cid.Cid) *part {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.pulls[root]; f != nil {
		return f.part
	}
	return nil
}

// until is where the bytes end that are here without a gap from a byte on.
func (u *unfinished) until(from int64, l layout) int64 {
	for i := int(from / l.chunk); i < l.leaves(u.bytes); i++ {
		if !u.marks.Has(i) {
			return int64(i) * l.chunk
		}
	}
	return u.bytes
}

// OpenRange opens the bytes [from, to) of a file, as far as they are here without
// a gap: n is how many the reader gives. With check every leaf is hashed before
// it is read, and one that is wrong has its file noted as damaged: reads then fail
// with ErrFileChanged. It fails with ErrNotFound when the first byte is not here,
// and with ErrFileChanged.
func (s *Store) OpenRange(ctx context.Context, root cid.Cid, from, to int64, check bool) (r io.ReadCloser, n int64, err error) {
	if from < 0 || from >= to {
		return nil, 0, fmt.Errorf("bytes %d to %d of %s: %w", from, to, root, ErrNotFound)
	}
	f, changed := s.intact(root)
	var path string
	var bytes, end int64
	if changed == nil {
		path, bytes, end = f.Path, f.Bytes, f.Bytes
	} else {
		f = nil
		u, err := s.unfinished(root)
		if err != nil {
			return nil, 0, err
		}
		if u == nil {
			return nil, 0, changed
		}
		path, bytes, end = u.path, u.bytes, u.until(from, s.layout)
	}
	to = min(to, end)
	if from >= to {
		return nil, 0, fmt.Errorf("bytes from %d of %s: %w", from, root, ErrNotFound)
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w: %s", path, ErrFileChanged, missing(err))
	}
	if !check {
		return section{io.NewSectionReader(in, from, to-from), in}, to - from, nil
	}
	c := &checked{s: s, root: root, file: f, in: in, at: from, to: to, bytes: bytes, first: int(from / s.layout.chunk)}
	select {
	case s.checks <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, first(ctx.Err(), in.Close())
	}
	if c.leaves, err = s.digests(root, bytes, c.first, int((to-1)/s.layout.chunk)+1); err != nil {
		return nil, 0, first(err, c.Close())
	}
	return c, to - from, nil
}

// section is a piece of an open file.
type section struct {
	io.Reader
	io.Closer
}

// checked reads a piece of a file and hashes each leaf before it hands out any of
// it.
type checked struct {
	s      *Store
	root   cid.Cid
	file   *file // nil: an unfinished one
	in     *os.File
	at, to int64
	bytes  int64 // of the whole file
	first  int   // the leaf that leaves begin with
	leaves []digest
	buf    []byte
	rest   []byte // of buf: hashed and not handed out
	err    error
	once   sync.Once
}

// maxChecks is how many ranges are hashed before they are sent at a time.
const maxChecks = 4

func (c *checked) Close() error {
	c.once.Do(func() { <-c.s.checks })
	return c.in.Close()
}

func (c *checked) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && c.err == nil {
		c.rest, c.err = c.next()
	}
	if len(c.rest) == 0 {
		return 0, c.err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next is what is wanted of the next leaf.
func (c *checked) next() ([]byte, error) {
	if c.at >= c.to {
		return nil, io.EOF
	}
	chunk := c.s.layout.chunk
	i := int(c.at / chunk)
	begin := int64(i) * chunk
	if c.buf == nil {
		c.buf = make([]byte, chunk)
	}
	data := c.buf[:c.s.layout.leafSize(c.bytes, i)]
	n, err := c.in.ReadAt(data, begin)
	if n == len(data) && sha256.Sum256(data) == c.leaves[i-c.first] {
		data = data[c.at-begin : min(int64(len(data)), c.to-begin)]
		c.at += int64(len(data))
		return data, nil
	}
	if c.file == nil {
		c.s.doubt(c.root, i)
		return nil, fmt.Errorf("%s: %w: its bytes are others", c.in.Name(), ErrFileChanged)
	}
	if n < len(data) {
		return nil, c.file.changed(missing(err))
	}
	if err := c.file.check(); err != nil {
		return nil, err // It changed, and is not damaged.
	}
	c.s.noteDamage(c.file, begin)
	return nil, c.file.changed(damaged)
}

// doubt takes back that a leaf of an unfinished file is there, since it is wrong:
// what nobody writes to now is hashed again when the pull goes on.
func (s *Store) doubt(root cid.Cid, i int) {
	if q := s.partOf(root); q != nil {
		q.doubt(i)
		return
	}
	rec, err := s.partialOf(root)
	if err != nil || rec == nil || rec.Left.Size < 0 {
		return
	}
	rec.Left = stamp{Size: -1}
	if err := s.savePartial(rec); err != nil {
		s.log.Warn("that an unfinished file is damaged could not be noted", "path", rec.Part, "error", err)
	}
}

// digests reads the hashes of leaves [from, to) of a file off its inner nodes.
func (s *Store) digests(root cid.Cid, bytes int64, from, to int) ([]digest, error) {
	p, err := s.newPlan(root, bytes)
	if err != nil {
		return nil, err
	}
	list := make([]digest, to-from)
	nodes := []nodeAt{{link: p.root, level: s.layout.depth(bytes)}}
	for len(nodes) > 0 {
		at := nodes[0]
		nodes = nodes[1:]
		switch {
		case at.first >= to || at.first+s.layout.leaves(at.size) <= from:
			continue
		case at.level == 0:
			list[at.first-from] = at.digest
			continue
		}
		block, have, err := s.space.Get(keyNode(at.digest))
		if err != nil {
			return nil, err
		}
		if !have {
			return nil, fmt.Errorf("node %s: %w", at.cid(), ErrNotFound)
		}
		children, err := s.layout.checkNode(at, block)
		if err != nil {
			return nil, fmt.Errorf("%w: node %s: %w", ErrContentInvalid, at.cid(), err)
		}
		nodes = append(nodes, children...)
	}
	return list, nil
}

// Touch notes that content is used now, for Content.Used.
// It fails with ErrNotFound.
func (s *Store) Touch(root cid.Cid) error { return s.touch(root) }
