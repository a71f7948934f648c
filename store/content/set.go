package content

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// set is one registered set of files: a folder, and what lies in it under which
// name. Its files have records of their own, by which their blocks are found.
// Records in memory are never changed, only replaced.
type set struct {
	ID    uint64     `json:"id"`
	Root  cid.Cid    `json:"-"`
	Dir   string     `json:"-"`
	State tableState `json:"state"`
	// Sizes are the bytes of the files, in the order of the entries.
	Sizes []int64 `json:"sizes"`
	// Used is as for a file.
	Used int64 `json:"used,omitempty"`

	RawDir  []byte `json:"dir"`
	RawRoot []byte `json:"root"`

	// entries are the names and roots; kept as the directory's block.
	entries []dirEntry
}

func (st *set) write() (store.Write, error) {
	st.RawDir, st.RawRoot = []byte(st.Dir), st.Root.Bytes()
	value, err := json.Marshal(st)
	if err != nil {
		return store.Write{}, fmt.Errorf("set record: %w", err)
	}
	return store.Write{Key: keySet(st.ID), Value: value}, nil
}

// parseSet reads a record, and the names and roots from the block of its
// directory.
func (s *Store) parseSet(value []byte) (*set, error) {
	st := &set{}
	if err := json.Unmarshal(value, st); err != nil {
		return nil, fmt.Errorf("set record: %w", err)
	}
	root, err := cid.Cast(st.RawRoot)
	if err != nil {
		return nil, fmt.Errorf("set record: %w", err)
	}
	st.Root, st.Dir = root, string(st.RawDir)
	d, _ := digestOf(root)
	block, found, err := s.space.Get(keyNode(d))
	if err != nil {
		return nil, fmt.Errorf("set record: %w", err)
	}
	if !found || sha256.Sum256(block) != d {
		return nil, fmt.Errorf("set record: the directory of %s is missing", st.Dir)
	}
	if st.entries, err = decodeDir(block); err != nil {
		return nil, fmt.Errorf("set record: %w", err)
	}
	if len(st.Sizes) != len(st.entries) {
		return nil, fmt.Errorf("set record: %d sizes of %d files", len(st.Sizes), len(st.entries))
	}
	return st, nil
}

func (st *set) path(i int) string { return filepath.Join(st.Dir, st.entries[i].Name) }

// has says whether a file is one of the set, at its place.
func (st *set) has(f *file) bool {
	if filepath.Dir(f.Path) != st.Dir {
		return false
	}
	e, ok := entryNamed(st.entries, filepath.Base(f.Path))
	return ok && e.Root == f.Root
}

func (s *Store) setSet(st *set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets[st.ID] = st
}

func (s *Store) forgetSet(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, id)
}

// allSets returns the sets in the order in which they were registered.
func (s *Store) allSets() []*set {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]*set, 0, len(s.sets))
	for _, st := range s.sets {
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b *set) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// setsOf returns the copies of a set in the order of filesOf.
func (s *Store) setsOf(root cid.Cid) []*set {
	list := slices.DeleteFunc(s.allSets(), func(st *set) bool { return st.Root != root })
	slices.SortStableFunc(list, func(a, b *set) int { return pulledLast(!s.inPlace(a), !s.inPlace(b)) })
	return list
}

// wanted says whether a set has that file.
func (s *Store) wanted(f *file) bool { return s.wantedBeside(f, 0) }

// wantedBeside says whether another set than the one with that id has a file.
func (s *Store) wantedBeside(f *file, id uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, st := range s.sets {
		if st.ID != id && st.has(f) {
			return true
		}
	}
	return false
}

// fileOfSet returns the record of one file of a set, nil when that path has none, or
// one of another content.
func (s *Store) fileOfSet(st *set, i int) *file {
	f := s.fileByPath(st.path(i))
	if f == nil || f.Root != st.entries[i].Root {
		return nil
	}
	return f
}

// checkSet holds all files of a set against their stamps.
func (s *Store) checkSet(st *set) error {
	for i := range st.entries {
		var err error
		if f := s.fileOfSet(st, i); f != nil {
			err = f.check()
		} else {
			err = s.strayed(st.path(i))
		}
		if err != nil {
			return fmt.Errorf("file %d of %d: %w", i+1, len(st.entries), err)
		}
	}
	return nil
}

// strayed says what became of a file of a set that has no record any more.
func (s *Store) strayed(path string) error {
	f := &file{Path: path}
	switch _, err := regular(path); {
	case err != nil:
		return f.changed(missing(err))
	case s.fileByPath(path) != nil:
		return f.changed("it was added again with other bytes")
	}
	return f.changed("another file took its place")
}

func (s *Store) contentOfSet(st *set, err error) Content {
	c := Content{CID: st.Root, Path: st.path(0), InPlace: s.inPlace(st), Complete: err == nil, Used: timeOf(st.Used)}
	if !c.InPlace {
		c.Pulled = c.Path
	}
	for i, size := range st.Sizes {
		c.Bytes += size
		c.Files, c.Roots = append(c.Files, st.path(i)), append(c.Roots, st.entries[i].Root)
	}
	return c
}

// inPlace says that no file of a set was pulled.
func (s *Store) inPlace(st *set) bool {
	for i := range st.entries {
		if f := s.fileOfSet(st, i); f != nil && f.Pulled {
			return false
		}
	}
	return true
}

// timeOf is the zero time where nothing was noted.
func timeOf(unixNano int64) time.Time {
	if unixNano == 0 {
		return time.Time{}
	}
	return time.Unix(0, unixNano)
}
