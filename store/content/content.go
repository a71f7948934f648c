package content

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/ipfs/go-cid"
)

// Content is one file, or a set of files that belong together, known by its root.
type Content struct {
	// CID is the root of the file's DAG; of a set, of the directory of its files.
	CID cid.Cid
	// Bytes is the size of the file, or of all files.
	Bytes int64
	// Path is where it lies; with several copies, the first that is intact, those
	// of their owner before those that were pulled. Of a set it is the first file.
	Path string
	// Files are the paths of all files of a set, in order, and Roots the CID of each;
	// nil for a single file.
	Files []string
	Roots []cid.Cid
	// InPlace says that the file belongs to its owner: relay never deletes it.
	InPlace bool
	// Pulled is where a copy lies that was pulled, intact or not, which RemovePulled
	// deletes; "" where none was. With InPlace and Complete the one at Path stays.
	Pulled string
	// Complete says that the file is, by size, time and inode, still the one
	// that was hashed. When it is not, Check says why.
	Complete bool
	// Used is when it was last touched, pulled or added.
	Used time.Time
}

func contentOf(f *file, err error) Content {
	c := Content{CID: f.Root, Bytes: f.Bytes, Path: f.Path, InPlace: !f.Pulled, Complete: err == nil, Used: timeOf(f.Used)}
	c.Pulled = pulledAt([]*file{f})
	return c
}

// List returns everything that is registered, sorted by CID, unfinished pulls
// (see Partials) not included. A set is one; its files are listed only where they
// were added or pulled by themselves too. It looks at every file's size and time.
func (s *Store) List() []Content {
	s.mu.RLock()
	roots := map[cid.Cid]bool{}
	for _, f := range s.files {
		if !f.Part {
			roots[f.Root] = true
		}
	}
	for _, st := range s.sets {
		roots[st.Root] = true
	}
	s.mu.RUnlock()
	list := make([]Content, 0, len(roots))
	for root := range roots {
		if c, err := s.Get(root); err == nil {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Content) int { return cmp.Compare(a.CID.KeyString(), b.CID.KeyString()) })
	return list
}

// Get returns the content with that root: a file, one of a set too, or a set. It
// fails with ErrNotFound; what changed or vanished is returned with Complete false.
func (s *Store) Get(root cid.Cid) (Content, error) {
	c, _, err := s.find(root)
	return c, err
}

// Check says whether the content is here and its file still what was hashed, by
// a look at size, time and inode; of a set, all its files at their names in one
// folder. It fails with ErrNotFound, or with ErrFileChanged when no copy is left
// as it was.
func (s *Store) Check(root cid.Cid) error {
	_, wrong, err := s.find(root)
	return cmp.Or(err, wrong)
}

// Path returns the path of a file with that content, for the engine to open; of a
// set it is the first file. It fails like Check.
func (s *Store) Path(root cid.Cid) (string, error) {
	c, wrong, err := s.find(root)
	if err := cmp.Or(err, wrong); err != nil {
		return "", err
	}
	return c.Path, nil
}

// find returns the first copy of the content that is as it was hashed; if there
// is none, the first copy and what is wrong with it.
func (s *Store) find(root cid.Cid) (c Content, wrong, err error) {
	sets := s.setsOf(root)
	for i, st := range sets {
		if bad := s.checkSet(st); i == 0 || (wrong != nil && bad == nil) {
			c, wrong = s.contentOfSet(st, bad), bad
		}
	}
	if len(sets) == 0 {
		f, bad := s.intact(root)
		if f == nil {
			return Content{}, nil, bad
		}
		c, wrong = contentOf(f, bad), bad
	}
	files := s.filesOf(root)
	c.Used = timeOf(lastUse(sets, files))
	if len(sets) == 0 {
		c.Pulled = pulledAt(files)
	} else if last := sets[len(sets)-1]; !s.inPlace(last) {
		c.Pulled = last.path(0)
	}
	return c, wrong, nil
}

// pulledAt is where the first copy of a file lies that was pulled, "" where none
// was.
func pulledAt(files []*file) string {
	for _, f := range files {
		if f.Pulled && !f.Part {
			return f.Path
		}
	}
	return ""
}

// intact returns the first copy of a file that is as it was hashed; if there is
// none, the first copy and what is wrong with it.
func (s *Store) intact(root cid.Cid) (*file, error) {
	files := s.filesOf(root)
	if len(files) == 0 {
		return nil, fmt.Errorf("content %s: %w", root, ErrNotFound)
	}
	var first error
	for _, f := range files {
		err := f.check()
		if err == nil {
			return f, nil
		}
		if first == nil {
			first = err
		}
	}
	return files[0], first
}

// filesOf returns the copies of a file, first those that are their owner's, then
// those that were pulled, in the order in which they were registered.
func (s *Store) filesOf(root cid.Cid) []*file {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var files []*file
	for _, f := range s.files {
		if f.Root == root {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b *file) int {
		return cmp.Or(pulledLast(a.Pulled, b.Pulled), cmp.Compare(a.ID, b.ID))
	})
	return files
}

// pulledLast compares two copies by whether they were pulled.
func pulledLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// check holds a file against its stamp, and against what reading it has shown.
func (f *file) check() error {
	info, err := os.Stat(f.Path)
	if err != nil {
		return f.changed(missing(err))
	}
	if diff := f.Stamp.difference(stampOf(info)); diff != "" {
		return f.changed(diff)
	}
	if f.Damaged {
		return f.changed(damaged)
	}
	return nil
}

func missing(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it is not there any more"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not read it any more"
	}
	return "it cannot be read: " + err.Error()
}

// changed names the file, what happened to it, and what to do.
func (f *file) changed(how string) error {
	if f.Pulled {
		return fmt.Errorf("%s: %w: %s; pull the model again", f.Path, ErrFileChanged, how)
	}
	return fmt.Errorf("%s: %w: %s; put it back, or add the model again", f.Path, ErrFileChanged, how)
}
