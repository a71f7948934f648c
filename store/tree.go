package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Tree names what lies where in a state folder.
type Tree struct {
	// Root is the state folder's absolute path.
	Root string
}

// IdentityKey is this peer's private key.
func (t Tree) IdentityKey() string { return filepath.Join(t.Root, "identity.key") }

// MeshKey is the mesh's root key, where this machine founded it.
func (t Tree) MeshKey() string { return filepath.Join(t.Root, "mesh.key") }

// DefaultKey is the text of the mesh's default API key, where it was made.
func (t Tree) DefaultKey() string { return filepath.Join(t.Root, "default.key") }

// DB is the folder of the database.
func (t Tree) DB() string { return filepath.Join(t.Root, "db") }

// Models is the folder of pulled models, unless another one is set.
func (t Tree) Models() string { return filepath.Join(t.Root, "models") }

// Engines is the folder of installed engines.
func (t Tree) Engines() string { return filepath.Join(t.Root, "engines") }

// RPC is the folder of the engines' tensor caches.
func (t Tree) RPC() string { return filepath.Join(t.Root, "rpc") }

// Log is the folder of log files.
func (t Tree) Log() string { return filepath.Join(t.Root, "log") }

// Run is the folder of sockets and of the lock.
func (t Tree) Run() string { return filepath.Join(t.Root, "run") }

// ControlSocket is where the commands reach the running peer.
func (t Tree) ControlSocket() string { return filepath.Join(t.Run(), "control.sock") }

// Lock is the file that the running peer keeps locked; its process id is in it.
func (t Tree) Lock() string { return filepath.Join(t.Run(), "lock") }

func (t Tree) folders() []string {
	return []string{t.Root, t.DB(), t.Models(), t.Engines(), t.RPC(), t.Log(), t.Run()}
}

// Create makes the folders that are missing, open to this user only. Folders
// that exist keep their permissions. It fails with ErrUnusable or ErrDiskFull.
func (t Tree) Create() error {
	for _, dir := range t.folders() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return unusable(t.Root, err)
		}
	}
	return nil
}

// unusable says why a folder of the state cannot be used. A disk without room
// gets its own reason.
func unusable(dir string, err error) error {
	if IsDiskFull(err) {
		return fmt.Errorf("%w: %s cannot be written (%w); free some space and try again", ErrDiskFull, dir, err)
	}
	return fmt.Errorf("%w: %w; give this user the right to write %s, or name another folder with RELAY_STATE_DIR", ErrUnusable, err, dir)
}

// tryWrite proves that files can be made in a folder, since the permission bits
// alone do not tell (read-only mounts, full disks, quotas).
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	// One whole page: an empty file needs no block, so it would fit a full disk.
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
