package content

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gofrs/flock"
)

// lockSuffix is of the file beside an unfinished one whose lock says that a
// process writes to it. The system takes the lock back when the process dies; the
// file alone means nothing.
const lockSuffix = ".lock"

// lockPart claims the unfinished file of a pull for this process: with a copied
// state folder two would know of it.
func (s *Store) lockPart(rec *partial) (*flock.Flock, error) {
	path := rec.Part + lockSuffix
	for range 8 {
		lock := flock.New(path)
		got, err := lock.TryLock()
		if err != nil {
			return nil, unusable(s.dir, err)
		}
		if !got {
			break
		}
		// Whoever had it before may have removed the file, and a third one made another.
		held, err := lock.Stat()
		if there, gone := os.Stat(path); err == nil && gone == nil && os.SameFile(held, there) {
			return lock, nil
		}
		_ = lock.Close()
	}
	return nil, fmt.Errorf("%w: another relay on this machine is writing to %s; stop it, or give this one a state folder of its own", ErrUnusable, rec.Part)
}

// unlockPart gives the unfinished file back.
func (f *flight) unlockPart() {
	if f.lock == nil {
		return
	}
	_ = os.Remove(f.lock.Path()) // While it is held, so that nobody else's goes.
	_ = f.lock.Close()
	f.lock = nil
}

// giveName gives a file another name that nothing has yet, also where another
// process just now takes it: then it fails with fs.ErrExist.
func giveName(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		return os.Remove(from)
	}
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	// Not every file system has links.
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s: %w", to, fs.ErrExist)
	}
	return os.Rename(from, to)
}
