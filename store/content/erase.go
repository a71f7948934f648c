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
	stuck := map[uint64]bool{}
	for _, st := range s.allSets() {
		if err := s.folderOfSet(st); err != nil {
			errs = append(errs, err)
			for i := range st.entries {
				if f := s.fileOfSet(st, i); f != nil {
					stuck[f.ID] = true
				}
			}
		}
	}
	for _, f := range s.pulledFiles() {
		if stuck[f.ID] {
			continue // for a reason that was said
		}
		one, err := s.deleteOurs(f)
		if err != nil {
			errs, stuck[f.ID] = append(errs, err), true
			continue
		}
		done.Kept = append(done.Kept, one.Kept...)
		if one.Files > 0 {
			done.Files++
			done.Bytes += f.Bytes
		}
	}
	errs = append(errs, s.forgetErased(stuck))
	return done, errors.Join(errs...)
}

// folderOfSet fails where the folder is missing from which files of a set are to
// be deleted.
func (s *Store) folderOfSet(st *set) error {
	for i := range st.entries {
		if f := s.fileOfSet(st, i); f != nil && f.Pulled {
			if err := folderThere(f.top()); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetErased forgets the pulled files and the sets that they belong to, but for
// those files that are stuck and all of their sets. The caller holds tables.
func (s *Store) forgetErased(stuck map[uint64]bool) error {
	var errs []error
	for _, st := range s.allSets() {
		goes := false
		for i := range st.entries {
			f := s.fileOfSet(st, i)
			if f != nil && stuck[f.ID] {
				goes = false
				break
			}
			goes = goes || f != nil && f.Pulled
		}
		if goes {
			_, err := s.removeSet(st, false)
			errs = append(errs, err)
		}
	}
	for _, f := range s.pulledFiles() {
		if !stuck[f.ID] && !s.wanted(f) {
			_, err := s.removeFile(f, false)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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

// look sees what is where a file was pulled to, if anything is, and whether it is
// that file and neither it nor its set's folder a link to another. It fails where
// that cannot be told.
func (f *file) look() (info fs.FileInfo, ours bool, err error) {
	info, err = os.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, folderThere(f.top())
	}
	if err != nil {
		return nil, false, unusable(filepath.Dir(f.Path), err)
	}
	ours = info.Mode().IsRegular() && stampOf(info) == f.Stamp && (!f.Nested || isDir(f.top()))
	return info, ours, nil
}

// isDir says whether a path is a folder, and no link to one.
func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
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
