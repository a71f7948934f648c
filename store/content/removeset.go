package content

import (
	"crypto/sha256"
	"slices"

	"relay/store"
)

// removeSet removes a set from the tables, after the pulled files that only it has
// with del. Where one of them cannot be deleted, the others are left and the set
// stays registered, without those that were deleted before, if any. The caller
// holds tables.
func (s *Store) removeSet(st *set, del bool) (done Removed, err error) {
	if del {
		for _, f := range s.pulledWith(st) {
			one, err := s.deleteOurs(f)
			done.add(one)
			if err != nil {
				return done, err
			}
		}
	}
	gone := *st
	gone.State = stateRemoving
	record, err := gone.write()
	if err != nil {
		return done, err
	}
	if err := s.space.Apply([]store.Write{record}); err != nil {
		return done, err
	}
	s.forgetSet(st.ID)
	return done, s.finishSetRemoval(&gone)
}

// goingWith are the files that go with a set that is forgotten: those that are
// registered neither by themselves nor as part of another.
func (s *Store) goingWith(st *set) []*file {
	var list []*file
	for i := range st.entries {
		if f := s.fileOfSet(st, i); f != nil && f.Part && !s.wantedBeside(f, st.ID) {
			list = append(list, f)
		}
	}
	return list
}

// pulledWith are those of goingWith that were pulled.
func (s *Store) pulledWith(st *set) []*file {
	return slices.DeleteFunc(s.goingWith(st), func(f *file) bool { return !f.Pulled })
}

// finishSetRemoval removes what a set has in the tables, its files first. It may
// be repeated after a crash at any point. The caller holds tables.
func (s *Store) finishSetRemoval(st *set) error {
	for _, f := range s.goingWith(st) {
		if _, err := s.removeFile(f, false); err != nil {
			return err
		}
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
		if _, err := s.removeFile(f, false); err != nil {
			s.log.Warn("a part of no set stays in the tables until the next start", "path", f.Path, "error", err)
		}
	}
}
