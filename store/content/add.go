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

	"github.com/ipfs/go-cid"

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
	h, err := s.Hash(ctx, paths, progress)
	if err != nil {
		return Content{}, err
	}
	return s.AddHashed(h)
}

// Hashes are files that were read, and what they are, before they are registered.
type Hashes struct {
	// CID, Bytes and Paths are what a Content would have of them.
	CID   cid.Cid
	Bytes int64
	Paths []string

	read []hashed
}

// Hash is the first half of Add: it reads what is not known yet and says what the
// files are. It changes nothing of what is registered, nor of what is known of
// their paths.
func (s *Store) Hash(ctx context.Context, paths []string, progress func(Progress)) (Hashes, error) {
	report := &reporter{fn: progress}
	defer report.stop()
	if len(paths) == 0 {
		return Hashes{}, fmt.Errorf("no file %w: none was named", ErrFileInvalid)
	}
	list := make([]string, len(paths))
	for i, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return Hashes{}, fmt.Errorf("%s %w: %w", path, ErrFileInvalid, err)
		}
		list[i] = absolute
	}
	if len(list) > 1 {
		if err := asSet(list); err != nil {
			return Hashes{}, err
		}
	}
	read, err := s.readFiles(ctx, list, report)
	if err != nil {
		return Hashes{}, err
	}
	h := Hashes{Paths: list, read: read}
	entries := make([]dirEntry, len(read))
	for i, one := range read {
		if entries[i], err = s.entryOfHashed(one); err != nil {
			return Hashes{}, fmt.Errorf("%s: %w", one.path, err)
		}
		h.Bytes += one.stamp.Size
	}
	h.CID = entries[0].Root
	if len(entries) > 1 {
		h.CID = rootOfDir(entries)
	}
	return h, nil
}

// AddHashed is the second half of Add: it registers what Hash has read. A path
// that had other content before has it no more. It reads nothing.
//
// It fails with ErrFileChanged when a file is not what was read any more, and with
// store.ErrDiskFull; nothing is registered then.
func (s *Store) AddHashed(h Hashes) (Content, error) {
	for _, one := range h.read {
		// It may have been read hours ago.
		if err := unchanged(one.path, one.stamp); err != nil {
			return Content{}, err
		}
	}
	s.tables.Lock()
	defer s.tables.Unlock()
	if len(h.read) > 1 {
		return s.enterSet(h.read)
	}
	f, err := s.enter(h.read[0], false)
	if err != nil {
		return Content{}, fmt.Errorf("%s: %w", h.Paths[0], err)
	}
	return contentOf(f, nil), nil
}

// entryOfHashed is the entry in a directory of a file that was read.
func (s *Store) entryOfHashed(h hashed) (dirEntry, error) {
	if h.known != nil {
		e, err := s.entryOf(h.known)
		if errors.Is(err, errIncomplete) {
			err = errGone
		}
		return e, err
	}
	root, err := s.layout.buildTree(h.stamp.Size, h.leaves, func(digest, []byte) error { return nil })
	if err != nil {
		return dirEntry{}, err
	}
	return dirEntry{Name: filepath.Base(h.path), Root: root.cid(), Total: root.total}, nil
}

// hashed is a file that was read: its stamp and leaves, or the record that it
// has already.
type hashed struct {
	path   string
	known  *file
	moved  *file // the record of another path, where it lay
	stamp  stamp
	leaves []digest
}

// readFiles reads those of some files that are not known as they are.
func (s *Store) readFiles(ctx context.Context, paths []string, report *reporter) ([]hashed, error) {
	var total, done int64
	for _, path := range paths {
		info, err := regular(path)
		if err != nil {
			return nil, invalidFile(path, err)
		}
		total += info.Size()
	}
	some := false
	list := make([]hashed, len(paths))
	for i, path := range paths {
		one := &reporter{fn: func(p Progress) {
			some = true
			report.report(Progress{Phase: p.Phase, Done: done + p.Done, Total: total})
		}}
		h, err := s.hashFile(ctx, path, one)
		one.stop()
		if err != nil {
			return nil, err
		}
		list[i] = h
		done += h.stamp.Size
	}
	if some {
		report.report(Progress{Phase: PhaseFinish, Done: done, Total: done})
	}
	return list, nil
}

// enter brings one file of an Add into the tables and returns its record; part
// says that it is added as part of a set. The caller holds tables.
func (s *Store) enter(h hashed, part bool) (*file, error) {
	if h.known != nil {
		return s.renew(h, part)
	}
	if h.moved != nil {
		if f, err := s.relink(h, part); f != nil || err != nil {
			return f, err
		}
	}
	rec := &file{Bytes: h.stamp.Size, Path: h.path, Stamp: h.stamp, Part: part}
	return rec, s.enroll(rec, h.leaves)
}

var errGone = fmt.Errorf("%w: it was removed or changed while it was added; add it again", ErrFileChanged)

// renew notes that a registered file was added once more: it is its owner's,
// whoever put it there. The caller holds tables.
func (s *Store) renew(h hashed, part bool) (*file, error) {
	known := s.fileByID(h.known.ID)
	if known == nil || known.Path != h.path || known.Stamp != h.stamp {
		return nil, errGone
	}
	own := *known
	own.Pulled, own.Part = false, known.Part && part
	if own.Pulled != known.Pulled || own.Part != known.Part || s.due(known.Used) {
		own.Used = s.opt.now().UnixNano()
		return &own, s.saveFile(&own)
	}
	return known, nil
}

// hashFile reads a file, unless it is known as it is now, here or elsewhere.
func (s *Store) hashFile(ctx context.Context, path string, report *reporter) (hashed, error) {
	// Looked at before it is opened: opening a pipe or a device can hang.
	if _, err := regular(path); err != nil {
		return hashed{}, invalidFile(path, err)
	}
	in, err := os.Open(path)
	if err != nil {
		return hashed{}, invalidFile(path, err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return hashed{}, invalidFile(path, err)
	}
	h := hashed{path: path, stamp: stampOf(info)}
	if known := s.fileByPath(path); known != nil && known.Stamp == h.stamp && !known.Damaged {
		h.known = known
		return h, nil
	}
	if h.moved, h.leaves = s.moved(ctx, in, h.stamp); h.leaves != nil {
		return h, unchanged(path, h.stamp)
	}
	h.leaves, err = s.layout.hashLeaves(ctx, in, h.stamp.Size, func(done int64) {
		report.report(Progress{Phase: PhaseHash, Done: done, Total: h.stamp.Size})
	})
	if err != nil {
		return hashed{}, fmt.Errorf("%s: %w", path, err)
	}
	// By its name and not by the open file: it may have been replaced meanwhile.
	if err := unchanged(path, h.stamp); err != nil {
		return hashed{}, err
	}
	return h, nil
}

// regular looks at a file that can be added.
func regular(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Size() > MaxBytes {
		return nil, fmt.Errorf("it has %s, the most is %s", store.FormatBytes(uint64(info.Size())), store.FormatBytes(MaxBytes))
	}
	return info, nil
}

// unchanged fails when a file is not any more what it was when reading began.
func unchanged(path string, before stamp) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w: it vanished while it was read", path, ErrFileChanged)
	}
	if diff := before.difference(stampOf(info)); diff != "" {
		return fmt.Errorf("%s: %w: it changed while it was read (%s); add it again when nothing writes to it any more", path, ErrFileChanged, diff)
	}
	return nil
}

func invalidFile(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %w: there is no such file (%w)", path, ErrFileInvalid, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s %w: this user may not read it (%w)", path, ErrFileInvalid, err)
	}
	return fmt.Errorf("%s %w: %w", path, ErrFileInvalid, err)
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
	return s.enroll(rec, leaves, with...)
}

// enroll is register for a caller that holds tables.
func (s *Store) enroll(rec *file, leaves []digest, with ...store.Write) error {
	root, err := s.layout.buildTree(rec.Bytes, leaves, func(digest, []byte) error { return nil })
	if err != nil {
		return err
	}
	rec.Root, rec.Used = root.cid(), s.opt.now().UnixNano()
	before := s.fileByPath(rec.Path)
	same := before != nil && before.Root == rec.Root
	rec.Part = rec.Part && (!same || before.Part)
	if same && rec.ID == 0 {
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
		s.undoAdding(rec, with)
		return err
	}
	rec.State = stateWhole
	if err := s.replace(before, rec, with...); err != nil {
		s.undoAdding(rec, with)
		return err
	}
	if before != nil && !same {
		// The path has other content now; the old one is gone from it.
		s.log.Info("a file was added again with other content", "path", rec.Path, "old", before.Root, "new", rec.Root)
	}
	return nil
}

// replace saves a record, and removes that which its path had before, if any. The
// caller holds tables.
func (s *Store) replace(before, rec *file, with ...store.Write) error {
	if before == nil {
		return s.saveFile(rec, with...)
	}
	gone := *before
	gone.State = stateRemoving
	record, err := gone.write()
	if err != nil {
		return err
	}
	if err := s.saveFile(rec, append(with, record)...); err != nil {
		return err
	}
	s.forgetFile(before.ID)
	if err := s.finishRemoval(&gone); err != nil {
		s.log.Warn("old content stays in the tables until the next start", "path", rec.Path, "error", err)
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
func (s *Store) undoAdding(rec *file, with []store.Write) {
	undo := s.finishRemoval
	if len(with) > 0 {
		undo = func(rec *file) error {
			return s.space.Apply([]store.Write{{Key: keyFile(rec.ID), Delete: true}})
		}
	}
	if err := undo(rec); err != nil {
		s.log.Warn("an unfinished registration stays in the tables until the next start", "path", rec.Path, "error", err)
	}
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
