package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"github.com/ipfs/boxo/blockstore"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"

	"relay/store"
)

// Blocks is the content as blocks, for bitswap and its like: inner nodes out of
// the database, leaves out of the files where they lie, those of running pulls
// included. A CID's codec is part of what is asked for: who may have the tree of a file
// may not have its bytes by calling them one.
type Blocks struct{ s *Store }

var _ blockstore.Blockstore = (*Blocks)(nil)

// Blocks returns the content as blocks.
func (s *Store) Blocks() *Blocks { return &Blocks{s} }

// Get returns a block. A leaf is read where it lies, in each of its places until
// one is right; it is hashed when its file is not as it was registered. It fails
// with ipld.ErrNotFound when the block is not here; when its files changed or
// vanished the error is ErrFileChanged as well, and names one.
func (b *Blocks) Get(_ context.Context, c cid.Cid) (blocks.Block, error) {
	d, ok := digestOf(c)
	if !ok {
		return nil, ipld.ErrNotFound{Cid: c}
	}
	data, err := b.s.block(d, c.Type())
	if err != nil {
		if errors.Is(err, ErrFileChanged) {
			return nil, &absentError{cid: c, cause: err}
		}
		return nil, err
	}
	if data == nil {
		return nil, ipld.ErrNotFound{Cid: c}
	}
	return blocks.NewBlockWithCid(data, c)
}

// block returns nil when there is none of that codec: inner nodes are dag-pb, leaves
// raw.
func (s *Store) block(d digest, codec uint64) ([]byte, error) {
	if codec != cid.Raw {
		data, found, err := s.space.Get(keyNode(d))
		if err != nil || !found || codec != cid.DagProtobuf || s.opt.HashOnRead && sha256.Sum256(data) != d {
			return nil, err
		}
		return data, nil
	}
	data, err := s.leafFromFiles(d, s.opt.HashOnRead)
	if data != nil {
		return data, nil
	}
	if part, ok := s.leafFromPulls(d); ok {
		return part, nil
	}
	return nil, err
}

// place is one place of a leaf.
type place struct {
	file   *file
	offset int64
	length int64
}

// placesOf returns where a leaf lies, as far as the tables know.
func (s *Store) placesOf(d digest) ([]place, error) {
	var list []place
	err := s.space.Scan(append([]byte{tableLeaves}, d[:]...), func(key, value []byte) error {
		_, id, ok := splitKey(key)
		f := s.fileByID(id)
		if !ok || f == nil {
			return nil // being added or removed
		}
		p, ok := parsePlaces(value)
		if !ok {
			return nil
		}
		for _, o := range p.offsets {
			list = append(list, place{file: f, offset: o, length: p.length})
		}
		return nil
	})
	return list, err
}

// leafFromFiles reads a leaf out of a registered file: nil without an error when
// none has it, nil with ErrFileChanged when those that should have it do not.
func (s *Store) leafFromFiles(d digest, hash bool) ([]byte, error) {
	list, err := s.placesOf(d)
	if err != nil {
		return nil, err
	}
	var first error
	for _, p := range list {
		data, err := s.readPlace(p, d, hash)
		if err == nil {
			return data, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// readPlace reads a leaf at its place. It is hashed if asked for, and always when
// the file does not look as it did when it was registered, or is damaged.
func (s *Store) readPlace(p place, d digest, hash bool) ([]byte, error) {
	// Looked at before it is opened: opening a pipe can hang.
	info, err := os.Stat(p.file.Path)
	if err != nil {
		return nil, p.file.changed(missing(err))
	}
	if !info.Mode().IsRegular() {
		return nil, p.file.changed("it is not a regular file any more")
	}
	in, err := os.Open(p.file.Path)
	if err != nil {
		return nil, p.file.changed(missing(err))
	}
	defer in.Close()
	diff, err := p.file.difference(in)
	if err != nil {
		return nil, err
	}
	data := make([]byte, p.length)
	if n, err := in.ReadAt(data, p.offset); n < len(data) {
		if diff == "" {
			diff = "it cannot be read: " + err.Error()
		}
		return nil, p.file.changed(diff)
	}
	if (hash || diff != "" || p.file.Damaged) && sha256.Sum256(data) != d {
		// It may have been written to since it was looked at.
		if diff, err = p.file.difference(in); err != nil {
			return nil, err
		}
		if diff == "" {
			diff = damaged
			s.noteDamage(p.file, p.offset)
		}
		return nil, p.file.changed(diff)
	}
	return data, nil
}

// difference says in words how an open file differs from what was registered.
func (f *file) difference(in *os.File) (string, error) {
	info, err := in.Stat()
	if err != nil {
		return "", f.changed(missing(err))
	}
	return f.Stamp.difference(stampOf(info)), nil
}

// leafFromPulls reads a leaf that a running pull has already.
func (s *Store) leafFromPulls(d digest) ([]byte, bool) {
	for _, q := range s.parts() {
		if data, ok := q.read(d); ok {
			return data, true
		}
	}
	return nil, false
}

func (s *Store) parts() []*part {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []*part
	for _, f := range s.pulls {
		if f.part != nil {
			list = append(list, f.part)
		}
	}
	return list
}

// Has says whether Get would return the block.
func (b *Blocks) Has(ctx context.Context, c cid.Cid) (bool, error) {
	_, err := b.GetSize(ctx, c)
	if ipld.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// GetSize returns a block's length. As long as a leaf's file looks as it did, the
// leaf itself is not read. It fails with ipld.ErrNotFound.
func (b *Blocks) GetSize(ctx context.Context, c cid.Cid) (int, error) {
	d, ok := digestOf(c)
	if !ok {
		return -1, ipld.ErrNotFound{Cid: c}
	}
	if !b.s.opt.HashOnRead && c.Type() == cid.Raw {
		list, err := b.s.placesOf(d)
		if err != nil {
			return -1, err
		}
		for _, p := range list {
			if p.file.check() == nil {
				return int(p.length), nil
			}
		}
	}
	block, err := b.Get(ctx, c)
	if err != nil {
		return -1, err
	}
	return len(block.RawData()), nil
}

// Put takes a block whose hash is right: a leaf that a running pull lacks is
// written to its places, an inner node is kept in the database. Other leaves are
// refused with ErrNoPlace: models are files, not blobs in a database.
func (b *Blocks) Put(_ context.Context, block blocks.Block) error {
	d, ok := digestOf(block.Cid())
	data := block.RawData()
	if !ok || sha256.Sum256(data) != d {
		return fmt.Errorf("put %s: %w", block.Cid(), blockstore.ErrHashMismatch)
	}
	placed := false
	for _, q := range b.s.parts() {
		if len(q.indices(d)) > 0 {
			if _, err := q.place(d, data); err != nil {
				return fmt.Errorf("put %s: %w", block.Cid(), err)
			}
			placed = true
		}
	}
	if placed {
		return nil
	}
	if block.Cid().Type() != cid.DagProtobuf || len(data) > maxNode {
		if have, err := b.s.block(d, block.Cid().Type()); err == nil && have != nil {
			return nil
		}
		return fmt.Errorf("put %s: %w", block.Cid(), ErrNoPlace)
	}
	b.s.tables.Lock()
	defer b.s.tables.Unlock()
	return b.s.space.Apply([]store.Write{
		{Key: keyNode(d), Value: data},
		{Key: keyUse(d, looseID)},
	})
}

// looseID is the user of inner nodes that were put by themselves.
const looseID = 0

// PutMany puts each block.
func (b *Blocks) PutMany(ctx context.Context, list []blocks.Block) error {
	for _, block := range list {
		if err := b.Put(ctx, block); err != nil {
			return err
		}
	}
	return nil
}

// DeleteBlock deletes an inner node that was put by itself. Blocks of registered
// content go with it (see Store.Remove) and are refused with ErrInUse; one that
// is not here is no error.
func (b *Blocks) DeleteBlock(_ context.Context, c cid.Cid) error {
	d, ok := digestOf(c)
	if !ok {
		return nil
	}
	b.s.tables.Lock()
	defer b.s.tables.Unlock()
	used, err := b.s.usedBeside(d, looseID)
	if err != nil {
		return err
	}
	list, err := b.s.placesOf(d)
	if err != nil {
		return err
	}
	if used || len(list) > 0 {
		return fmt.Errorf("delete %s: %w", c, ErrInUse)
	}
	return b.s.space.Apply([]store.Write{
		{Key: keyNode(d), Delete: true},
		{Key: keyUse(d, looseID), Delete: true},
	})
}

// AllKeysChan sends the CIDs of all blocks, inner nodes and leaves, until ctx is
// done; some may be sent twice.
func (b *Blocks) AllKeysChan(ctx context.Context) (<-chan cid.Cid, error) {
	out := make(chan cid.Cid)
	go func() {
		defer close(out)
		for _, table := range []byte{tableNodes, tableLeaves} {
			// In portions, so that no iterator stays open while the reader waits.
			for first := range 256 {
				keys, err := b.keys(table, byte(first))
				if err != nil {
					b.s.log.Warn("listing blocks ended early", "error", err)
					return
				}
				for _, d := range keys {
					select {
					case out <- makeCID(d, table == tableLeaves):
					case <-ctx.Done():
						return
					}
				}
			}
		}
	}()
	return out, nil
}

// keys returns the digests in a table that begin with a byte, each once.
func (b *Blocks) keys(table, first byte) ([]digest, error) {
	var list []digest
	err := b.s.space.Scan([]byte{table, first}, func(key, _ []byte) error {
		if len(key) < 1+len(digest{}) {
			return nil
		}
		d := digest(key[1 : 1+len(digest{})])
		if len(list) == 0 || list[len(list)-1] != d {
			list = append(list, d)
		}
		return nil
	})
	return list, err
}
