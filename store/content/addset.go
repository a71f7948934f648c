package content

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ipfs/go-cid"

	"relay/store"
)

// asSet checks that several files can be a set, and sorts them by their names.
// What would be refused after hours of reading is refused here.
func asSet(paths []string) error {
	dir := filepath.Dir(paths[0])
	for _, path := range paths {
		if filepath.Dir(path) != dir {
			return fmt.Errorf("%s %w: it does not lie in the folder of %s; the files of a set lie in one folder (links will do)", path, ErrFileInvalid, paths[0])
		}
	}
	slices.Sort(paths)
	names := make([]string, len(paths))
	largest := make([]dirEntry, len(paths))
	for i, path := range paths {
		names[i] = filepath.Base(path)
		largest[i] = dirEntry{Name: names[i], Root: makeCID(digest{}, false), Total: MaxBytes * 2}
	}
	if err := checkNames(names); err != nil {
		return fmt.Errorf("the files in %s %w: %w", dir, ErrFileInvalid, err)
	}
	if len(encodeDir(largest)) > maxDir {
		return fmt.Errorf("the files in %s %w: their names are too long for one set", dir, ErrFileInvalid)
	}
	return nil
}

// enterSet brings a set into the tables: first its files, then, when all of them
// are there, the set. The caller holds tables.
func (s *Store) enterSet(read []hashed) (Content, error) {
	entries := make([]dirEntry, len(read))
	var entered []*file
	for i, h := range read {
		f, err := s.enter(h, true)
		if err == nil {
			entered = append(entered, f)
			entries[i], err = s.entryOf(f)
		}
		if err != nil {
			s.dropParts(entered)
			return Content{}, fmt.Errorf("%s: %w", h.path, err)
		}
	}
	dir := filepath.Dir(read[0].path)
	c, err := s.enrollSet(dir, entries)
	if err != nil {
		s.dropParts(entered)
		return Content{}, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

// entryOf is the entry of a registered file in a directory.
func (s *Store) entryOf(f *file) (dirEntry, error) {
	root, err := rootOf(f.Root)
	if err != nil {
		return dirEntry{}, err
	}
	e := dirEntry{Name: filepath.Base(f.Path), Root: f.Root, Total: f.Bytes}
	if root.leaf {
		return e, nil
	}
	block, found, err := s.space.Get(keyNode(root.digest))
	if err != nil {
		return dirEntry{}, err
	}
	if !found {
		return dirEntry{}, errIncomplete
	}
	links, err := decodeNode(block, s.layout.links)
	if err != nil {
		return dirEntry{}, err
	}
	e.Total = int64(len(block))
	for _, l := range links {
		e.Total += l.total
	}
	return e, nil
}

// registerSet registers the files of a folder, each of which has a record
// already, as a set; the entries are sorted by name. The record of the set comes
// to disk in one transaction with other writes, or neither does.
//
// It fails with ErrFileChanged when one of the files is not registered at its
// place, and with ErrContentInvalid when a total is not that of its file.
func (s *Store) registerSet(dir string, entries []dirEntry, with ...store.Write) (Content, error) {
	s.tables.Lock()
	defer s.tables.Unlock()
	return s.enrollSet(dir, entries, with...)
}

// enrollSet is registerSet for a caller that holds tables.
func (s *Store) enrollSet(dir string, entries []dirEntry, with ...store.Write) (Content, error) {
	st, err := s.newSet(dir, entries)
	if err != nil {
		return Content{}, err
	}
	var gone []*set
	for _, other := range s.allSets() {
		switch {
		case other.Dir == dir && other.Root == st.Root:
			// Here already.
			st.ID = other.ID
			return s.saveSet(st, with)
		case other.Dir == dir && slices.EqualFunc(other.entries, entries, sameName):
			gone = append(gone, other) // one of its files was changed
		case other.Root == st.Root && s.left(other):
			gone = append(gone, other) // moved
		}
	}
	block := encodeDir(entries)
	d := sha256.Sum256(block)
	id, counter := s.nextID()
	st.ID = id
	with = append(with, counter, store.Write{Key: keyNode(d), Value: block}, store.Write{Key: keyUse(d, id)})
	for i, other := range gone {
		rest := *other
		rest.State = stateRemoving
		record, err := rest.write()
		if err != nil {
			return Content{}, err
		}
		gone[i], with = &rest, append(with, record)
	}
	c, err := s.saveSet(st, with)
	if err != nil {
		return Content{}, err
	}
	for _, other := range gone {
		s.forgetSet(other.ID)
		if err := s.finishSetRemoval(other); err != nil {
			s.log.Warn("an old set stays in the tables until the next start", "path", other.Dir, "error", err)
		}
	}
	return c, nil
}

// newSet makes the record of a set out of those of its files.
func (s *Store) newSet(dir string, entries []dirEntry) (*set, error) {
	st := &set{
		Root: rootOfDir(entries), Dir: dir, State: stateWhole,
		Sizes: make([]int64, len(entries)), Used: s.opt.now().UnixNano(), entries: entries,
	}
	for i, e := range entries {
		f := s.fileOfSet(st, i)
		if f == nil {
			return nil, fmt.Errorf("%s: %w: it was removed or changed while its set was added; add the set again", st.path(i), ErrFileChanged)
		}
		own, err := s.entryOf(f)
		if err != nil {
			return nil, err
		}
		if own != e {
			return nil, fmt.Errorf("%w: the blocks of %s have %d bytes, its set says %d", ErrContentInvalid, e.Name, own.Total, e.Total)
		}
		st.Sizes[i] = f.Bytes
	}
	return st, nil
}

// rootOfDir is the root of the set with these entries.
func rootOfDir(entries []dirEntry) cid.Cid {
	return makeCID(sha256.Sum256(encodeDir(entries)), false)
}

func sameName(a, b dirEntry) bool { return a.Name == b.Name }

// left says whether none of a set's files is registered at its place any more.
func (s *Store) left(st *set) bool {
	for i := range st.entries {
		if s.fileOfSet(st, i) != nil {
			return false
		}
	}
	return true
}

func (s *Store) saveSet(st *set, with []store.Write) (Content, error) {
	record, err := st.write()
	if err != nil {
		return Content{}, err
	}
	if err := s.space.Apply(append([]store.Write{record}, with...)); err != nil {
		return Content{}, err
	}
	s.setSet(st)
	return s.contentOfSet(st, nil), nil
}
