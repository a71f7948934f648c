package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// member says which file of a set a pull is for.
type member struct {
	set *flight
	// dest is where the file is to lie.
	dest string
	// total is the bytes of all blocks of its DAG, as its set says.
	total int64
	// reserve: only its space is to be reserved now.
	reserve bool
}

// directory fetches the root of a pull if it is an inner node, unless it is here,
// and returns its entries if it is the directory of a set.
func (f *flight) directory(ctx context.Context) (entries []dirEntry, err error) {
	root, err := rootOf(f.root)
	if err != nil || root.leaf {
		return nil, err
	}
	block, have, err := f.s.space.Get(keyNode(root.digest))
	if err != nil {
		return nil, err
	}
	if !have || sha256.Sum256(block) != root.digest {
		err := f.fetch(ctx, []digest{root.digest}, false, func(_ digest, data []byte) error {
			block = data
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	f.fetched = map[digest][]byte{root.digest: block}
	entries, err = decodeDir(block)
	if err != nil {
		return nil, nil // A file's, then: its own decoder says what is wrong with it.
	}
	return entries, nil
}

// beginSet makes the record of the pull of a set, with a folder of its own.
func (f *flight) beginSet(entries []dirEntry) (*partial, error) {
	if err := first(f.checkSize(entries), f.askDisk(f.missingOf(entries, ""))); err != nil {
		return nil, err
	}
	// The record first, the folder then: nothing is left that nobody knows of.
	path := filepath.Join(f.s.dir, fileName(f.name, f.root))
	rec := &partial{Root: f.root, Name: f.name, Bytes: f.bytes, Set: true, Part: path}
	for n := 2; ; n++ {
		if err := f.s.newPartial(rec); err != nil {
			return nil, err
		}
		err := os.Mkdir(rec.Part, 0o700)
		if err == nil {
			return rec, nil
		}
		if !errors.Is(err, os.ErrExist) || n > 1000 {
			return nil, first(unusable(f.s.dir, err), f.s.forgetPartial(rec))
		}
		rec.Part = path + "-" + strconv.Itoa(n)
	}
}

// missingOf is how many bytes of a set's files have no space reserved yet, at most.
func (f *flight) missingOf(entries []dirEntry, dir string) int64 {
	var need int64
	for _, e := range entries {
		size := e.Total
		if dir != "" && f.s.hasMember(filepath.Join(dir, e.Name), e.Root) {
			continue
		}
		if rec, err := f.s.partialOf(e.Root); err == nil && rec != nil {
			if rec.Bytes >= 0 {
				size = rec.Bytes
			}
			if info, err := os.Stat(rec.Part); err == nil {
				size -= min(size, allocated(info))
			}
		}
		need += size
	}
	return need
}

// checkSize refuses a set whose blocks cannot be those of as many bytes as its
// model says, before any space is taken for it.
func (f *flight) checkSize(entries []dirEntry) error {
	var total int64
	for _, e := range entries {
		total += e.Total
	}
	// Inner nodes take less than a thousandth of large files.
	if f.bytes >= 0 && (total < f.bytes || total > f.bytes+f.bytes/1000+int64(len(entries))<<20) {
		return wrongSize(f.root, total, f.bytes)
	}
	return nil
}

// hasMember says whether a path has the file of a set that belongs there.
func (s *Store) hasMember(path string, root cid.Cid) bool {
	f := s.fileByPath(path)
	return f != nil && f.Root == root && f.check() == nil
}

// pullSet brings the files of a set into their folder, one after the other, once
// there is space for all, and registers it.
func (f *flight) pullSet(ctx context.Context, rec *partial, entries []dirEntry) (Content, error) {
	f.report(Progress{Phase: PhasePlan, Total: rec.Bytes})
	d, _ := digestOf(f.root)
	keep := &nodeKeeper{s: f.s, id: rec.ID, b: batch{space: f.s.space}}
	if err := first(keep.add(d, encodeDir(entries)), keep.flush()); err != nil {
		return Content{}, err
	}
	if err := os.MkdirAll(rec.Part, 0o700); err != nil {
		return Content{}, unusable(f.s.dir, err)
	}
	if err := f.askDisk(f.missingOf(entries, rec.Part)); err != nil {
		return Content{}, err
	}
	sizes, total, err := f.reserveMembers(ctx, rec, entries)
	if err != nil {
		return Content{}, err
	}
	if rec.Bytes >= 0 && rec.Bytes != total {
		return Content{}, wrongSize(f.root, total, rec.Bytes)
	}
	rec.Bytes = total
	if err := f.roomFor(ctx, 0, total, func() error { return f.s.savePartial(rec) }); err != nil {
		return Content{}, err
	}
	var done int64
	for i, e := range entries {
		_, err := f.pullMember(ctx, rec, e, false, func(p Progress) {
			if p.Phase == PhasePlan || p.Phase == PhaseFinish {
				return // Of a file, not of the set.
			}
			f.report(Progress{Phase: p.Phase, Done: done + p.Done, Total: total, Why: p.Why})
		})
		if err != nil {
			return Content{}, err
		}
		done += sizes[i]
	}
	f.report(Progress{Phase: PhaseFinish, Done: total, Total: total})
	var c Content
	err = f.roomFor(ctx, total, total, func() (err error) {
		c, err = f.registerMembers(rec, entries)
		return err
	})
	return c, err
}

// registerMembers registers a set whose files are here; the record of its pull
// goes.
func (f *flight) registerMembers(rec *partial, entries []dirEntry) (Content, error) {
	d, _ := digestOf(f.root)
	return f.s.registerSet(rec.Part, entries,
		store.Write{Key: keyPull(f.root), Delete: true},
		store.Write{Key: keyUse(d, rec.ID), Delete: true})
}

// reserveMembers gets the inner nodes of all files and reserves their space, and
// returns how large they are.
func (f *flight) reserveMembers(ctx context.Context, rec *partial, entries []dirEntry) (sizes []int64, total int64, err error) {
	for _, e := range entries {
		c, err := f.pullMember(ctx, rec, e, true, nil)
		if err != nil {
			return nil, 0, err
		}
		sizes = append(sizes, c.Bytes)
		total += c.Bytes
	}
	return sizes, total, nil
}

func (f *flight) pullMember(ctx context.Context, rec *partial, e dirEntry, reserve bool, progress func(Progress)) (Content, error) {
	bytes := int64(-1)
	if root, err := rootOf(e.Root); err == nil && root.leaf {
		bytes = e.Total
	}
	o := order{root: e.Root, bytes: bytes, name: f.name + ": " + e.Name, get: f.get,
		member: &member{set: f, dest: filepath.Join(rec.Part, e.Name), total: e.Total, reserve: reserve}}
	c, err := f.s.ride(ctx, o, 0, progress)
	if err != nil {
		return c, fmt.Errorf("%s: %w", e.Name, err)
	}
	return c, nil
}

// here is the content that a pull is for, if it is where the pull would put it.
func (s *Store) here(o order) (Content, bool) {
	if o.member == nil {
		c, err := s.Get(o.root)
		return c, err == nil && c.Complete
	}
	f := s.fileByPath(o.member.dest)
	if f == nil || f.Root != o.root || f.check() != nil {
		return Content{}, false
	}
	return contentOf(f, nil), true
}

// checkTotal holds what a set says of its file against the file's own nodes.
func (f *flight) checkTotal(p *plan) error {
	e, err := f.s.entryOf(&file{Root: f.root, Bytes: p.bytes, Path: f.member.dest})
	if err == nil && e.Total != f.member.total {
		err = fmt.Errorf("%w: the blocks of %s have %d bytes, its set says %d", ErrContentInvalid, e.Name, e.Total, f.member.total)
	}
	return err
}

// partsOfSet are the unfinished files of an unfinished set, and those of its files
// that are whole.
func (s *Store) partsOfSet(rec *partial) (entries []dirEntry, unfinished []*partial, whole []*file, err error) {
	d, _ := digestOf(rec.Root)
	block, have, err := s.space.Get(keyNode(d))
	if err != nil || !have {
		return nil, nil, nil, err
	}
	if entries, err = decodeDir(block); err != nil {
		return nil, nil, nil, nil
	}
	for _, e := range entries {
		path := filepath.Join(rec.Part, e.Name)
		if f := s.fileByPath(path); f != nil && f.Root == e.Root {
			whole = append(whole, f)
			continue
		}
		p, err := s.partialOf(e.Root)
		if err != nil {
			return nil, nil, nil, err
		}
		if p != nil && p.Dest == path {
			unfinished = append(unfinished, p)
		}
	}
	return entries, unfinished, whole, nil
}

// dropSet deletes the files of an unfinished set that no other set has, and their
// folder if nothing else is in it. Its own record is left.
func (s *Store) dropSet(rec *partial) error {
	_, unfinished, whole, err := s.partsOfSet(rec)
	if err != nil {
		return err
	}
	for _, p := range unfinished {
		if err := s.RemovePartial(p.Root); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	s.tables.Lock()
	defer s.tables.Unlock()
	for _, f := range whole {
		if f.Part && f.Pulled && !s.wanted(f) {
			if _, err := s.removeFile(f, true); err != nil {
				return err
			}
		}
	}
	_ = os.Remove(rec.Part) // Not if somebody put something there.
	return nil
}
