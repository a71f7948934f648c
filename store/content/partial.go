package content

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ipfs/go-cid"

	"relay/store"
	"relay/store/content/leases"
)

// Partial is an unfinished pull.
type Partial struct {
	// CID is the root of what is pulled.
	CID cid.Cid
	// Name is the name that was asked for.
	Name string
	// Bytes is the whole size, -1 while it is not known; Done is how much of it
	// is here.
	Bytes, Done int64
	// Path is the unfinished file.
	Path string
	// Running says that it is being pulled now.
	Running bool
	// Sparse says that only some bytes of it were wanted.
	Sparse bool
}

// partial is the record of an unfinished pull.
type partial struct {
	ID    uint64  `json:"id"`
	Root  cid.Cid `json:"-"`
	Name  string  `json:"name"`
	Bytes int64   `json:"bytes"` // -1: not known yet
	// Part is the file being written; Final the name it gets, chosen when all
	// bytes are in it, and Stamp what it then was.
	Part  string `json:"-"`
	Final string `json:"-"`
	Stamp stamp  `json:"stamp"`
	// Set: it is a set of files, and Part their folder; each file that is not whole
	// has a record of its own.
	Set bool `json:"set,omitempty"`
	// Dest is where a file of a set is to lie; "" for files by themselves.
	Dest string `json:"-"`
	// Inode is the unfinished file's: with another file of that name in its place,
	// nothing of it is known. Left is what it was when a pull let go of it in good
	// order; its size is 0 while one writes.
	Inode uint64 `json:"inode,omitempty"`
	Left  stamp  `json:"left"`
	// Sparse: no space is reserved, as only some of it is wanted.
	Sparse bool `json:"sparse,omitempty"`

	RawRoot  []byte `json:"root"`
	RawPart  []byte `json:"part"`
	RawFinal []byte `json:"final,omitempty"`
	RawDest  []byte `json:"dest,omitempty"`
}

func (p *partial) write() (store.Write, error) {
	p.RawRoot, p.RawPart, p.RawFinal, p.RawDest = p.Root.Bytes(), []byte(p.Part), []byte(p.Final), []byte(p.Dest)
	value, err := json.Marshal(p)
	if err != nil {
		return store.Write{}, fmt.Errorf("pull record: %w", err)
	}
	return store.Write{Key: keyPull(p.Root), Value: value}, nil
}

func parsePartial(value []byte) (*partial, error) {
	p := &partial{}
	if err := json.Unmarshal(value, p); err != nil {
		return nil, fmt.Errorf("pull record: %w", err)
	}
	root, err := cid.Cast(p.RawRoot)
	if err != nil {
		return nil, fmt.Errorf("pull record: %w", err)
	}
	p.Root, p.Part, p.Final, p.Dest = root, string(p.RawPart), string(p.RawFinal), string(p.RawDest)
	return p, nil
}

func (s *Store) partials() ([]*partial, error) {
	var list []*partial
	err := s.space.Scan([]byte{tablePulls}, func(_, value []byte) error {
		p, err := parsePartial(value)
		if err == nil {
			list = append(list, p)
		}
		return err
	})
	return list, err
}

func (s *Store) partialOf(root cid.Cid) (*partial, error) {
	value, found, err := s.space.Get(keyPull(root))
	if err != nil || !found {
		return nil, err
	}
	return parsePartial(value)
}

// newPartial keeps the record of a pull that begins, and gives it an id.
func (s *Store) newPartial(p *partial) error {
	id, counter := s.nextID()
	p.ID = id
	record, err := p.write()
	if err != nil {
		return err
	}
	return s.space.Apply([]store.Write{counter, record})
}

// partName is a path for the unfinished file of a pull. It is nobody else's: two
// relays that share a models folder never write one file.
func (s *Store) partName(name string, root cid.Cid) (string, error) {
	var tag [4]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return "", fmt.Errorf("naming the unfinished file: %w", err)
	}
	return filepath.Join(s.dir, fileName(name, root)+"."+hex.EncodeToString(tag[:])+".part"), nil
}

func (s *Store) savePartial(p *partial) error {
	record, err := p.write()
	if err != nil {
		return err
	}
	return s.space.Apply([]store.Write{record})
}

// Partials returns the unfinished pulls, running ones included, sorted by name.
func (s *Store) Partials() ([]Partial, error) {
	records, err := s.partials()
	if err != nil {
		return nil, err
	}
	list := make([]Partial, 0, len(records))
	for _, p := range records {
		if p.Dest != "" && inSet(records, p) {
			continue // It shows as part of its set.
		}
		out := Partial{CID: p.Root, Name: p.Name, Bytes: p.Bytes, Path: p.Part, Sparse: p.Sparse}
		s.mu.RLock()
		f := s.pulls[p.Root]
		out.Running = f != nil && f.callers > 0
		s.mu.RUnlock()
		if out.Done, err = s.doneOf(p); err != nil {
			return nil, err
		}
		list = append(list, out)
	}
	slices.SortFunc(list, func(a, b Partial) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.CID.KeyString(), b.CID.KeyString()))
	})
	return list, nil
}

// inSet says whether an unfinished file belongs to an unfinished set.
func inSet(records []*partial, p *partial) bool {
	return slices.ContainsFunc(records, func(o *partial) bool { return o.Set && o.Part == filepath.Dir(p.Dest) })
}

// doneOf is how many bytes of an unfinished pull are here.
func (s *Store) doneOf(p *partial) (int64, error) {
	if !p.Set {
		if q := s.partOf(p.Root); q != nil {
			return q.have(), nil
		}
		return s.committed(p), nil
	}
	_, unfinished, whole, err := s.partsOfSet(p)
	if err != nil {
		return 0, err
	}
	var done int64
	for _, u := range unfinished {
		n, err := s.doneOf(u)
		if err != nil {
			return 0, err
		}
		done += n
	}
	for _, f := range whole {
		done += f.Bytes
	}
	return done, nil
}

// nothingOf says whether nothing is here of an unfinished pull.
func (s *Store) nothingOf(p *partial) bool {
	done, err := s.doneOf(p)
	return err == nil && done == 0
}

// committed is how many bytes of a pull are on disk for sure.
func (s *Store) committed(p *partial) int64 {
	if p.Bytes < 0 {
		return 0
	}
	m, err := s.loadMaps(p)
	if err != nil {
		return 0
	}
	n := s.layout.leaves(p.Bytes)
	done := int64(m.done.Count()) * s.layout.chunk
	if m.done.Has(n - 1) {
		done += s.layout.leafSize(p.Bytes, n-1) - s.layout.chunk
	}
	return done
}

func (s *Store) loadMaps(p *partial) (marks, error) {
	n := s.layout.leaves(p.Bytes)
	value, found, err := s.space.Get(keyMaps(p.Root))
	if err != nil {
		return marks{}, err
	}
	if !found {
		return marks{done: leases.NewSet(n)}, nil
	}
	return parseMaps(value, n)
}

// RemovePartial stops the pull of that root if it runs, and deletes the
// unfinished file and what is known of it. It fails with ErrNotFound when there
// is no such pull.
func (s *Store) RemovePartial(root cid.Cid) error {
	defer s.ground(root)()
	p, err := s.partialOf(root)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("unfinished pull of %s: %w", root, ErrNotFound)
	}
	return s.dropPartial(p)
}

// ground ends the pull of a root, if it runs, and keeps others from starting
// until the returned function is called.
func (s *Store) ground(root cid.Cid) (release func()) {
	// One that nobody is on: who comes waits until it is gone.
	blocker := &flight{order: order{root: root}, cancel: func(error) {}, done: make(chan struct{})}
	for {
		s.mu.Lock()
		f := s.pulls[root]
		if f == nil {
			s.pulls[root] = blocker
		}
		s.mu.Unlock()
		if f == nil {
			break
		}
		f.cancel(ErrRemoved)
		<-f.done
	}
	return func() {
		s.mu.Lock()
		delete(s.pulls, root)
		s.mu.Unlock()
		close(blocker.done)
	}
}

// dropPartial deletes an unfinished pull that does not run.
func (s *Store) dropPartial(p *partial) error {
	if p.Set {
		if err := s.dropSet(p); err != nil {
			return err
		}
	} else if err := s.dropPart(p); err != nil {
		return err
	}
	s.tables.Lock()
	defer s.tables.Unlock()
	if err := s.dropTables(p.ID, p.Root, p.Bytes); err != nil {
		return err
	}
	return s.forgetPartial(p)
}

// forgetPartial deletes the record of a pull.
func (s *Store) forgetPartial(p *partial) error {
	return s.space.Apply([]store.Write{
		{Key: keyPull(p.Root), Delete: true},
		{Key: keyMaps(p.Root), Delete: true},
	})
}

// dropPart deletes the unfinished file of a pull.
func (s *Store) dropPart(p *partial) error {
	if _, err := os.Lstat(p.Part); err == nil {
		lock, err := s.lockPart(p)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	for _, path := range []string{p.Part, p.Part + lockSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unusable(s.dir, err)
		}
	}
	if p.Final != "" && isAt(p.Final, p.Stamp) {
		// Killed between giving it its name and registering it.
		if err := os.Remove(p.Final); err != nil {
			return unusable(s.dir, err)
		}
	}
	return nil
}
