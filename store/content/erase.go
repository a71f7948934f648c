package content

import (
	"errors"
	"os"
)

// Erased is what Erase deleted.
type Erased struct {
	// Files were pulled whole, Unfinished only in part; Bytes is the size of the
	// whole ones.
	Files, Unfinished int
	Bytes             int64
	// Kept are the paths of pulled files that somebody has changed since: they
	// may hold what is not relay's.
	Kept []string
}

// Erase deletes every file that was pulled, finished or not, and what is known of
// it. Files that their owner registered in place are not touched, also where a
// pulled copy of the same content goes. What cannot be deleted now is deleted at
// the next start; the rest is.
func (s *Store) Erase() (Erased, error) {
	var done Erased
	partials, err := s.partials()
	errs := []error{err}
	for _, p := range partials {
		if err := s.RemovePartial(p.Root); err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
			continue
		}
		done.Unfinished++
	}
	s.tables.Lock()
	defer s.tables.Unlock()
	s.mu.RLock()
	var pulled []*file
	for _, f := range s.files {
		if f.Pulled {
			pulled = append(pulled, f)
		}
	}
	s.mu.RUnlock()
	for _, f := range pulled {
		_, gone := os.Stat(f.Path)
		ours := f.check() == nil
		if err := s.removeFile(f, ours); err != nil {
			errs = append(errs, err)
			continue
		}
		switch {
		case ours:
			done.Files++
			done.Bytes += f.Bytes
		case gone == nil:
			done.Kept = append(done.Kept, f.Path)
		}
	}
	return done, errors.Join(errs...)
}
