package content

import (
	"context"
	"errors"
	"os"
)

// samples is how many leaves of a file are hashed to be sure that it is one that
// was moved. Size, time and inode may be another's, since inodes are used again,
// some archives give all their files one time, and two models of one kind are
// often of one size; all these leaves are not.
const samples = 16

// moved looks for a file with that stamp that was registered under another path.
// It returns its leaves, and its record if nothing with that stamp is at the old
// path any more; else the file has a second name.
func (s *Store) moved(ctx context.Context, in *os.File, now stamp) (from *file, leaves []digest) {
	if now.Inode == 0 {
		return nil, nil
	}
	s.mu.RLock()
	var alike []*file
	for _, f := range s.files {
		if f.Stamp == now && !f.Damaged {
			alike = append(alike, f)
		}
	}
	s.mu.RUnlock()
	for _, f := range alike {
		info, err := os.Stat(f.Path)
		there := err == nil && stampOf(info) == now
		if there && leaves != nil {
			continue
		}
		own, err := s.storedLeaves(f.Root, f.Bytes)
		if err != nil || !s.layout.alike(ctx, in, f.Bytes, own) {
			continue
		}
		if leaves = own; !there {
			return f, leaves
		}
	}
	return nil, leaves
}

// alike hashes some leaves of a file, the first and the last among them.
func (l layout) alike(ctx context.Context, in *os.File, bytes int64, leaves []digest) bool {
	var indices []int
	for i := range min(samples, len(leaves)) {
		indices = append(indices, i*(len(leaves)-1)/max(1, min(samples, len(leaves))-1))
	}
	errOther := errors.New("another leaf")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := l.hashSome(ctx, in, bytes, indices, func(i int, d digest) {
		if d != leaves[i] {
			cancel(errOther)
		}
	})
	return err == nil && context.Cause(ctx) == nil
}

// relink gives the record of a moved file its new path, and removes the one that
// was registered there before, if any. It returns nil when the file was removed or
// moved on meanwhile. The caller holds tables.
func (s *Store) relink(h hashed, part bool) (*file, error) {
	from := s.fileByID(h.moved.ID)
	if from == nil || from.Path != h.moved.Path || from.Stamp != h.stamp {
		return nil, nil
	}
	rec := *from
	rec.Path, rec.Pulled, rec.Nested = h.path, false, false
	rec.Part = from.Part && part
	rec.Used = s.opt.now().UnixNano()
	if err := s.replace(s.fileByPath(h.path), &rec); err != nil {
		return nil, err
	}
	s.log.Info("a file was moved", "old", from.Path, "path", rec.Path)
	return &rec, nil
}
