package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Lock is the right to use a state folder, held by one process at a time. The
// system takes it back when the process dies, however it dies.
type Lock struct {
	// Tree is the locked folder.
	Tree Tree
	held *flock.Flock
}

// LockDir makes the state folder with its sub-folders where they are missing
// and takes its lock, without waiting for another process to give it back.
//
// It fails with ErrLocked when another process has the lock, with ErrUnusable
// when the folder cannot be made or written, and with ErrDiskFull.
func LockDir(stateDir string) (*Lock, error) {
	tree, err := TreeAt(stateDir)
	if err != nil {
		return nil, err
	}
	if err := tree.Create(); err != nil {
		return nil, err
	}
	held := lockFile(tree)
	// Not at the first try alone: Holder takes the lock for a moment, to see
	// whether it is free.
	soon, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	ok, err := held.TryLockContext(soon, 10*time.Millisecond)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, unusable(tree.Root, err)
	}
	if !ok {
		return nil, lockedBy(tree)
	}
	for _, dir := range []string{tree.Root, tree.Run()} {
		if err := tryWrite(dir); err != nil {
			return nil, errors.Join(unusable(tree.Root, err), held.Unlock())
		}
	}
	if err := writePID(tree.Lock(), strconv.Itoa(os.Getpid())); err != nil {
		return nil, errors.Join(unusable(tree.Root, err), held.Unlock())
	}
	return &Lock{Tree: tree, held: held}, nil
}

// TreeAt names the state folder without making or locking anything.
func TreeAt(stateDir string) (Tree, error) {
	if stateDir == "" {
		return Tree{}, fmt.Errorf("%w: no folder was named; name one with RELAY_STATE_DIR", ErrUnusable)
	}
	root, err := absolute(stateDir)
	if err != nil {
		return Tree{}, unusable(stateDir, err)
	}
	return Tree{Root: root}, nil
}

// Release gives the folder back. The file stays: removing a lock file lets two
// processes hold locks on two files of one name.
func (l *Lock) Release() error {
	return errors.Join(writePID(l.Tree.Lock(), ""), l.held.Unlock())
}

// Holder says which process has the lock of a state folder. held is false when
// none has; pid is 0 when one has that cannot be told.
func Holder(stateDir string) (pid int, held bool, err error) {
	tree, err := TreeAt(stateDir)
	if err != nil {
		return 0, false, err
	}
	if _, err := os.Stat(tree.Lock()); errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	lock := lockFile(tree)
	ok, err := lock.TryRLock()
	if err != nil {
		return 0, false, unusable(tree.Root, err)
	}
	if ok {
		return 0, false, lock.Unlock()
	}
	return readPID(tree.Lock()), true, nil
}

func lockFile(t Tree) *flock.Flock { return flock.New(t.Lock(), flock.SetPermissions(0o600)) }

func lockedBy(t Tree) error {
	who := "another relay process"
	if pid := readPID(t.Lock()); pid != 0 {
		who = fmt.Sprintf("the relay process %d", pid)
	}
	return fmt.Errorf("%w: %s uses %s; stop it with `relay down`, or name another folder with RELAY_STATE_DIR", ErrLocked, who, t.Root)
}

// The process id starts after the file's first byte: on Windows that byte is
// what is locked, and a locked byte can be neither read nor written by others.
const pidOffset = 1

func writePID(path, pid string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(fmt.Sprintf("%-11s\n", pid)), pidOffset)
	return errors.Join(err, f.Close())
}

func readPID(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	var buf [11]byte
	n, _ := f.ReadAt(buf[:], pidOffset)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid < 0 || pid > math.MaxUint32 {
		return 0
	}
	return pid
}
