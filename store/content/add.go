package content

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"relay/store"
)

// Add registers files as content, where they lie: one path is a file, several
// are a set, whose root is that of a directory with their names; they must lie in
// one folder. Each is read once, on all cores, and not copied; one that was added
// before and has not changed since is not read again, also where it was moved.
// What is added belongs to its owner from then on, also where a pull had put it.
// progress may be nil; it is called from one goroutine at a time and not after
// Add returned.
//
// It fails with ErrFileInvalid when a path names no readable regular file or the
// paths make no set, with ErrFileChanged when a file changes while it is read, and
// with store.ErrDiskFull; nothing is registered then.
func (s *Store) Add(ctx context.Context, paths []string, progress func(Progress)) (Content, error) {
	if len(paths) != 1 {
		return Content{}, errors.ErrUnsupported
	}
	path := paths[0]
	report := &reporter{fn: progress}
	defer report.stop()
	path, err := filepath.Abs(path)
	if err != nil {
		return Content{}, fmt.Errorf("%s %w: %w", path, ErrFileInvalid, err)
	}
	f, err := s.hashFile(ctx, path, report)
	if err != nil {
		return Content{}, err
	}
	if f.known != nil {
		known, err := s.disown(f.known.ID)
		if err != nil {
			return Content{}, fmt.Errorf("%s: %w", path, err)
		}
		return contentOf(known, nil), nil
	}
	rec := &file{Bytes: f.stamp.Size, Path: path, Stamp: f.stamp}
	if err := s.register(rec, f.leaves); err != nil {
		return Content{}, fmt.Errorf("%s: %w", path, err)
	}
	return contentOf(rec, nil), nil
}

// disown notes that a registered file is its owner's, whoever put it there, and
// returns its record.
func (s *Store) disown(id uint64) (*file, error) {
	s.tables.Lock()
	defer s.tables.Unlock()
	known := s.fileByID(id)
	if known == nil {
		return nil, fmt.Errorf("%w: it was removed while it was added; add it again", ErrFileChanged)
	}
	if !known.Pulled {
		return known, nil
	}
	own := *known
	own.Pulled = false
	return &own, s.saveFile(&own)
}

// hashed is a file that was read: its stamp and leaves, or the record that it
// has already.
type hashed struct {
	known  *file
	stamp  stamp
	leaves []digest
}

func (s *Store) hashFile(ctx context.Context, path string, report *reporter) (hashed, error) {
	// Looked at before it is opened: opening a pipe or a device can hang.
	info, err := os.Stat(path)
	if err != nil {
		return hashed{}, invalidFile(path, err)
	}
	if !info.Mode().IsRegular() {
		return hashed{}, fmt.Errorf("%s %w: it is not a regular file", path, ErrFileInvalid)
	}
	in, err := os.Open(path)
	if err != nil {
		return hashed{}, invalidFile(path, err)
	}
	defer in.Close()
	info, err = in.Stat()
	if err != nil {
		return hashed{}, invalidFile(path, err)
	}
	before := stampOf(info)
	if before.Size > MaxBytes {
		return hashed{}, fmt.Errorf("%s %w: it has %s, the most is %s", path, ErrFileInvalid,
			store.FormatBytes(uint64(before.Size)), store.FormatBytes(MaxBytes))
	}
	if known := s.fileByPath(path); known != nil && known.Stamp == before {
		return hashed{known: known}, nil
	}
	leaves, err := s.layout.hashLeaves(ctx, in, before.Size, func(done int64) {
		report.report(Progress{Phase: PhaseHash, Done: done, Total: before.Size})
	})
	if err != nil {
		return hashed{}, fmt.Errorf("%s: %w", path, err)
	}
	// By its name and not by the open file: it may have been replaced meanwhile.
	info, err = os.Stat(path)
	if err != nil {
		return hashed{}, fmt.Errorf("%s: %w: it vanished while it was read", path, ErrFileChanged)
	}
	if diff := before.difference(stampOf(info)); diff != "" {
		return hashed{}, fmt.Errorf("%s: %w: it changed while it was read (%s); add it again when nothing writes to it any more", path, ErrFileChanged, diff)
	}
	report.report(Progress{Phase: PhaseFinish, Done: before.Size, Total: before.Size})
	return hashed{stamp: before, leaves: leaves}, nil
}

func invalidFile(path string, err error) error {
	why := "it cannot be read"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		why = "this user may not read it"
	}
	return fmt.Errorf("%s %w: %s (%w)", path, ErrFileInvalid, why, err)
}

// register writes the tables of a file whose leaves are known, and fills in the
// record's root and state. A record with an id goes on with what a pull began.
//
// The order makes a crash harmless at any point: the record says "adding" until
// everything is there, and the inner nodes, by which the references can be found
// and taken back, are on disk before the first of these.
func (s *Store) register(rec *file, leaves []digest, with ...store.Write) error {
	s.tables.Lock()
	defer s.tables.Unlock()
	root, err := s.layout.buildTree(rec.Bytes, leaves, func(digest, []byte) error { return nil })
	if err != nil {
		return err
	}
	rec.Root = root.cid()
	before := s.fileByPath(rec.Path)
	if before != nil && before.Root == rec.Root && rec.ID == 0 {
		// The same bytes under a new time: only the stamp is new. Where they had
		// been pulled, they may be somebody's own by now.
		rec.ID, rec.State = before.ID, stateWhole
		return s.saveFile(rec, with...)
	}
	var counter []store.Write
	if rec.ID == 0 {
		id, write := s.nextID()
		rec.ID, counter = id, []store.Write{write}
	}
	rec.State = stateAdding
	record, err := rec.write()
	if err != nil {
		return err
	}
	if err := s.space.Apply(append(counter, record)); err != nil {
		return err
	}
	if err := s.writeTables(rec, leaves); err != nil {
		if undo := s.undoAdding(rec, with); undo != nil {
			s.log.Warn("unfinished registration stays until the next start", "path", rec.Path, "error", undo)
		}
		return err
	}
	rec.State = stateWhole
	if err := s.saveFile(rec, with...); err != nil {
		return err
	}
	if before != nil {
		// The path has other content now; the old one is gone from it.
		s.log.Info("a file was added again with other content", "path", rec.Path, "old", before.Root, "new", rec.Root)
		if err := s.removeFile(before, false); err != nil {
			s.log.Warn("old content stays until the next start", "path", rec.Path, "error", err)
		}
	}
	return nil
}

func (s *Store) saveFile(rec *file, with ...store.Write) error {
	record, err := rec.write()
	if err != nil {
		return err
	}
	if err := s.space.Apply(append([]store.Write{record}, with...)); err != nil {
		return err
	}
	s.setFile(rec)
	return nil
}

// writeTables writes a file's inner nodes and then its references.
func (s *Store) writeTables(rec *file, leaves []digest) error {
	b := &batch{space: s.space}
	_, err := s.layout.buildTree(rec.Bytes, leaves, func(d digest, block []byte) error {
		return errors.Join(b.set(keyNode(d), block), b.set(keyUse(d, rec.ID), nil))
	})
	if err != nil {
		return err
	}
	if err := b.flush(); err != nil {
		return err
	}
	order := sortedLeaves(leaves)
	for at := 0; at < len(order); {
		d := leaves[order[at]]
		p := places{length: s.layout.leafSize(rec.Bytes, int(order[at]))}
		for ; at < len(order) && leaves[order[at]] == d; at++ {
			if len(p.offsets) < maxPlaces {
				p.offsets = append(p.offsets, int64(order[at])*s.layout.chunk)
			}
		}
		if err := b.set(keyLeaf(d, rec.ID), p.encode()); err != nil {
			return err
		}
	}
	return b.flush()
}

// undoAdding takes back a registration that failed. With writes that were to
// come with it, it belongs to a pull, whose inner nodes stay.
func (s *Store) undoAdding(rec *file, with []store.Write) error {
	if len(with) > 0 {
		return s.space.Apply([]store.Write{{Key: keyFile(rec.ID), Delete: true}})
	}
	return s.finishRemoval(rec)
}

// sortedLeaves returns the indices of leaves in the order of their digests,
// equal ones in the order of the file.
func sortedLeaves(leaves []digest) []uint32 {
	order := make([]uint32, len(leaves))
	for i := range order {
		order[i] = uint32(i)
	}
	sort.Slice(order, func(a, b int) bool {
		x, y := &leaves[order[a]], &leaves[order[b]]
		// The first 8 bytes nearly always decide.
		p, q := binary.BigEndian.Uint64(x[:8]), binary.BigEndian.Uint64(y[:8])
		if p != q {
			return p < q
		}
		for i := 8; i < len(x); i++ {
			if x[i] != y[i] {
				return x[i] < y[i]
			}
		}
		return order[a] < order[b]
	})
	return order
}
