package content

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Erased is what Erase deleted.
type Erased struct {
	// Files were pulled whole, Unfinished only in part; Bytes is the size of the
	// whole ones.
	Files, Unfinished int
	Bytes             int64
	// Kept are the paths of pulled files that somebody has changed or replaced
	// since: they may hold what is not relay's.
	Kept []string
}

// Erase deletes every file that was pulled, finished or not, and what is known of
// it and of the sets it belongs to. Files that their owner registered in place are not touched, also where a
// pulled copy of the same content goes.
//
// It fails with ErrUnusable when a file cannot be deleted, or its folder is
// missing, as on a disk that is not mounted. What can be deleted is; the rest
// stays known, and Erase may be called again.
func (s *Store) Erase() (Erased, error) {
	var done Erased
	partials, err := s.partials()
	errs := []error{err}
	for _, p := range partials {
		if err := folderThere(p.Part); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := s.RemovePartial(p.Root); err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
			continue
		}
		done.Unfinished++
	}
	s.tables.Lock()
	defer s.tables.Unlock()
	sets, err := s.beginErasing()
	errs = append(errs, err)
	removals, err := s.removals()
	errs = append(errs, err)
	for _, f := range append(removals, s.pulledFiles()...) {
		if f.State == stateWhole && s.wanted(f) {
			continue // of a set that stays, for a reason that was said
		}
		deleted, kept, err := s.eraseFile(f)
		switch {
		case err != nil:
			errs = append(errs, err)
		case deleted:
			done.Files++
			done.Bytes += f.Bytes
		case kept:
			done.Kept = append(done.Kept, f.Path)
		}
	}
	for _, st := range sets {
		if s.inPlace(st) { // else a file is left that could not be deleted
			errs = append(errs, s.finishSetRemoval(st))
		}
	}
	return done, errors.Join(errs...)
}

// beginErasing begins the removal of the sets that pulled files belong to, and
// returns them and those whose removal was begun before. The caller holds tables.
func (s *Store) beginErasing() ([]*set, error) {
	list, err := s.setRemovals()
	errs := []error{err}
	for _, st := range s.allSets() {
		if s.inPlace(st) {
			continue
		}
		begun, err := s.beginErasingSet(st)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, begun)
	}
	return list, errors.Join(errs...)
}

func (s *Store) beginErasingSet(st *set) (*set, error) {
	for i := range st.entries {
		if f := s.fileOfSet(st, i); f != nil && f.Pulled {
			if err := folderThere(f.top()); err != nil {
				return nil, err
			}
		}
	}
	return s.beginSetRemoval(st, true)
}

func (s *Store) pulledFiles() []*file {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list []*file
	for _, f := range s.files {
		if f.Pulled {
			list = append(list, f)
		}
	}
	return list
}

// eraseFile forgets a file that was pulled, and deletes it unless it was changed.
// It goes on with a removal that was begun as that was meant. The caller holds
// tables.
func (s *Store) eraseFile(f *file) (deleted, kept bool, err error) {
	if f.State == stateRemoving && !f.Delete {
		return false, false, s.finishRemoval(f)
	}
	ours, there, err := f.look()
	if err != nil {
		return false, false, err
	}
	if f.State == stateRemoving {
		deleted, err = s.resumeRemoval(f)
	} else {
		deleted, err = ours, s.removeFile(f, ours)
	}
	return deleted, there && !ours, err
}

// look sees whether something is where a file was pulled to, and whether it is
// that file and no link to another. It fails where that cannot be told.
func (f *file) look() (ours, there bool, err error) {
	info, err := os.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, folderThere(f.top())
	}
	if err != nil {
		return false, false, unusable(filepath.Dir(f.Path), err)
	}
	return info.Mode().IsRegular() && stampOf(info) == f.Stamp, true, nil
}

// folderThere fails where the folder of a path is missing: the file may be on a
// disk that is not mounted now.
func folderThere(path string) error {
	dir := filepath.Dir(path)
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing, and %s is to be deleted from it; mount its disk or put it back, or make an empty folder there if it is gone for good",
			ErrUnusable, dir, filepath.Base(path))
	}
	if err != nil {
		return unusable(dir, err)
	}
	return nil
}
