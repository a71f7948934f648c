package content

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// Remove forgets the content with that root, in all its places; with a set go
// its files, unless another set has them or they were added by themselves. With
// deleteFiles it also deletes the files that were pulled and have not changed
// since; files that their owner registered in place are never deleted. Blocks that
// other content shares stay.
//
// It fails with ErrNotFound when there is no such content. A file that cannot be
// deleted now is deleted at the next start.
func (s *Store) Remove(root cid.Cid, deleteFiles bool) error {
	s.tables.Lock()
	defer s.tables.Unlock()
	sets, files := s.setsOf(root), s.filesOf(root)
	alone := slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return f.Part })
	if len(sets)+len(alone) == 0 {
		if len(files) > 0 {
			return fmt.Errorf("content %s: %w by itself, only as part of a set; remove the set", root, ErrNotFound)
		}
		return fmt.Errorf("content %s: %w", root, ErrNotFound)
	}
	var errs []error
	for _, st := range sets {
		begun, err := s.beginSetRemoval(st, deleteFiles)
		if err == nil {
			err = s.finishSetRemoval(begun)
		}
		errs = append(errs, err)
	}
	for _, f := range alone {
		if s.wanted(f) {
			part := *f
			part.Part = true
			errs = append(errs, s.saveFile(&part))
			continue
		}
		errs = append(errs, s.removeFile(f, deleteFiles && f.Pulled))
	}
	return errors.Join(errs...)
}

// removeFile begins and finishes the removal of one file's tables, and of the
// file itself with delete. The caller holds tables.
func (s *Store) removeFile(f *file, del bool) error {
	gone := *f
	gone.State, gone.Delete = stateRemoving, del
	record, err := gone.write()
	if err != nil {
		return err
	}
	err = s.space.Apply([]store.Write{record})
	if del && store.IsDiskFull(err) {
		// The very file may be what fills the disk. Without it the record is that
		// of a file that vanished, which is no harm.
		if err := s.deleteOurs(f); err != nil {
			return err
		}
		err = s.space.Apply([]store.Write{record})
	}
	if err != nil {
		return err
	}
	s.forgetFile(f.ID)
	_, err = s.resumeRemoval(&gone)
	return err
}

// deleteOurs deletes a pulled file if it is still the one that was pulled.
func (s *Store) deleteOurs(f *file) error {
	ours, _, err := f.look()
	if err != nil || !ours {
		return err
	}
	if err := s.opt.remove(f.Path); err != nil {
		return unusable(f.home(), err)
	}
	return nil
}

// finishRemoval deletes what a file has in the tables. It may be repeated after
// a crash at any point. The caller holds tables.
func (s *Store) finishRemoval(f *file) error {
	if f.Delete && f.Pulled {
		if err := s.opt.remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unusable(s.dir, err)
		}
	}
	if f.Pulled && f.Nested {
		os.Remove(filepath.Dir(f.Path)) // with the last file in it, and not before
	}
	if err := s.dropTables(f.ID, f.Root, f.Bytes); err != nil {
		return err
	}
	return s.space.Apply([]store.Write{{Key: keyFile(f.ID), Delete: true}})
}

// resumeRemoval goes on with a removal that was cut off, or that failed. Its file
// is deleted if it is still the one that was pulled and nobody has registered it
// since. The caller holds tables.
func (s *Store) resumeRemoval(f *file) (deleted bool, err error) {
	rest := *f
	if f.Delete {
		ours, _, err := f.look()
		if err != nil {
			return false, err
		}
		rest.Delete = ours && s.fileByPath(f.Path) == nil
	}
	return rest.Delete, s.finishRemoval(&rest)
}

// removals are the files whose removal was begun.
func (s *Store) removals() ([]*file, error) {
	var list []*file
	err := s.space.Scan([]byte{tableFiles}, func(_, value []byte) error {
		if f, err := parseFile(value); err == nil && f.State == stateRemoving {
			list = append(list, f)
		}
		return nil // What cannot be read, load has said.
	})
	return list, err
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
