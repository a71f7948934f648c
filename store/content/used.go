package content

import (
	"fmt"
	"time"

	"github.com/ipfs/go-cid"
)

// usedEvery is the grain of Content.Used: within it, using content again is not
// written.
const usedEvery = time.Minute

// due says whether a use now is worth a write.
func (s *Store) due(used int64) bool {
	passed := s.opt.now().UnixNano() - used
	return passed >= int64(usedEvery) || passed < 0
}

// touch notes that content is used now. It never waits for an addition or a
// removal that is being written; the next use will do then. It fails with
// ErrNotFound.
func (s *Store) touch(root cid.Cid) error {
	sets, files := s.setsOf(root), s.filesOf(root)
	if len(sets)+len(files) == 0 {
		return fmt.Errorf("content %s: %w", root, ErrNotFound)
	}
	if !s.due(lastUse(sets, files)) || !s.tables.TryLock() {
		return nil
	}
	defer s.tables.Unlock()
	return s.touchLocked(root)
}

// touchLocked is touch for a caller that holds tables.
func (s *Store) touchLocked(root cid.Cid) error {
	now := s.opt.now().UnixNano()
	if sets := s.setsOf(root); len(sets) > 0 {
		st := *sets[0]
		st.Used = now
		_, err := s.saveSet(&st, nil)
		return err
	}
	if files := s.filesOf(root); len(files) > 0 {
		f := *files[0]
		f.Used = now
		return s.saveFile(&f)
	}
	return fmt.Errorf("content %s: %w", root, ErrNotFound)
}

// lastUse is the last use of any copy.
func lastUse(sets []*set, files []*file) int64 {
	var used int64
	for _, st := range sets {
		used = max(used, st.Used)
	}
	for _, f := range files {
		used = max(used, f.Used)
	}
	return used
}

// claim notes that content which is here was asked for anew: it is used now, and a
// file that is here as part of a set counts as registered by itself, too. It fails
// with ErrNotFound.
func (s *Store) claim(root cid.Cid) error {
	s.tables.Lock()
	defer s.tables.Unlock()
	files := s.filesOf(root)
	for _, f := range files {
		if !f.Part {
			return s.touchLocked(root)
		}
	}
	f, _ := s.intact(root)
	if f == nil {
		return s.touchLocked(root) // a set, or nothing
	}
	own := *f
	own.Part, own.Used = false, s.opt.now().UnixNano()
	return s.saveFile(&own)
}
