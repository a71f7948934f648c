package content

import (
	"context"
	"fmt"

	"github.com/ipfs/go-cid"
)

// plan is what a root and a size promise: which leaf lies where.
type plan struct {
	layout layout
	root   link
	bytes  int64
	leaves []digest // filled by walk
}

func (s *Store) newPlan(root cid.Cid, bytes int64) (*plan, error) {
	l, err := rootOf(root)
	if err != nil {
		return nil, err
	}
	if bytes < 0 || bytes > MaxBytes {
		return nil, fmt.Errorf("%w: %s would have %d bytes, the most is %d", ErrContentInvalid, root, bytes, int64(MaxBytes))
	}
	l.size = bytes
	if l.leaf != (s.layout.depth(bytes) == 0) {
		return nil, fmt.Errorf("%w: %s cannot have %d bytes", ErrContentInvalid, root, bytes)
	}
	if bytes == 0 && l.digest != emptyDigest() {
		return nil, fmt.Errorf("%w: %s is not the CID of an empty file", ErrContentInvalid, root)
	}
	return &plan{layout: s.layout, root: l, bytes: bytes}, nil
}

// walk goes down the DAG level by level and fills in the leaves. fetch gets the
// nodes of one level, each digest once, and must hand the block of each to
// found, from one goroutine, in any order; the block's hash is right by then.
func (p *plan) walk(ctx context.Context, fetch func(ctx context.Context, level []nodeAt, found func(digest, []byte) error) error) error {
	p.leaves = make([]digest, p.layout.leaves(p.bytes))
	depth := p.layout.depth(p.bytes)
	if depth == 0 {
		p.leaves[0] = p.root.digest
		return nil
	}
	level := []nodeAt{{link: p.root, level: depth}}
	for len(level) > 0 {
		// One node may stand in several places; it must fit each.
		standsAt := map[digest][]nodeAt{}
		var once []nodeAt
		for _, at := range level {
			if len(standsAt[at.digest]) == 0 {
				once = append(once, at)
			}
			standsAt[at.digest] = append(standsAt[at.digest], at)
		}
		level = level[:0:0]
		err := fetch(ctx, once, func(d digest, block []byte) error {
			for _, at := range standsAt[d] {
				children, err := p.layout.checkNode(at, block)
				if err != nil {
					return fmt.Errorf("%w: node %s of %s: %w", ErrContentInvalid, at.cid(), p.root.cid(), err)
				}
				for _, c := range children {
					if c.leaf {
						p.leaves[c.first] = c.digest
					} else {
						level = append(level, c)
					}
				}
			}
			delete(standsAt, d)
			return nil
		})
		if err != nil {
			return err
		}
		if len(standsAt) > 0 {
			return errIncomplete
		}
	}
	return nil
}
