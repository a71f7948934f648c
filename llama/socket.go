package llama

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// maxSocketPath is how long a socket's path may be, in bytes, the final zero
// byte not counted: sun_path has 108 bytes on Linux, 104 on macOS and the BSDs.
func maxSocketPath() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

// A socketPlace is where an engine listens, and the folder it may write to.
type socketPlace struct {
	// path is the socket. Its name ends with ".sock": that is how llama-server
	// tells a socket from a host name.
	path string
	// dir is the folder made for the socket alone; empty where it lies in the
	// process's own folder.
	dir string
}

// placeSocket picks a path for the socket of the engine whose own folder is
// box: in there, or where that path is too long, in a folder with a short name
// under the user's runtime folder or the system's temporary one.
func placeSocket(box string, max int, runtimeDir, tempDir string, uid int) (socketPlace, error) {
	const name = "engine.sock"
	if path := filepath.Join(box, name); len(path) <= max {
		return socketPlace{path: path}, nil
	}
	sum := sha256.Sum256([]byte(box))
	short := hex.EncodeToString(sum[:8])
	var bases []string
	if filepath.IsAbs(runtimeDir) {
		bases = append(bases, filepath.Join(runtimeDir, "relay"))
	}
	bases = append(bases, filepath.Join(tempDir, fmt.Sprintf("relay-%d", uid)))
	var errs error
	for _, base := range bases {
		dir := filepath.Join(base, short)
		path := filepath.Join(dir, name)
		if len(path) > max {
			errs = errors.Join(errs, fmt.Errorf("%s is too long for a socket's path", path))
			continue
		}
		err := privateDir(base)
		if err == nil {
			err = freshDir(dir)
		}
		if errors.Is(err, fs.ErrNotExist) { // another process has just removed base, which was empty
			if err = privateDir(base); err == nil {
				err = freshDir(dir)
			}
		}
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		return socketPlace{path: path, dir: dir}, nil
	}
	return socketPlace{}, fmt.Errorf("%w: no place for the engine's socket: %w", ErrState, errs)
}

// privateDir makes dir, or checks that it is a folder that only this user can
// use: the parent may be one where everybody can make folders.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ownedByMe(info) {
		return fmt.Errorf("%s belongs to somebody else", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// freshDir makes an empty folder dir, removing what a dead process left.
func freshDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

// removeIfEmpty removes a folder unless others use it.
func removeIfEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		entries, err2 := os.ReadDir(dir)
		if err2 == nil && len(entries) > 0 {
			return nil
		}
		return err
	}
	return nil
}
