package content

import (
	"crypto/sha256"

	"relay/store"
)

// beginSetRemoval notes that a set goes, and with del the pulled files that only
// it has, and returns its new record. The caller holds tables.
func (s *Store) beginSetRemoval(st *set, del bool) (*set, error) {
	gone := *st
	gone.State, gone.Delete = stateRemoving, del
	record, err := gone.write()
	if err != nil {
		return nil, err
	}
	s.forgetSet(st.ID)
	err = s.space.Apply([]store.Write{record})
	if del && store.IsDiskFull(err) {
		// As for a file: the files may be what fills the disk.
		for _, f := range s.goingWith(&gone) {
			if f.Pulled {
				if err := s.deleteOurs(f); err != nil {
					s.setSet(st)
					return nil, err
				}
			}
		}
		err = s.space.Apply([]store.Write{record})
	}
	if err != nil {
		s.setSet(st)
		return nil, err
	}
	return &gone, nil
}

// goingWith are the files that go with a set that is forgotten: those that are
// registered neither by themselves nor as part of another.
func (s *Store) goingWith(st *set) []*file {
	var list []*file
	for i := range st.entries {
		if f := s.fileOfSet(st, i); f != nil && f.Part && !s.wanted(f) {
			list = append(list, f)
		}
	}
	return list
}

// finishSetRemoval removes what a set has in the tables, its files first. It may
// be repeated after a crash at any point. The caller holds tables.
func (s *Store) finishSetRemoval(st *set) error {
	var failed error // the first; the others would say the same of their files
	for _, f := range s.goingWith(st) {
		if err := s.removeFile(f, st.Delete && f.Pulled); failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	d := sha256.Sum256(encodeDir(st.entries))
	shared, err := s.usedBeside(d, st.ID)
	if err != nil {
		return err
	}
	writes := []store.Write{{Key: keySet(st.ID), Delete: true}, {Key: keyUse(d, st.ID), Delete: true}}
	if !shared {
		writes = append(writes, store.Write{Key: keyNode(d), Delete: true})
	}
	return s.space.Apply(writes)
}

// usedBeside says whether an inner node has another user than id.
func (s *Store) usedBeside(d digest, id uint64) (bool, error) {
	used := false
	err := s.space.Scan(append([]byte{tableUses}, d[:]...), func(key, _ []byte) error {
		_, user, ok := splitKey(key)
		used = used || (ok && user != id)
		return nil
	})
	return used, err
}

// setRemovals are the sets whose removal was begun.
func (s *Store) setRemovals() ([]*set, error) {
	var list []*set
	err := s.space.Scan([]byte{tableSets}, func(_, value []byte) error {
		if st, err := s.parseSet(value); err == nil && st.State == stateRemoving {
			list = append(list, st)
		}
		return nil // What cannot be read, load has said.
	})
	return list, err
}

// strayParts are files that were added as parts of a set that never came to be.
// Those that were pulled are the business of their pull.
func (s *Store) strayParts() []*file {
	s.mu.RLock()
	var parts []*file
	for _, f := range s.files {
		if f.Part && !f.Pulled {
			parts = append(parts, f)
		}
	}
	s.mu.RUnlock()
	var list []*file
	for _, f := range parts {
		if !s.wanted(f) {
			list = append(list, f)
		}
	}
	return list
}

// dropParts takes files out of the tables that are parts of no set. The caller
// holds tables.
func (s *Store) dropParts(files []*file) {
	for _, f := range files {
		f = s.fileByID(f.ID)
		if f == nil || !f.Part || s.wanted(f) {
			continue
		}
		if err := s.removeFile(f, false); err != nil {
			s.log.Warn("a part of no set stays in the tables until the next start", "path", f.Path, "error", err)
		}
	}
}
