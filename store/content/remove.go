package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// Removed is what Remove and RemovePulled deleted.
type Removed struct {
	// Files are those that were deleted, Bytes what the disk has back of them: a
	// file that has another name still counts none.
	Files int
	Bytes int64
	// Kept are the paths of pulled files that were to be deleted and were not:
	// somebody has changed or replaced them, or other content here needs them.
	Kept []string
}

func (r *Removed) add(o Removed) {
	r.Files, r.Bytes, r.Kept = r.Files+o.Files, r.Bytes+o.Bytes, append(r.Kept, o.Kept...)
}

// Remove forgets the content with that root, in all its places; with a set go
// its files, unless another set has them or they were added by themselves. With
// deleteFiles it also deletes the files that were pulled and have not changed
// since; files that their owner registered in place are never deleted. Blocks that
// other content shares stay.
//
// It fails with ErrNotFound when there is no such content, and with ErrUnusable
// when a file cannot be deleted or its folder is missing: that copy stays
// registered then. What it says was deleted is, also where it fails.
func (s *Store) Remove(root cid.Cid, deleteFiles bool) (Removed, error) {
	s.tables.Lock()
	defer s.tables.Unlock()
	sets, files := s.setsOf(root), s.filesOf(root)
	alone := slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return f.Part })
	if len(sets)+len(alone) == 0 {
		if len(files) > 0 {
			return Removed{}, fmt.Errorf("content %s: %w by itself, only as part of a set; remove the set", root, ErrNotFound)
		}
		return Removed{}, fmt.Errorf("content %s: %w", root, ErrNotFound)
	}
	var done Removed
	var errs []error
	for _, st := range sets {
		one, err := s.removeSet(st, deleteFiles)
		done.add(one)
		errs = append(errs, err)
	}
	for _, f := range alone {
		del := deleteFiles && f.Pulled
		if s.wanted(f) {
			part := *f
			part.Part = true
			errs = append(errs, s.saveFile(&part))
			if del {
				done.Kept = append(done.Kept, f.Path)
			}
			continue
		}
		one, err := s.removeFile(f, del)
		done.add(one)
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// RemovePulled deletes and forgets the copies of a content that were pulled. Those
// that their owner registered in place stay registered, and so does a copy of
// which nothing can be deleted because it is not what was pulled any more, or
// because a set needs it.
//
// It fails with ErrNotFound when no copy was pulled, and else like Remove.
func (s *Store) RemovePulled(root cid.Cid) (Removed, error) {
	s.tables.Lock()
	defer s.tables.Unlock()
	var done Removed
	var errs []error
	found := false
	try := func(files []*file, remove func() (Removed, error)) {
		found = true
		kept, err := spared(files)
		one := Removed{Kept: kept}
		if err == nil && len(kept) == 0 {
			one, err = remove()
		}
		done.add(one)
		errs = append(errs, err)
	}
	for _, st := range s.setsOf(root) {
		if !s.inPlace(st) {
			try(s.pulledWith(st), func() (Removed, error) { return s.removeSet(st, true) })
		}
	}
	for _, f := range s.filesOf(root) {
		switch {
		case !f.Pulled || f.Part:
		case s.wanted(f):
			found = true
			done.Kept = append(done.Kept, f.Path)
		default:
			try([]*file{f}, func() (Removed, error) { return s.removeFile(f, true) })
		}
	}
	if !found {
		return Removed{}, fmt.Errorf("content %s: %w as something that was pulled", root, ErrNotFound)
	}
	return done, errors.Join(errs...)
}

// spared are the paths at which something lies that is not what was pulled, if
// there is nothing but such.
func spared(files []*file) (kept []string, err error) {
	for _, f := range files {
		info, ours, err := f.look()
		if err != nil {
			return nil, err
		}
		if ours {
			return nil, nil
		}
		if info != nil {
			kept = append(kept, f.Path)
		}
	}
	return kept, nil
}

// removeFile removes one file from the tables, after the file itself with del.
// Killed between the two, it is a file that vanished. The caller holds tables.
func (s *Store) removeFile(f *file, del bool) (done Removed, err error) {
	if del {
		if done, err = s.deleteOurs(f); err != nil {
			return done, err
		}
	}
	gone := *f
	gone.State = stateRemoving
	record, err := gone.write()
	if err != nil {
		return done, err
	}
	if err := s.space.Apply([]store.Write{record}); err != nil {
		return done, err
	}
	s.forgetFile(f.ID)
	return done, s.finishRemoval(&gone)
}

// deleteOurs deletes a pulled file if it is still the one that was pulled.
func (s *Store) deleteOurs(f *file) (Removed, error) {
	info, ours, err := f.look()
	switch {
	case err != nil || info == nil:
		return Removed{}, err
	case !ours:
		return Removed{Kept: []string{f.Path}}, nil
	}
	switch err := s.opt.remove(f.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return Removed{}, nil
	case err != nil:
		return Removed{}, unusable(f.home(), err)
	}
	done := Removed{Files: 1}
	if hardLinks(info) <= 1 {
		done.Bytes = f.Bytes
	}
	return done, nil
}

// finishRemoval deletes what a file has in the tables. It may be repeated after
// a crash at any point. The caller holds tables.
func (s *Store) finishRemoval(f *file) error {
	if f.Pulled && f.Nested && isDir(f.top()) {
		os.Remove(f.top()) // with the last file in it, and not before
	}
	if err := s.dropTables(f.ID, f.Root, f.Bytes); err != nil {
		return err
	}
	return s.space.Apply([]store.Write{{Key: keyFile(f.ID), Delete: true}})
}

// dropTables deletes the references, and the inner nodes that nobody else uses,
// of a file or a pull. References go first: by the nodes they are found.
func (s *Store) dropTables(id uint64, root cid.Cid, bytes int64) error {
	leaves, err := s.storedLeaves(root, bytes)
	if err != nil && !errors.Is(err, errIncomplete) && !errors.Is(err, ErrContentInvalid) {
		return err
	}
	// With a node missing there are no references: they are written after all
	// nodes and deleted before the first.
	b := &batch{space: s.space}
	if err == nil {
		for i, d := range leaves {
			if i > 0 && d == leaves[i-1] {
				continue
			}
			if err := b.delete(keyLeaf(d, id)); err != nil {
				return err
			}
		}
		if err := b.flush(); err != nil {
			return err
		}
	}
	own, shared := map[digest]bool{}, map[digest]bool{}
	err = s.space.Scan([]byte{tableUses}, func(key, _ []byte) error {
		if d, user, ok := splitKey(key); ok {
			if user == id {
				own[d] = true
			} else {
				shared[d] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for d := range own {
		if !shared[d] {
			if err := b.delete(keyNode(d)); err != nil {
				return err
			}
		}
		if err := b.delete(keyUse(d, id)); err != nil {
			return err
		}
	}
	return b.flush()
}

var errIncomplete = errors.New("an inner node is missing")

// storedLeaves reads the leaves of a DAG off the inner nodes kept here. It fails
// with errIncomplete when not all of them are.
func (s *Store) storedLeaves(root cid.Cid, bytes int64) ([]digest, error) {
	p, err := s.newPlan(root, bytes)
	if err != nil {
		return nil, err
	}
	err = p.walk(context.Background(), func(_ context.Context, level []nodeAt, found func(digest, []byte) error) error {
		for _, at := range level {
			block, have, err := s.space.Get(keyNode(at.digest))
			if err != nil {
				return err
			}
			if !have {
				return errIncomplete
			}
			if err := found(at.digest, block); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p.leaves, nil
}
